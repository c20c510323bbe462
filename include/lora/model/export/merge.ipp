#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "lora/core/config.hpp"
#include "lora/model/export/merge.hpp"

namespace lora::model {

LORA_INLINE io::Json merged_config(const Source& source, std::optional<DType> dtype) {
  const std::string_view name = config_dtype_name(dtype.value_or(folder_dtype(source.stored_dtype())));
  io::Json json = config_json_of(source);
  // An adapter may have parted the head from the embedding.
  if (const bool tied = source.config().tie_word_embeddings; parse_config(json, "").tie_word_embeddings != tied)
    json["tie_word_embeddings"] = tied;
  if (json.contains("torch_dtype") || !json.contains("dtype")) json["torch_dtype"] = std::string(name);
  if (json.contains("dtype")) json["dtype"] = std::string(name);
  return json;
}

}  // namespace lora::model
