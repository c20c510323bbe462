#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/safetensors_folder.hpp"

namespace lora::io {

LORA_INLINE SafetensorsFolderWriter::SafetensorsFolderWriter(Path folder, const std::vector<TensorDeclaration>& tensors,
                                                             Index max_shard_bytes, SafetensorsMetadata metadata,
                                                             std::string stem)
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

LORA_INLINE SafetensorsFolderWriter::~SafetensorsFolderWriter() {
  for (std::size_t i = 0; i < published_; ++i) detail::remove_name(file_name(i));  // shards without an index
}

LORA_INLINE void SafetensorsFolderWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  finish_shards();
  shards_.back().add(name, bytes);
}

LORA_INLINE void SafetensorsFolderWriter::commit() {
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

LORA_INLINE Path SafetensorsFolderWriter::file_name(std::size_t shard) const {
  if (parts_.size() == 1) return folder_ / (stem_ + ".safetensors");
  const auto padded = [](std::size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
  };
  return folder_ / concat(stem_, "-", padded(shard + 1), "-of-", padded(parts_.size()), ".safetensors");
}

LORA_INLINE Json SafetensorsFolderWriter::index_json() const {
  Json json = json_object({{"metadata", json_object({{"total_size", total_bytes_}})}, {"weight_map", Json::object()}});
  auto& map = json["weight_map"].get_ref<Json::object_t&>();
  for (std::size_t shard = 0; shard < parts_.size(); ++shard)
    for (const TensorDeclaration& tensor : parts_[shard])
      map.emplace_back(tensor.name, file_name(shard).filename().native());
  return json;
}

LORA_INLINE void SafetensorsFolderWriter::finish_shards() {
  while (shards_.back().complete() && shards_.size() < parts_.size()) start_shard();
}

}  // namespace lora::io
