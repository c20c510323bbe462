#pragma once

#include "lora/core/config.hpp"
#include "lora/model/presets.hpp"

namespace lora::model {

LORA_INLINE io::Json preset_config(std::string_view name) {
  for (const Preset& preset : presets)
    if (preset.name == name)
      return io::json_object({{"architectures", io::Json::array({"Qwen3ForCausalLM"})},
                              {"model_type", "qwen3"},
                              {"vocab_size", 151936},
                              {"hidden_size", preset.hidden_size},
                              {"intermediate_size", preset.intermediate_size},
                              {"num_hidden_layers", preset.num_hidden_layers},
                              {"num_attention_heads", preset.num_attention_heads},
                              {"num_key_value_heads", preset.num_key_value_heads},
                              {"head_dim", preset.head_dim},
                              {"hidden_act", "silu"},
                              {"max_position_embeddings", 32768},
                              {"initializer_range", 0.02},
                              {"rms_norm_eps", 1e-6},
                              {"rope_theta", 1000000.0},
                              {"attention_bias", false},
                              {"tie_word_embeddings", true},
                              {"torch_dtype", "float32"}});
  std::string names;
  for (const Preset& preset : presets) names += concat(names.empty() ? "" : ", ", preset.name);
  fail<ConfigError>("key model_preset: given ", name, ", allowed: one of ", names);
}

}  // namespace lora::model
