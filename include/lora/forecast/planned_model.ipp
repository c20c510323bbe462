#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/forecast/planned_model.hpp"
#include "lora/inputs/find_model.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/model/description/presets.hpp"

namespace lora::forecast {

namespace detail {

/// The type that a config.json says of its weights; transformers has saved them in float32 where it says none.
inline DType declared_dtype(const io::Json& json) {
  for (const char* key : {"dtype", "torch_dtype"})
    if (const io::Json* value = io::json_find(json, key); value != nullptr && value->is_string()) {
      if (*value == "bfloat16") return DType::bf16;
      if (*value == "float16") return DType::f16;
    }
  return DType::f32;
}

}  // namespace detail

LORA_INLINE PlannedModel planned_model(const settings::Config& config) {
  const auto seed = static_cast<std::uint64_t>(config.seed);
  if (!config.model_preset.empty()) {
    const io::Json json = model::preset_config(config.model_preset);
    const DType declared = config.train_from_scratch ? DType::f32 : detail::declared_dtype(json);
    if (!config.tokenizer_name_or_path.empty()) return {inputs::initial_source(config), declared};
    return {model::Source::initial(config.model_preset, json, seed), declared};
  }
  if (config.train_from_scratch) return {inputs::open_source(config), DType::f32};
  const io::Path path = inputs::find_model(config.model_name_or_path);
  std::error_code ignored;
  const bool weights = !std::filesystem::is_directory(path, ignored) || io::is_there(path / "model.safetensors") ||
                       io::is_there(path / "model.safetensors.index.json");
  if (weights || !io::is_there(path / "config.json")) return {inputs::open_source(config), std::nullopt};
  const io::Json json = io::read_json(path / "config.json");
  return {model::Source::initial(path, json, seed), detail::declared_dtype(json)};
}

LORA_INLINE model::Blueprint blueprint_of(const settings::Config& config, const model::Source& source,
                                          const std::optional<DType>& declared) {
  model::Blueprint blueprint = inputs::blueprint_of(config, source);
  if (declared) blueprint.stored = [type = *declared](const model::TensorInfo&) { return type; };
  return blueprint;
}

}  // namespace lora::forecast
