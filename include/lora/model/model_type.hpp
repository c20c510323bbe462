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
  std::optional<std::int32_t> pad_token_id{};
  bool qkv_bias = false;        ///< there without any field
  bool attention_bias = false;  ///< the field counts
  bool mlp_bias = false;        ///< the field counts
  bool qk_norm = false;
  bool fused = false;     ///< q, k and v are one projection, gate and up another
  bool longrope = false;  ///< is the one rope scaling
  WindowRule windows = WindowRule::none;
  Index window = 4096;  ///< 0: none
  bool gemma = false;   ///< norms behind and less 1, GELU, a scaled embedding, caps
};

inline constexpr ModelType model_types[] = {
    {.name = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .kv_heads = 4,
     .head_dim = 256,
     .tied = true,
     .pad_token_id = 0,
     .attention_bias = true,
     .windows = WindowRule::alternate,
     .gemma = true},
    {.name = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .kv_heads = 4,
     .head_dim = 256,
     .rope_theta = 1e6,
     .tied = true,
     .pad_token_id = 0,
     .attention_bias = true,
     .qk_norm = true,
     .windows = WindowRule::alternate,
     .gemma = true},
    {.name = "llama", .class_name = "LlamaForCausalLM", .attention_bias = true, .mlp_bias = true},
    {.name = "mistral", .class_name = "MistralForCausalLM", .gguf = "llama", .kv_heads = 8, .windows = WindowRule::all},
    {.name = "phi3",
     .class_name = "Phi3ForCausalLM",
     .rms_norm_eps = 1e-5,
     .pad_token_id = 32000,
     .fused = true,
     .longrope = true,
     .windows = WindowRule::all,
     .window = 0},
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
     .pad_token_id = 128004,
     .attention_bias = true,
     .mlp_bias = true},
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

}  // namespace lora::model
