#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
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
#include "lora/core/scalar.hpp"
#include "lora/core/shape.hpp"
#include "lora/io/mapped_file.hpp"
#include "lora/io/tensor_file.hpp"

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

/// GGML's names of its tensor types, by number; empty for unused numbers.
constexpr std::string_view ggml_type_name(std::uint32_t type) {
  constexpr std::string_view names[] = {
      "F32",      "F16",      "Q4_0",    "Q4_1",  "",           "",           "Q5_0",       "Q5_1",
      "Q8_0",     "Q8_1",     "Q2_K",    "Q3_K",  "Q4_K",       "Q5_K",       "Q6_K",       "Q8_K",
      "IQ2_XXS",  "IQ2_XS",   "IQ3_XXS", "IQ1_S", "IQ4_NL",     "IQ3_S",      "IQ2_S",      "IQ4_XS",
      "I8",       "I16",      "I32",     "I64",   "F64",        "IQ1_M",      "BF16",       "Q4_0_4_4",
      "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",   "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4"};
  return type < std::size(names) ? names[type] : std::string_view();
}

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

/// Bytes of a metadata value of a fixed size; 0 for strings and arrays.
constexpr std::size_t gguf_bytes(GgufType type) {
  constexpr std::size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return bytes[static_cast<std::size_t>(type)];
}

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
  std::string_view read_string(std::string_view what) {
    const auto length = read<std::uint64_t>(what);
    const auto text = take(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  GgufType read_type(std::string_view what) {
    const auto type = read<std::uint32_t>(what);
    if (type > static_cast<std::uint32_t>(GgufType::f64)) fail_here(what, " has the unknown type ", type);
    return static_cast<GgufType>(type);
  }
  /// How many items follow, each of at least `least` bytes.
  std::uint64_t read_count(std::size_t least, std::string_view what) {
    const auto count = read<std::uint64_t>(what);
    if (count > left() / least)
      fail_here(what, " is said to have ", count, " items, but only ", left(), " bytes are left");
    return count;
  }
  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left()) fail_here(what, " takes ", count, " bytes, but only ", left(), " are left");
    const auto part = bytes_.subspan(position_, count);
    position_ += part.size();
    return part;
  }

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
  static Gguf open(const std::filesystem::path& path) {
    auto file = std::make_shared<const MappedFile>(path);
    return parse(file->bytes(), path.native(), file);
  }

  /// Reads bytes that the caller keeps, or that `file` holds; `name` names them in errors.
  static Gguf parse(std::span<const std::byte> bytes, const std::string& name,
                    std::shared_ptr<const MappedFile> file = nullptr) {
    return Gguf(bytes, name, std::move(file));
  }

  /// Null if there is no such tensor.
  const StoredTensor* find(std::string_view name) const {
    const auto place = places_.find(name);
    return place == places_.end() ? nullptr : &tensors_[place->second];
  }

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
  static constexpr std::uint32_t default_alignment = 32;
  static constexpr std::string_view magic = "GGUF";

  Gguf(std::span<const std::byte> bytes, const std::string& name, std::shared_ptr<const MappedFile> file)
      : name_(name), file_(std::move(file)) {
    detail::GgufCursor cursor(bytes, name_);
    const auto start = cursor.take(magic.size(), "the file's mark");
    if (std::memcmp(start.data(), magic.data(), magic.size()) != 0) fail<FormatError>(name_, ": not a GGUF file");
    const auto version = cursor.read<std::uint32_t>("the version");
    if (version != 2 && version != 3)
      fail<FormatError>(name_, ": GGUF version ", version & 0xFFFFu ? version : version >> 24,
                        version & 0xFFFFu ? "" : ", big-endian,", " is not supported; versions 2 and 3 are");
    const auto tensor_count = cursor.read_count(least_tensor_bytes, "the table of tensors");
    const auto pair_count = cursor.read_count(least_pair_bytes, "the metadata");
    for (std::uint64_t i = 0; i < pair_count; ++i) read_pair(cursor);
    read_tensors(cursor, tensor_count, bytes);
  }

  void read_pair(detail::GgufCursor& cursor) {
    const std::string key(cursor.read_string("the name of a key"));
    const GgufType type = cursor.read_type(key);
    const Value value = type == GgufType::array ? read_array(cursor, key) : read_items(cursor, type, false, 1, key);
    if (!metadata_.emplace(key, value).second) fail<FormatError>(name_, ": the key ", key, " appears twice");
  }

  static Value read_array(detail::GgufCursor& cursor, const std::string& key) {
    const GgufType type = cursor.read_type(key);
    if (type == GgufType::array) cursor.fail_here(key, " is an array of arrays, which is not supported");
    const std::size_t least = type == GgufType::string ? sizeof(std::uint64_t) : detail::gguf_bytes(type);
    return read_items(cursor, type, true, cursor.read_count(least, key), key);
  }

  static Value read_items(detail::GgufCursor& cursor, GgufType type, bool is_array, std::uint64_t count,
                          const std::string& key) {
    if (type != GgufType::string) {
      const Value value{type, is_array, count, cursor.take(count * detail::gguf_bytes(type), key)};
      if (type == GgufType::boolean)
        for (const std::byte b : value.bytes)
          if (b > std::byte{1}) cursor.fail_here(key, " holds a bool that is neither 0 nor 1");
      return value;
    }
    detail::GgufCursor scan = cursor;  // finds the end; the strings are read where they are asked for
    for (std::uint64_t i = 0; i < count; ++i) scan.read_string(key);
    return {type, is_array, count, cursor.take(scan.position() - cursor.position(), key)};
  }

  void read_tensors(detail::GgufCursor& cursor, std::uint64_t count, std::span<const std::byte> bytes) {
    std::vector<std::uint64_t> offsets;  // no room is made ahead for a number that only the file says
    for (std::uint64_t i = 0; i < count; ++i) {
      tensors_.push_back(read_description(cursor));
      offsets.push_back(cursor.read<std::uint64_t>(tensors_.back().name));
    }
    if (count == 0) return;

    const auto alignment = get<std::uint32_t>("general.alignment").value_or(default_alignment);
    if (!std::has_single_bit(alignment))
      fail<FormatError>(name_, ": general.alignment is ", alignment, ", which is no power of two");
    const std::size_t begin = (cursor.position() + alignment - 1) / alignment * alignment;
    const auto data = bytes.subspan(std::min(begin, bytes.size()));
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      StoredTensor& tensor = tensors_[i];
      const auto size = static_cast<std::uint64_t>(bytes_of(tensor.dtype, tensor.shape.count()));
      if (offsets[i] % alignment != 0)
        fail<FormatError>(name_, ": tensor ", tensor.name, " begins at byte ", offsets[i],
                          " of the data, which is no multiple of the alignment ", alignment);
      if (offsets[i] > data.size() || size > data.size() - offsets[i])
        fail<FormatError>(name_, ": tensor ", tensor.name, " takes ", size, " bytes from byte ", offsets[i],
                          " of the data on, but there are only ", data.size(), "; the file is cut short");
      tensor.bytes = data.subspan(offsets[i], size);
      tensor.file = file_;
    }
    index_tensors();
  }

  /// Name, extents and type.
  StoredTensor read_description(detail::GgufCursor& cursor) const {
    StoredTensor tensor;
    tensor.name = cursor.read_string("the name of a tensor");
    const std::string where = concat(name_, ": tensor ", tensor.name);
    const auto rank = cursor.read<std::uint32_t>(tensor.name);
    if (rank > Shape::max_rank)
      fail<FormatError>(where, " has ", rank, " extents; at most ", Shape::max_rank, " are supported");
    std::array<Index, Shape::max_rank> extents{};
    for (std::uint32_t axis = 0; axis < rank; ++axis) {
      const auto extent = cursor.read<std::uint64_t>(tensor.name);
      if (!std::in_range<Index>(extent)) fail<FormatError>(where, " has the extent ", extent);
      extents[axis] = static_cast<Index>(extent);
    }
    for (std::uint32_t axis = rank; axis > 0; --axis) tensor.shape.push_back(extents[axis - 1]);

    const auto type = cursor.read<std::uint32_t>(tensor.name);
    const auto dtype = detail::ggml_dtype(type);
    if (!dtype) {
      const auto known = detail::ggml_type_name(type);
      fail<FormatError>(
          where, " has the type ", known.empty() ? concat("number ", type) : std::string(known),
          ", which is not supported; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are");
    }
    tensor.dtype = *dtype;
    const Index row = rank > 0 ? extents[0] : 1;
    if (row % block_elements(*dtype) != 0)
      fail<FormatError>(where, " has rows of ", row, " values, but ", lora::name_of(*dtype),
                        " holds them in blocks of ", block_elements(*dtype));
    if (!detail::checked_bytes(*dtype, tensor.shape))
      fail<FormatError>(where, ": the product of the extents ", to_string(tensor.shape), " overflows");
    return tensor;
  }

  /// Sorts the tensors by place, and refuses shared bytes and shared names.
  void index_tensors() {
    std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (i > 0 && tensors_[i - 1].bytes.data() + tensors_[i - 1].bytes.size() > tensors_[i].bytes.data())
        fail<FormatError>(name_, ": tensors ", tensors_[i - 1].name, " and ", tensors_[i].name, " overlap");
      if (!places_.emplace(tensors_[i].name, i).second)
        fail<FormatError>(name_, ": tensor ", tensors_[i].name, " appears twice");
    }
  }

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
