#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/model/tensors.hpp"

namespace lora::model {

LORA_INLINE std::vector<TensorInfo> tensors_of(const Config& c) {
  using Kind = TensorInfo::Kind;
  const Index e = c.hidden_size, ffn = c.intermediate_size, v = c.vocab_size;
  const Index q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  struct Projection {
    std::string_view gguf;
    Index out, in;
    bool bias;
    Index heads;
  };
  const bool permuted = c.model_type == "llama";
  const std::array<Projection, 7> projections = {{{"attn_q", q, e, c.qkv_bias, permuted ? c.num_attention_heads : 0},
                                                  {"attn_k", kv, e, c.qkv_bias, permuted ? c.num_key_value_heads : 0},
                                                  {"attn_v", kv, e, c.qkv_bias, 0},
                                                  {"attn_output", e, q, c.o_bias, 0},
                                                  {"ffn_gate", ffn, e, c.mlp_bias, 0},
                                                  {"ffn_up", ffn, e, c.mlp_bias, 0},
                                                  {"ffn_down", e, ffn, c.mlp_bias, 0}}};
  std::vector<TensorInfo> tensors;
  const auto add = [&](TensorInfo tensor) { tensors.push_back(std::move(tensor)); };
  add({"model.embed_tokens.weight", "token_embd.weight", {v, e}, Kind::embedding});
  for (Index layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string prefix = concat("model.layers.", layer, "."), blk = concat("blk.", layer, ".");
    const auto norm = [&](std::string_view name, std::string_view gguf, Index size) {
      add({concat(prefix, name, ".weight"), concat(blk, gguf, ".weight"), {size}, Kind::norm, layer, {}, name});
    };
    const auto project = [&](std::size_t i) {
      const Projection& p = projections[i];
      const std::string path = module_path(layer, projection_names[i]);
      const auto part = [&](std::string_view end, Shape shape, Kind kind) {
        add({concat(path, end), concat(blk, p.gguf, end), shape, kind, layer, projection_names[i], {}, p.heads});
      };
      part(".weight", {p.out, p.in}, Kind::projection);
      if (p.bias) part(".bias", {p.out}, Kind::bias);
    };
    norm("input_layernorm", "attn_norm", e);
    for (std::size_t i = 0; i < 4; ++i) project(i);
    if (c.qk_norm) {
      norm("self_attn.q_norm", "attn_q_norm", c.head_dim);
      norm("self_attn.k_norm", "attn_k_norm", c.head_dim);
    }
    norm("post_attention_layernorm", "ffn_norm", e);
    for (std::size_t i = 4; i < projections.size(); ++i) project(i);
  }
  add({"model.norm.weight", "output_norm.weight", {e}, Kind::norm});
  if (!c.tie_word_embeddings) add({"lm_head.weight", "output.weight", {v, e}, Kind::head});
  return tensors;
}

}  // namespace lora::model
