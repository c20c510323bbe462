#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/model/description/config_gguf.hpp"
#include "lora/model/description/tensors.hpp"

namespace lora::model {

LORA_INLINE std::vector<TensorInfo> tensors_of(const Config& c) {
  using Kind = TensorInfo::Kind;
  const Index e = c.hidden_size, v = c.vocab_size;
  const bool permuted = type_of(c).gguf_permutes;
  std::vector<TensorInfo> tensors;
  const auto add = [&](TensorInfo tensor) { tensors.push_back(std::move(tensor)); };
  add({"model.embed_tokens.weight", "token_embd.weight", {v, e}, Kind::embedding});
  for (Index layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string prefix = concat("model.layers.", layer, "."), blk = concat("blk.", layer, ".");
    const auto norm = [&](std::string_view name, std::string_view gguf, Index size) {
      add({concat(prefix, name, ".weight"), concat(blk, gguf, ".weight"), {size}, Kind::norm, layer, {}, name});
    };
    const auto project = [&](std::string_view half) {
      for (const ProjectionGroup& group : groups_of(c)) {
        if (group.half != half) continue;
        for (const Projection& p : group.projections) {
          const std::string path = group_path(layer, group) + std::string(p.name);
          const Index heads = permuted && p.gguf_heads != nullptr ? c.*p.gguf_heads : 0;
          const auto part = [&](std::string_view end, Shape shape, Kind kind) {
            add({concat(path, end), concat(blk, p.gguf_name, end), shape, kind, layer, p.name, {}, heads});
          };
          part(".weight", {p.out(c), p.in(c)}, Kind::projection);
          if (c.*p.has_bias) part(".bias", {p.out(c)}, Kind::bias);
        }
      }
    };
    norm("input_layernorm", "attn_norm", e);
    project("self_attn");
    if (c.qk_norm) {
      norm("self_attn.q_norm", "attn_q_norm", c.head_dim);
      norm("self_attn.k_norm", "attn_k_norm", c.head_dim);
    }
    if (c.post_norms) norm("post_attention_layernorm", "post_attention_norm", e);
    norm(mlp_norm(c), "ffn_norm", e);
    project("mlp");
    if (c.post_norms) norm("post_feedforward_layernorm", "post_ffw_norm", e);
  }
  add({"model.norm.weight", "output_norm.weight", {e}, Kind::norm});
  if (!c.tie_word_embeddings) add({"lm_head.weight", "output.weight", {v, e}, Kind::head});
  return tensors;
}

}  // namespace lora::model
