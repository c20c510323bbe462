#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/core/scalar.hpp"
#include "lora/core/shape.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/io/formats/tensor_file.hpp"
#include "lora/io/formats/tensor_order.hpp"

namespace lora::io {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian and used in place");

/// What of a model is in a folder under names that are not read, and what makes it one that is, to end an error; empty
/// if there is nothing.
std::string weights_by_other_names(const Path& folder);

/// The tensors of a safetensors file, or of a folder with one file or with shards and an index. The headers are checked
/// when opened; the data are read where they are used.
class Safetensors {
 public:
  /// `path`: a .safetensors file, a .safetensors.index.json, or a folder with model.safetensors or
  /// model.safetensors.index.json.
  /// Throws   IoError, FormatError
  static Safetensors open(const Path& path);

  /// Reads the bytes of one file that the caller keeps, or that `file` holds; `name` names them in errors.
  static Safetensors parse(std::span<const std::byte> bytes, const std::string& name,
                           std::shared_ptr<const MappedFile> file = nullptr);

  /// Null if there is no such tensor.
  const StoredTensor* find(std::string_view name) const;

  /// In the order of their data; shard after shard.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  /// Bytes of the header's size, and the largest header that other implementations accept.
  static constexpr std::size_t prefix_bytes = 8;
  static constexpr std::uint64_t max_header_bytes = 100'000'000;

  static Safetensors open_file(const Path& path);

  static Safetensors open_shards(const Path& index);

  /// Adds the tensors of one file.
  void read(std::span<const std::byte> bytes, const std::string& name, std::shared_ptr<const MappedFile> file);

  static void check_metadata(const JsonView& metadata);

  static StoredTensor read_entry(const std::string& key, const JsonView& entry, std::span<const std::byte> data);

  /// The tensors, sorted by offset, must fill the data without gaps.
  static void check_layout(std::span<const StoredTensor> tensors, std::span<const std::byte> data,
                           const std::string& name);

  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// Writes one safetensors file: the tensors are declared first, then their data is appended in the same order. The file
/// appears on `commit`; without it nothing is left.
class SafetensorsWriter {
 public:
  SafetensorsWriter(Path path, std::vector<TensorDeclaration> tensors,
                    const SafetensorsMetadata& metadata = {{"format", "pt"}});

  /// Appends to the data of the tensor `name`, which must be the next that is not complete.
  void add(std::string_view name, std::span<const std::byte> bytes);

  /// True once all data have been given.
  bool complete() const { return order_.complete(); }

  /// The steps of a commit, as in AtomicFile.
  void settle();
  void publish() { file_.publish(); }

  /// Makes the file appear, durably.
  void commit();

 private:
  TensorOrder order_;
  AtomicFile file_;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/safetensors.ipp"
#endif
