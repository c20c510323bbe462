#pragma once

#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/json.hpp"

namespace lora::model {

/// The shape of a Qwen3 model that is trained from scratch, with Qwen3's vocabulary and a head tied to the embedding.
struct Preset {
  std::string_view name;
  Index hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
};

//                                                              parameters: in all, and without the embedding
constexpr Preset presets[] = {{"tiny", 128, 640, 8, 4, 2, 32},       //  21,809,792      2,361,984
                              {"small", 256, 768, 8, 4, 2, 64},      //  45,192,448      6,296,832
                              {"medium", 512, 1408, 8, 8, 4, 64},    // 101,393,920     23,602,688
                              {"large", 768, 1920, 16, 12, 4, 64}};  // 212,658,944     95,972,096

/// Its config.json.
/// Throws   ConfigError for a name that none has, with those that there are
inline io::Json preset_config(std::string_view name) {
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
