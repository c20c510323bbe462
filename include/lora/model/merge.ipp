#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "lora/core/config.hpp"
#include "lora/model/merge.hpp"

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

namespace lora::model::detail {

LORA_INLINE std::vector<std::byte> rounded(std::span<const float> values, DType dtype, const std::string& name) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(block_bytes(dtype)));
  const auto put = [&]<class S>(S) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const S value(values[i]);
      if (!std::isfinite(static_cast<float>(value)))
        fail<NonFiniteError>("the merged tensor ", name, " would hold ", static_cast<float>(value), " as ",
                             name_of(dtype), " (", values[i], " before rounding); expected finite numbers");
      std::memcpy(bytes.data() + i * sizeof(S), &value, sizeof(S));
    }
  };
  if (dtype == DType::f32)
    put(float{});
  else if (dtype == DType::bf16)
    put(bf16{});
  else
    put(f16{});
  return bytes;
}

}  // namespace lora::model::detail
