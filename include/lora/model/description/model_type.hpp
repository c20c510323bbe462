#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lora/core/shape.hpp"

// What a model_type of config.json decides: a new one is a line of the table below, where its differences are values.

namespace lora::model {

/// Which layers see a window of the last keys alone, and by which field.
enum class WindowRule {
  none,       ///< a window is refused
  all,        ///< sliding_window counts for all layers
  by_use,     ///< use_sliding_window and layer_types or max_window_layers
  alternate,  ///< layer_types, or all but every second or sixth layer
};

/// A type of model: what its fields are where config.json leaves them out, as in transformers, and what it is without
/// any field.
struct ModelType {
  std::string_view name;
  std::string_view class_name;  ///< transformers'
  std::string_view gguf{};      ///< the architecture of GGUF files; empty: the name
  Index kv_heads = 0;           ///< 0: as many as heads
  Index head_dim = 0;           ///< 0: hidden_size over heads
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e4;
  bool tied = false;
  std::optional<std::int32_t> bos_token_id{};
  std::optional<std::int32_t> eos_token_id{};
  std::optional<std::int32_t> pad_token_id{};
  bool qkv_bias = false;        ///< there without any field
  bool attention_bias = false;  ///< the field counts
  bool mlp_bias = false;        ///< the field counts
  bool qk_norm = false;
  bool fused = false;          ///< q, k and v are one projection, gate and up another
  bool longrope = false;       ///< is the one rope scaling
  Index no_rope_interval = 0;  ///< each of so many layers goes without rotary embedding; 0: none
  WindowRule windows = WindowRule::none;
  Index window = 4096;              ///< 0: none
  Index window_interval = 0;        ///< of alternate: each of so many layers has none
  bool has_interval_field = false;  ///< sliding_window_pattern says that number
  bool window_rope = false;         ///< layers with a window rotate by settings of their own
  bool gemma = false;               ///< norms behind and less 1, GELU, a scaled embedding
  double attention_cap = 0;         ///< 0: there is none
  double logit_cap = 0;
  bool gguf_permutes = false;      ///< rows of q and k heads stand in another order in GGUF files
  bool gguf_windows = false;       ///< which have a place for windows,
  Index gguf_window = 0;           ///< and where they leave it out, this one, as in llama.cpp
  Index gguf_layers_by_width = 0;  ///< with so many layers llama.cpp scales queries by hidden_size over heads
};

inline constexpr ModelType model_types[] = {
    {.name = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .kv_heads = 4,
     .head_dim = 256,
     .tied = true,
     .bos_token_id = 2,
     .eos_token_id = 1,
     .pad_token_id = 0,
     .attention_bias = true,
     .windows = WindowRule::alternate,
     .window_interval = 2,
     .gemma = true,
     .attention_cap = 50,
     .logit_cap = 30,
     .gguf_windows = true,
     .gguf_window = 4096,
     .gguf_layers_by_width = 46},
    {.name = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .kv_heads = 4,
     .head_dim = 256,
     .rope_theta = 1e6,
     .tied = true,
     .bos_token_id = 2,
     .eos_token_id = 1,
     .pad_token_id = 0,
     .attention_bias = true,
     .qk_norm = true,
     .windows = WindowRule::alternate,
     .window_interval = 6,
     .has_interval_field = true,
     .window_rope = true,
     .gemma = true,
     .gguf_windows = true,
     .gguf_layers_by_width = 62},
    {.name = "llama",
     .class_name = "LlamaForCausalLM",
     .bos_token_id = 1,
     .eos_token_id = 2,
     .attention_bias = true,
     .mlp_bias = true,
     .gguf_permutes = true},
    {.name = "mistral",
     .class_name = "MistralForCausalLM",
     .gguf = "llama",
     .kv_heads = 8,
     .bos_token_id = 1,
     .eos_token_id = 2,
     .windows = WindowRule::all,
     .gguf_permutes = true},
    {.name = "phi3",
     .class_name = "Phi3ForCausalLM",
     .rms_norm_eps = 1e-5,
     .bos_token_id = 1,
     .eos_token_id = 32000,
     .pad_token_id = 32000,
     .fused = true,
     .longrope = true,
     .windows = WindowRule::all,
     .window = 0,
     .gguf_windows = true},
    {.name = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .qkv_bias = true,
     .windows = WindowRule::by_use},
    {.name = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_dim = 128,
     .attention_bias = true,
     .qk_norm = true,
     .windows = WindowRule::by_use},
    {.name = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .kv_heads = 4,
     .rope_theta = 2e6,
     .tied = true,
     .bos_token_id = 128000,
     .eos_token_id = 128001,
     .pad_token_id = 128004,
     .attention_bias = true,
     .mlp_bias = true,
     .no_rope_interval = 4,
     .gguf_permutes = true},
};

/// Null for one that is not supported.
constexpr const ModelType* find_model_type(std::string_view name) {
  for (const ModelType& type : model_types)
    if (type.name == name) return &type;
  return nullptr;
}

/// What GGUF calls the architecture: that of llama for mistral as well, which but for windows computes the same.
constexpr std::string_view gguf_architecture(const ModelType& type) {
  return type.gguf.empty() ? type.name : type.gguf;
}

/// The type that has an architecture's name, or else one that is stored as it; null for one that is not supported.
constexpr const ModelType* find_gguf_type(std::string_view architecture) {
  if (const ModelType* const type = find_model_type(architecture); type != nullptr && type->gguf.empty()) return type;
  for (const ModelType& type : model_types)
    if (gguf_architecture(type) == architecture) return &type;
  return nullptr;
}

/// "gemma2, gemma3_text, …"
inline std::string model_type_list() {
  std::string list;
  for (const ModelType& type : model_types) list += (list.empty() ? "" : ", ") + std::string(type.name);
  return list;
}

/// "gemma2, gemma3, …"
inline std::string gguf_architecture_list() {
  std::string list;
  for (const ModelType& type : model_types)
    if (find_gguf_type(gguf_architecture(type)) == &type)
      list += (list.empty() ? "" : ", ") + std::string(gguf_architecture(type));
  return list;
}

}  // namespace lora::model
