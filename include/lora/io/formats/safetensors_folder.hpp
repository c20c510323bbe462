#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "lora/io/formats/tensor_file.hpp"

namespace lora::io {

/// Writes the weights of a model folder: one STEM.safetensors, or shards of at most `max_shard_bytes` (a larger tensor
/// gets its own shard) and an index. All appear on `commit`, the index last; without it nothing is left.
class SafetensorsFolderWriter {
 public:
  SafetensorsFolderWriter(Path folder, const std::vector<TensorDeclaration>& tensors, Index max_shard_bytes,
                          SafetensorsMetadata metadata = {{"format", "pt"}}, std::string stem = "model");
  SafetensorsFolderWriter(const SafetensorsFolderWriter&) = delete;
  SafetensorsFolderWriter& operator=(const SafetensorsFolderWriter&) = delete;
  ~SafetensorsFolderWriter();

  /// Appends to the data of the tensor `name`, which must be the next that is not complete.
  void add(std::string_view name, std::span<const std::byte> bytes);

  void commit();

 private:
  Path file_name(std::size_t shard) const;
  Path index_name() const { return folder_ / (stem_ + ".safetensors.index.json"); }

  Json index_json() const;

  void start_shard() { shards_.emplace_back(file_name(shards_.size()), parts_[shards_.size()], metadata_); }
  /// Advances to the first incomplete shard.
  void finish_shards();

  Path folder_;
  SafetensorsMetadata metadata_;
  std::string stem_;
  Index total_bytes_ = 0;
  std::vector<std::vector<TensorDeclaration>> parts_;
  std::vector<SafetensorsWriter> shards_;
  std::size_t published_ = 0;  // shards in place without their index
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/safetensors_folder.ipp"
#endif
