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
#include "lora/io/file.hpp"
#include "lora/io/json.hpp"
#include "lora/io/safetensors.hpp"
#include "lora/io/tensor_file.hpp"

namespace lora::io {

/// Writes the weights of a model folder: one STEM.safetensors, or shards of at most `max_shard_bytes` (a larger tensor
/// gets its own shard) and an index. All appear on `commit`, the index last; without it nothing is left.
class SafetensorsFolderWriter {
 public:
  SafetensorsFolderWriter(std::filesystem::path folder, const std::vector<TensorDeclaration>& tensors,
                          Index max_shard_bytes, SafetensorsMetadata metadata = {{"format", "pt"}},
                          std::string stem = "model")
      : folder_(std::move(folder)), metadata_(std::move(metadata)), stem_(std::move(stem)) {
    Index shard_bytes = 0;
    parts_.emplace_back();
    for (const TensorDeclaration& tensor : tensors) {
      const Index size = bytes_of(tensor.dtype, tensor.shape.count());
      if (!parts_.back().empty() && shard_bytes + size > max_shard_bytes) {
        parts_.emplace_back();
        shard_bytes = 0;
      }
      parts_.back().push_back(tensor);
      shard_bytes += size;
      total_bytes_ += size;
    }
    shards_.reserve(parts_.size());
    start_shard();
  }
  SafetensorsFolderWriter(const SafetensorsFolderWriter&) = delete;
  SafetensorsFolderWriter& operator=(const SafetensorsFolderWriter&) = delete;
  ~SafetensorsFolderWriter() {
    for (std::size_t i = 0; i < published_; ++i) detail::remove_name(file_name(i));  // shards without an index
  }

  /// Appends to the data of the tensor `name`, which must be the next that is not complete.
  void add(std::string_view name, std::span<const std::byte> bytes) {
    finish_shards();
    shards_.back().add(name, bytes);
  }

  void commit() {
    finish_shards();
    for (SafetensorsWriter& shard : shards_) shard.settle();
    if (parts_.size() > 1) {
      AtomicFile index(index_name());
      index.write(to_text(index_json()) + "\n");
      index.settle();
      if (remove_file(index_name())) sync_folder(folder_);  // an older index must never list new shards
      for (SafetensorsWriter& shard : shards_) {
        shard.publish();
        ++published_;
      }
      sync_folder(folder_);
      index.publish();
      published_ = 0;
      remove_file(folder_ / (stem_ + ".safetensors"));  // an older file would be read instead of the shards
    } else {
      shards_.front().publish();
      remove_file(index_name());
    }
    sync_folder(folder_);
  }

 private:
  std::filesystem::path file_name(std::size_t shard) const {
    if (parts_.size() == 1) return folder_ / (stem_ + ".safetensors");
    const auto padded = [](std::size_t number) {
      const std::string digits = std::to_string(number);
      return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
    };
    return folder_ / concat(stem_, "-", padded(shard + 1), "-of-", padded(parts_.size()), ".safetensors");
  }
  std::filesystem::path index_name() const { return folder_ / (stem_ + ".safetensors.index.json"); }

  Json index_json() const {
    Json json =
        json_object({{"metadata", json_object({{"total_size", total_bytes_}})}, {"weight_map", Json::object()}});
    auto& map = json["weight_map"].get_ref<Json::object_t&>();
    for (std::size_t shard = 0; shard < parts_.size(); ++shard)
      for (const TensorDeclaration& tensor : parts_[shard])
        map.emplace_back(tensor.name, file_name(shard).filename().native());
    return json;
  }

  void start_shard() { shards_.emplace_back(file_name(shards_.size()), parts_[shards_.size()], metadata_); }
  /// Advances to the first incomplete shard.
  void finish_shards() {
    while (shards_.back().complete() && shards_.size() < parts_.size()) start_shard();
  }

  std::filesystem::path folder_;
  SafetensorsMetadata metadata_;
  std::string stem_;
  Index total_bytes_ = 0;
  std::vector<std::vector<TensorDeclaration>> parts_;
  std::vector<SafetensorsWriter> shards_;
  std::size_t published_ = 0;  // shards in place without their index
};

}  // namespace lora::io
