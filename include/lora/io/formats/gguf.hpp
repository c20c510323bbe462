#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"
#include "lora/core/scalar.hpp"
#include "lora/core/shape.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/path.hpp"
#include "lora/io/formats/tensor_file.hpp"

namespace lora::io {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian and used in place");

/// The types of metadata values, with their numbers in the file.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

constexpr std::string_view name_of(GgufType type) {
  constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

namespace detail {

/// The dtype of GGML's number of a tensor type; nothing for one that is not supported.
constexpr std::optional<DType> ggml_dtype(std::uint32_t type) {
  switch (type) {
    case 0:
      return DType::f32;
    case 1:
      return DType::f16;
    case 2:
      return DType::q4_0;
    case 3:
      return DType::q4_1;
    case 6:
      return DType::q5_0;
    case 7:
      return DType::q5_1;
    case 8:
      return DType::q8_0;
    case 12:
      return DType::q4_k;
    case 13:
      return DType::q5_k;
    case 14:
      return DType::q6_k;
    case 30:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

/// Where the data of tensors may begin, unless a file says otherwise: at multiples of so many bytes.
inline constexpr std::uint32_t gguf_alignment = 32;

inline constexpr std::string_view gguf_magic = "GGUF";

/// Reads the bytes of a file in order, with bounds checks.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::size_t position() const { return position_; }
  std::size_t left() const { return bytes_.size() - position_; }

  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  std::string_view read_string(std::string_view what);
  GgufType read_type(std::string_view what);
  /// How many items follow, each of at least `least` bytes.
  std::uint64_t read_count(std::size_t least, std::string_view what);
  std::span<const std::byte> take(std::uint64_t count, std::string_view what);

  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    fail<FormatError>(name_, ": byte ", position_, ": ", parts...);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::size_t position_ = 0;
};

}  // namespace detail

/// A GGUF file (version 2 or 3): its metadata and its tensors, with the slowest extent first as everywhere here (the
/// file has the fastest first). All sizes, counts and offsets are checked when it is opened.
class Gguf {
 public:
  /// Throws   IoError, FormatError
  static Gguf open(const Path& path);

  /// Reads bytes that the caller keeps, or that `file` holds; `name` names them in errors.
  static Gguf parse(std::span<const std::byte> bytes, const std::string& name,
                    std::shared_ptr<const MappedFile> file = nullptr);

  /// Null if there is no such tensor.
  const StoredTensor* find(std::string_view name) const;

  /// In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }

  /// A metadata value as a bool, integer, floating point number, std::string, or vector of these; nothing if the key is
  /// absent. An integer may be stored in any width and is also taken as a floating point number.
  /// Throws   FormatError if the value is of another kind or out of T's range
  template <class T>
  std::optional<T> get(std::string_view key) const {
    const auto place = metadata_.find(key);
    if (place == metadata_.end()) return std::nullopt;
    return convert<T>(place->second, key);
  }

  /// The same, for a required key.
  template <class T>
  T at(std::string_view key) const {
    auto value = get<T>(key);
    if (!value) fail<FormatError>(name_, ": the key ", key, " is missing");
    return std::move(*value);
  }

  /// The name of the file in errors.
  const std::string& name() const { return name_; }

 private:
  /// A value as it lies in the file. Of an array: the element type, the count and the elements.
  struct Value {
    GgufType type;
    bool is_array;
    std::uint64_t count;
    std::span<const std::byte> bytes;
  };
  template <class T>
  struct Element {
    using Type = void;
  };
  template <class T>
  struct Element<std::vector<T>> {
    using Type = T;
  };

  static constexpr std::size_t least_pair_bytes = 8 + 4 + 1;        // a name's length, a type, a value
  static constexpr std::size_t least_tensor_bytes = 8 + 4 + 4 + 8;  // a name's length, the rank, a type, an offset

  Gguf(std::span<const std::byte> bytes, const std::string& name, std::shared_ptr<const MappedFile> file);

  void read_pair(detail::GgufCursor& cursor);

  static Value read_array(detail::GgufCursor& cursor, const std::string& key);

  static Value read_items(detail::GgufCursor& cursor, GgufType type, bool is_array, std::uint64_t count,
                          const std::string& key);

  void read_tensors(detail::GgufCursor& cursor, std::uint64_t count, std::span<const std::byte> bytes);

  /// Name, extents and type.
  StoredTensor read_description(detail::GgufCursor& cursor) const;

  /// Sorts the tensors by place, and refuses shared bytes and shared names.
  void index_tensors();

  template <class T>
  T convert(const Value& value, std::string_view key) const {
    using Item = typename Element<T>::Type;
    detail::GgufCursor cursor(value.bytes, name_);
    if constexpr (std::is_void_v<Item>) {
      if (value.is_array)
        fail<FormatError>(name_, ": ", key, " is an array of ", name_of(value.type), ", not one value");
      return read_item<T>(cursor, value.type, key);
    } else {
      if (!value.is_array) fail<FormatError>(name_, ": ", key, " must be an array, found one ", name_of(value.type));
      T items;
      items.reserve(static_cast<std::size_t>(value.count));
      for (std::uint64_t i = 0; i < value.count; ++i) items.push_back(read_item<Item>(cursor, value.type, key));
      return items;
    }
  }

  template <class T>
  T read_item(detail::GgufCursor& cursor, GgufType type, std::string_view key) const {
    if constexpr (std::same_as<T, std::string>) {
      if (type == GgufType::string) return std::string(cursor.read_string(key));
    } else if constexpr (std::same_as<T, bool>) {
      if (type == GgufType::boolean) return cursor.read<std::uint8_t>(key) != 0;
    } else {
      switch (type) {
        case GgufType::u8:
          return from_integer<T>(cursor.read<std::uint8_t>(key), key);
        case GgufType::i8:
          return from_integer<T>(cursor.read<std::int8_t>(key), key);
        case GgufType::u16:
          return from_integer<T>(cursor.read<std::uint16_t>(key), key);
        case GgufType::i16:
          return from_integer<T>(cursor.read<std::int16_t>(key), key);
        case GgufType::u32:
          return from_integer<T>(cursor.read<std::uint32_t>(key), key);
        case GgufType::i32:
          return from_integer<T>(cursor.read<std::int32_t>(key), key);
        case GgufType::u64:
          return from_integer<T>(cursor.read<std::uint64_t>(key), key);
        case GgufType::i64:
          return from_integer<T>(cursor.read<std::int64_t>(key), key);
        case GgufType::f32:
          if constexpr (std::floating_point<T>) return static_cast<T>(cursor.read<float>(key));
          break;
        case GgufType::f64:
          if constexpr (std::floating_point<T>) return static_cast<T>(cursor.read<double>(key));
          break;
        default:
          break;
      }
    }
    constexpr std::string_view wanted = std::same_as<T, std::string> ? "a string"
                                        : std::same_as<T, bool>      ? "a bool"
                                        : std::integral<T>           ? "an integer"
                                                                     : "a number";
    fail<FormatError>(name_, ": ", key, " must be ", wanted, ", found ", name_of(type));
  }

  template <class T, class Stored>
  T from_integer(Stored value, std::string_view key) const {
    if constexpr (std::integral<T>) {
      if (!std::in_range<T>(value)) fail<FormatError>(name_, ": ", key, " is ", value, ", which is out of range");
    }
    return static_cast<T>(value);
  }

  std::string name_;
  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, Value, std::less<>> metadata_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/gguf.ipp"
#endif
