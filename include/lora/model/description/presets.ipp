#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/model/description/model_type.hpp"
#include "lora/model/description/presets.hpp"

namespace lora::model {

LORA_INLINE const std::vector<Preset>& presets() {
  constexpr bool tied = true, own_head = false;
  constexpr std::string_view f32 = "float32", bf16 = "bfloat16";
  static const std::vector<Preset> all = {
      // name, type, vocabulary, width, of the MLP, layers, heads, of keys and values, their width; for training from
      // scratch; 21,809,792 parameters, 45,192,448, 101,393,920 and 212,658,944, of which without the embedding
      // 2,361,984, 6,296,832, 23,602,688 and 95,972,096
      {"tiny", "qwen3", 151936, 128, 640, 8, 4, 2, 32, tied, 1e6, 1e-6, 32768, f32},
      {"small", "qwen3", 151936, 256, 768, 8, 4, 2, 64, tied, 1e6, 1e-6, 32768, f32},
      {"medium", "qwen3", 151936, 512, 1408, 8, 8, 4, 64, tied, 1e6, 1e-6, 32768, f32},
      {"large", "qwen3", 151936, 768, 1920, 16, 12, 4, 64, tied, 1e6, 1e-6, 32768, f32},
      {"qwen2.5-0.5b", "qwen2", 151936, 896, 4864, 24, 14, 2, 64, tied, 1e6, 1e-6, 32768, bf16},
      {"qwen2.5-1.5b", "qwen2", 151936, 1536, 8960, 28, 12, 2, 128, tied, 1e6, 1e-6, 32768, bf16},
      {"qwen2.5-3b", "qwen2", 151936, 2048, 11008, 36, 16, 2, 128, tied, 1e6, 1e-6, 32768, bf16},
      {"qwen2.5-7b", "qwen2", 152064, 3584, 18944, 28, 28, 4, 128, own_head, 1e6, 1e-6, 32768, bf16},
      {"qwen2.5-14b", "qwen2", 152064, 5120, 13824, 48, 40, 8, 128, own_head, 1e6, 1e-6, 32768, bf16},
      {"qwen2.5-32b", "qwen2", 152064, 5120, 27648, 64, 40, 8, 128, own_head, 1e6, 1e-6, 32768, bf16},
      {"qwen2.5-72b", "qwen2", 152064, 8192, 29568, 80, 64, 8, 128, own_head, 1e6, 1e-6, 32768, bf16},
      {"qwen3-0.6b", "qwen3", 151936, 1024, 3072, 28, 16, 8, 128, tied, 1e6, 1e-6, 40960, bf16},
      {"qwen3-1.7b", "qwen3", 151936, 2048, 6144, 28, 16, 8, 128, tied, 1e6, 1e-6, 40960, bf16},
      {"qwen3-4b", "qwen3", 151936, 2560, 9728, 36, 32, 8, 128, tied, 1e6, 1e-6, 40960, bf16},
      {"qwen3-8b", "qwen3", 151936, 4096, 12288, 36, 32, 8, 128, own_head, 1e6, 1e-6, 40960, bf16},
      {"qwen3-14b", "qwen3", 151936, 5120, 17408, 40, 40, 8, 128, own_head, 1e6, 1e-6, 40960, bf16},
      {"qwen3-32b", "qwen3", 151936, 5120, 25600, 64, 64, 8, 128, own_head, 1e6, 1e-6, 40960, bf16},
      {"smollm2-135m", "llama", 49152, 576, 1536, 30, 9, 3, 64, tied, 1e5, 1e-5, 8192, bf16},
      {"smollm2-360m", "llama", 49152, 960, 2560, 32, 15, 5, 64, tied, 1e5, 1e-5, 8192, bf16},
      {"smollm2-1.7b", "llama", 49152, 2048, 8192, 24, 32, 32, 64, tied, 1.3e5, 1e-5, 8192, bf16},
  };
  return all;
}

LORA_INLINE std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}

LORA_INLINE io::Json preset_config(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (preset.name != name) continue;
    const std::string_view type = preset.model_type;
    const std::string architecture(find_model_type(type)->class_name);
    io::Json json = io::json_object({{"architectures", io::Json::array({architecture})},
                                     {"model_type", std::string(type)},
                                     {"vocab_size", preset.vocab_size},
                                     {"hidden_size", preset.hidden_size},
                                     {"intermediate_size", preset.intermediate_size},
                                     {"num_hidden_layers", preset.num_hidden_layers},
                                     {"num_attention_heads", preset.num_attention_heads},
                                     {"num_key_value_heads", preset.num_key_value_heads},
                                     {"head_dim", preset.head_dim},
                                     {"hidden_act", "silu"},
                                     {"max_position_embeddings", preset.max_position_embeddings},
                                     {"initializer_range", 0.02},
                                     {"rms_norm_eps", preset.rms_norm_eps},
                                     {"rope_theta", preset.rope_theta}});
    if (type != "qwen2") json["attention_bias"] = false;
    json["tie_word_embeddings"] = preset.tied;
    json["torch_dtype"] = std::string(preset.dtype);
    return json;
  }
  std::string names;
  for (const std::string_view known : preset_names()) names += concat(names.empty() ? "" : ", ", known);
  fail<ConfigError>("key model_preset: given ", name, ", allowed: one of ", names);
}

}  // namespace lora::model
