#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::model {

/// The shape of a model: one of Qwen3's for training from scratch, or a published one.
struct Preset {
  std::string_view name;
  std::string_view model_type;
  Index vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads,
      head_dim;
  bool tied;  ///< the head is the embedding
  double rope_theta;
  double rms_norm_eps;
  Index max_position_embeddings;
  std::string_view dtype;  ///< that its weights are published in
};

/// Every shape that model_preset names.
/// Source   the config.json files of Qwen, Qwen2.5, Qwen3 and SmolLM2 on the Hugging Face hub
const std::vector<Preset>& presets();

/// Their names.
std::vector<std::string_view> preset_names();

/// Its config.json.
/// Throws   ConfigError for a name that none has, with those that there are
io::Json preset_config(std::string_view name);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/description/presets.ipp"
#endif
