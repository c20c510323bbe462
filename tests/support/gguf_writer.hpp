#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lora::test {

/// Puts together the bytes of a GGUF file. Extents are given as the file has them: the fastest first.
class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version = 3, std::uint64_t alignment = 32)
      : version_(version), alignment_(alignment) {}

  /// A bool, 32- or 64-bit integer, float, double or string.
  template <class T>
  void add(std::string_view key, const T& value) {
    put_key(key);
    put(pairs_, type_of<T>());
    put(pairs_, value);
  }
  void add(std::string_view key, const char* value) { add(key, std::string(value)); }

  template <class T>
  void add(std::string_view key, const std::vector<T>& values) {
    put_key(key);
    put(pairs_, std::uint32_t{9});
    put(pairs_, type_of<T>());
    put(pairs_, std::uint64_t{values.size()});
    for (const T& value : values) put(pairs_, value);
  }

  /// A key whose type and value are written out by the caller.
  void add_raw(std::string_view key, std::string_view type_and_value) {
    put_key(key);
    pairs_ += type_and_value;
  }

  /// `type` is GGML's number. The data follow those of the tensor before, aligned.
  void add_tensor(std::string_view name, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                  std::string_view data) {
    data_.resize(aligned(data_.size()), '\0');
    add_tensor_at(name, extents, type, data_.size());
    data_ += data;
  }
  void add_tensor_at(std::string_view name, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                     std::uint64_t offset) {
    ++tensor_count;
    put(tensors_, name);
    put(tensors_, static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) put(tensors_, extent);
    put(tensors_, type);
    put(tensors_, offset);
  }

  std::string bytes() const {
    std::string file = "GGUF";
    put(file, version_);
    put(file, tensor_count);
    put(file, pair_count);
    file += pairs_ + tensors_;
    file.resize(aligned(file.size()), '\0');
    return file + data_;
  }

  template <class T>
  static void put(std::string& out, const T& value) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      const std::string_view text = value;
      put(out, std::uint64_t{text.size()});
      out += text;
    } else {
      static_assert(std::is_arithmetic_v<T>);
      out.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }

  std::uint64_t tensor_count = 0;  ///< as the header will say
  std::uint64_t pair_count = 0;

 private:
  template <class T>
  static constexpr std::uint32_t type_of() {
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, std::string>) return 8;
    if constexpr (std::is_same_v<T, std::uint8_t>) return 0;
    if constexpr (std::is_same_v<T, std::int8_t>) return 1;
    if constexpr (std::is_same_v<T, std::uint16_t>) return 2;
    if constexpr (std::is_same_v<T, std::int16_t>) return 3;
    if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
    if constexpr (std::is_same_v<T, std::int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, std::uint64_t>) return 10;
    if constexpr (std::is_same_v<T, std::int64_t>) return 11;
    if constexpr (std::is_same_v<T, double>) return 12;
  }

  void put_key(std::string_view key) {
    ++pair_count;
    put(pairs_, key);
  }
  std::size_t aligned(std::size_t size) const {
    const auto alignment = static_cast<std::size_t>(alignment_);
    return (size + alignment - 1) / alignment * alignment;
  }

  std::uint32_t version_;
  std::uint64_t alignment_;
  std::string pairs_, tensors_, data_;
};

}  // namespace lora::test
