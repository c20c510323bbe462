#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/gguf.hpp"
#include "lora/io/formats/tensor_order.hpp"

namespace lora::io {

namespace detail {

/// The number in a file for values of type T.
template <class T>
constexpr GgufType gguf_type_of() {
  if constexpr (std::same_as<T, bool>)
    return GgufType::boolean;
  else if constexpr (std::same_as<T, std::int32_t>)
    return GgufType::i32;
  else if constexpr (std::same_as<T, std::uint32_t>)
    return GgufType::u32;
  else if constexpr (std::same_as<T, float>)
    return GgufType::f32;
  else {
    static_assert(std::same_as<T, std::string>, "no other type of value is written");
    return GgufType::string;
  }
}

}  // namespace detail

/// The metadata of a GGUF file that is about to be written, in the order in which they are added.
class GgufMetadata {
 public:
  /// A bool, 32-bit integer, float or string, or a vector of these; each key once.
  template <class T>
  void add(std::string_view key, const T& value) {
    begin(key);
    put_number(detail::gguf_type_of<T>());
    put(value);
  }
  template <class T>
  void add(std::string_view key, const std::vector<T>& values) {
    begin(key);
    put_number(GgufType::array);
    put_number(detail::gguf_type_of<T>());
    put_number(std::uint64_t{values.size()});
    for (const T& value : values) put(value);
  }
  void add(std::string_view key, const char* value) { add(key, std::string(value)); }

  std::uint64_t count() const { return count_; }
  /// As they stand in the file.
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key) {
    ++count_;
    put(key);
  }
  template <class N>
  void put_number(N value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(std::string_view text) {
    put_number(std::uint64_t{text.size()});
    bytes_ += text;
  }
  template <class N>
    requires(!std::convertible_to<N, std::string_view>)
  void put(N value) {
    put_number(value);
  }

  std::uint64_t count_ = 0;
  std::string bytes_;
};

/// Writes a GGUF file (version 3): metadata and the tensors' names first, then the tensors' data are appended in the
/// same order. The file appears on `commit`; without it nothing is left.
/// Source   https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
class GgufWriter {
 public:
  /// Extents slowest first, as everywhere here. Throws   FormatError for a dtype that GGUF has no number for, or rows
  /// that are not whole blocks
  GgufWriter(const Path& path, const GgufMetadata& metadata, std::vector<TensorDeclaration> tensors);

  /// Appends to the data of the tensor `name`, which must be the next that is not complete.
  void add(std::string_view name, std::span<const std::byte> bytes);

  /// Makes the file appear, durably.
  void commit();

  /// Bytes that were written.
  std::uint64_t size() const { return size_; }
  /// The file under its temporary name.
  const AtomicFile& file() const { return file_; }

 private:
  void write(std::string_view bytes);
  /// Zeros up to the next place where data may begin.
  void pad();

  TensorOrder order_;
  AtomicFile file_;
  std::uint64_t size_ = 0;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/gguf_writer.ipp"
#endif
