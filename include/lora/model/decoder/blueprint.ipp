#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/model/decoder/blueprint.hpp"

namespace lora::model {

LORA_INLINE nn::ParamTable Blueprint::parameters() const {
  nn::ParamTable table;
  if (shares_by_layer || shares_values) table.share_by_layer(forming_layers, shares_values);
  if (values_on_host) table.keep_values_on_host();
  for (Index layer = 0; adapter && layer < config.num_hidden_layers; ++layer)
    for (const ProjectionGroup& group : groups_of(config)) {
      const std::string prefix = group_path(layer, group);
      Index ranks = 0;
      for (const Projection& p : group.projections) ranks += adapter->rank_of(layer, p.name).rank;
      if (ranks == 0) continue;
      const std::size_t a = table.add({ranks, group.in(config), 0, layer});
      Index first = 0;
      for (const Projection& p : group.projections) {
        const Index rank = adapter->rank_of(layer, p.name).rank;
        if (rank == 0) continue;
        const std::size_t b = table.add({rank, p.out(config), b_group, layer});
        const std::string path = prefix + std::string(p.name);
        table.name({path + ".lora_A", a, first, rank});
        table.name({path + ".lora_B", b, 0, rank, true});
        first += rank;
      }
    }
  for (const TensorInfo& info : tensors_of(config)) {
    if (!may_train(info)) continue;
    const bool matrix = info.shape.rank() > 1;
    const Index rows = matrix ? info.shape[0] : 1;
    const std::size_t storage =
        table.add({rows, info.shape.count() / rows, matrix ? 0 : 1, shared_layer(config, info), !matrix});
    table.name({info.name, storage, 0, rows});
  }
  return table;
}

LORA_INLINE Blueprint blueprint_of(const Source& source) {
  return {.config = source.config(), .stored = [&source](const TensorInfo& info) { return source.dtype_of(info); }};
}

LORA_INLINE DecoderShape shape_of(const Blueprint& blueprint, const std::function<bool(const TensorInfo&)>& decodes,
                                  const Trained& trains, Index recomputed) {
  const Config& c = blueprint.config;
  const auto now = [&](const std::string& name) { return !trains || trains(name); };
  struct Tensor {
    bool decodes, trains;
  };
  std::map<std::string, Tensor, std::less<>> tensors;
  for (const TensorInfo& info : tensors_of(c)) {
    const bool may = blueprint.may_train(info);
    tensors.emplace(info.name, Tensor{info.shape.rank() > 1 && !may && decodes(info), may && now(info.name)});
  }
  const auto trained = [&](const std::string& name) {
    const auto found = tensors.find(name);
    return found != tensors.end() && found->second.trains;
  };
  const auto group_of = [&](Index layer, const ProjectionGroup& group) {
    nn::LoraLinearShape shape{.in = group.in(c), .drops = blueprint.adapter && blueprint.adapter->dropout > 0};
    for (const Projection& p : group.projections) {
      const std::string path = group_path(layer, group) + std::string(p.name);
      const Index rank = blueprint.adapter ? blueprint.adapter->rank_of(layer, p.name).rank : 0;
      shape.trains_a = shape.trains_a || (rank > 0 && now(path + ".lora_A"));
      shape.projections.push_back({.out = p.out(c),
                                   .decodes = tensors.at(path + ".weight").decodes,
                                   .bias = c.*p.has_bias,
                                   .trains_weight = trained(path + ".weight"),
                                   .trains_bias = trained(path + ".bias"),
                                   .rank = rank,
                                   .trains_b = rank > 0 && now(path + ".lora_B")});
    }
    return shape;
  };
  DecoderShape shape{.stack = {.width = c.hidden_size}};
  for (Index i = 0; i < c.num_hidden_layers; ++i) {
    const std::string prefix = concat("model.layers.", i, ".");
    const auto norm = [&](const char* name) { return trained(concat(prefix, name, ".weight")); };
    const bool first_norm = norm("input_layernorm");
    nn::SelfAttentionShape attention{.width = c.hidden_size,
                                     .heads = c.num_attention_heads,
                                     .kv_heads = c.num_key_value_heads,
                                     .head_dim = c.head_dim,
                                     .window = c.windows[static_cast<std::size_t>(i)],
                                     .qk_norm = c.qk_norm};
    attention.norm_trains = first_norm;
    attention.norms_train = first_norm || norm("self_attn.q_norm") || norm("self_attn.k_norm");
    attention.qkv_proj = group_of(i, groups_of(c)[0]);
    attention.o_proj = group_of(i, groups_of(c)[1]);
    attention.post_norm = c.post_norms;
    attention.post_norm_trains = c.post_norms && norm("post_attention_layernorm");
    nn::MlpShape mlp{c.hidden_size, trained(concat(prefix, mlp_norm(c), ".weight")), group_of(i, groups_of(c)[2]),
                     group_of(i, groups_of(c)[3])};
    mlp.gate = c.gate;
    mlp.post_norm = c.post_norms;
    mlp.post_norm_trains = norm("post_feedforward_layernorm");
    shape.stack.layers.push_back({std::move(attention), std::move(mlp), i < recomputed});
  }
  const char* const embedding = "model.embed_tokens.weight";
  const Tensor head = tensors.at(c.tie_word_embeddings ? embedding : "lm_head.weight");
  shape.head = {c.vocab_size, c.hidden_size, head.decodes, head.trains, c.logit_cap > 0};
  shape.embedding_trains = trained(embedding);
  return shape;
}

LORA_INLINE kernel::PassExtents extents_of(const DecoderShape& shape, Index rows, bool trees) {
  kernel::PassExtents extents{.rows = rows, .trees = trees};
  for (const nn::BlockShape& layer : shape.stack.layers) {
    extents.heads = layer.attention.heads;
    extents.kv_heads = layer.attention.kv_heads;
    extents.head_dim = layer.attention.head_dim;
    if (layer.mlp.gate != kernel::Gate::silu) extents.gelu = layer.mlp.down_proj.in;
    for (const nn::LoraLinearShape* group :
         {&layer.attention.qkv_proj, &layer.attention.o_proj, &layer.mlp.gate_up_proj, &layer.mlp.down_proj}) {
      extents.widest = std::max(extents.widest, group->in);
      Index factors = (group->rank() + 7) / 8 * 8 * group->in;
      for (const auto& p : group->projections) {
        extents.widest = std::max(extents.widest, p.out);
        factors += (p.rank + 7) / 8 * 8 * p.out;
      }
      extents.factors = std::max(extents.factors, group->rank() > 0 ? factors : 0);
    }
  }
  return extents;
}

}  // namespace lora::model
