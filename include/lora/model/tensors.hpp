#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/model/config.hpp"

namespace lora::model {

/// The projections of a layer in their order, which are those that an adapter can target.
constexpr std::array<std::string_view, 7> projection_names = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                              "gate_proj", "up_proj", "down_proj"};

/// Where a projection of a layer stands in the model: "model.layers.3.self_attn.q_proj".
inline std::string module_path(Index layer, std::string_view projection) {
  const bool attention =
      projection == "q_proj" || projection == "k_proj" || projection == "v_proj" || projection == "o_proj";
  return concat("model.layers.", layer, attention ? ".self_attn." : ".mlp.", projection);
}

/// One tensor of a model.
struct TensorInfo {
  enum class Kind { embedding, norm, projection, bias, head };

  std::string name;  ///< Hugging Face's, as in model.safetensors
  std::string gguf_name;
  Shape shape;  ///< (O, I), or (n) of a norm or bias
  Kind kind;
  Index layer = -1;               ///< or -1 outside of the layers
  std::string_view projection{};  ///< of projection_names, for projections and their biases
  std::string_view norm{};        ///< of a layer's norm: "input_layernorm", "self_attn.q_norm", …
  /// GGUF's llama files hold each q and k head's rows as (pair, half) instead of (half, pair): the number of heads to
  /// put back in order there, 0 where rows are in order.
  Index gguf_heads = 0;
};

/// Calls f(TensorInfo) for every tensor of a model, each storage once (a tied head is the embedding), in the order of
/// the model. Loading, merging, saving, forecasts and names of GGUF files follow this one list.
template <class F>
void for_each_tensor(const Config& c, F&& f) {
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
  f(TensorInfo{"model.embed_tokens.weight", "token_embd.weight", {v, e}, Kind::embedding});
  for (Index layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string prefix = concat("model.layers.", layer, "."), blk = concat("blk.", layer, ".");
    const auto norm = [&](std::string_view name, std::string_view gguf, Index size) {
      f(TensorInfo{concat(prefix, name, ".weight"), concat(blk, gguf, ".weight"), {size}, Kind::norm, layer, {}, name});
    };
    const auto project = [&](std::size_t i) {
      const Projection& p = projections[i];
      const std::string path = module_path(layer, projection_names[i]);
      f(TensorInfo{path + ".weight",
                   concat(blk, p.gguf, ".weight"),
                   {p.out, p.in},
                   Kind::projection,
                   layer,
                   projection_names[i],
                   {},
                   p.heads});
      if (p.bias)
        f(TensorInfo{path + ".bias",
                     concat(blk, p.gguf, ".bias"),
                     {p.out},
                     Kind::bias,
                     layer,
                     projection_names[i],
                     {},
                     p.heads});
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
  f(TensorInfo{"model.norm.weight", "output_norm.weight", {e}, Kind::norm});
  if (!c.tie_word_embeddings) f(TensorInfo{"lm_head.weight", "output.weight", {v, e}, Kind::head});
}

/// All of them.
inline std::vector<TensorInfo> tensors_of(const Config& config) {
  std::vector<TensorInfo> tensors;
  for_each_tensor(config, [&](TensorInfo tensor) { tensors.push_back(std::move(tensor)); });
  return tensors;
}

/// Numbers of the model, in all of its tensors.
inline Index parameters_of(const Config& config) {
  Index count = 0;
  for_each_tensor(config, [&](const TensorInfo& tensor) { count += tensor.shape.count(); });
  return count;
}

}  // namespace lora::model
