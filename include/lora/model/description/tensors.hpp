#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/model/description/layout.hpp"
#include "lora/nn/param_table.hpp"

namespace lora::model::detail {

/// The embedding, by its Hugging Face name.
constexpr std::string_view table_name = "model.embed_tokens.weight";

}  // namespace lora::model::detail

namespace lora::model {

/// One tensor of a model.
struct TensorInfo {
  enum class Kind { embedding, norm, projection, bias, head };

  std::string name;  ///< Hugging Face's, as in model.safetensors
  std::string gguf_name;
  Shape shape;  ///< (O, I), or (n) of a norm or bias
  Kind kind;
  Index layer = -1;               ///< or -1 outside of the layers
  std::string_view projection{};  ///< its name, for projections and their biases
  std::string_view norm{};        ///< of a layer's norm: "input_layernorm", "self_attn.q_norm", …
  /// GGUF's files of llama and smollm3 hold each q and k head's rows as (pair, half) instead of (half, pair): the
  /// number of heads to put back in order there, 0 where rows are in order.
  Index gguf_heads = 0;
};

/// Where row `row` of `rows` stands in a file that keeps `heads` heads as (pair, half): row (head, half, pair) is there
/// row (head, pair, half).
constexpr Index permuted_row(Index row, Index rows, Index heads) {
  const Index width = rows / heads, half = row % width / (width / 2), pair = row % (width / 2);
  return row / width * width + 2 * pair + half;
}

/// Every tensor of a model, each storage once (a tied head is the embedding), in the order of the model. Loading,
/// merging, saving, forecasts and names of GGUF files follow this one list.
std::vector<TensorInfo> tensors_of(const Config& config);

/// The layer that a tensor belongs to where ranks share out what trains: outside of them one that is read before all,
/// or behind them. A tied head is the embedding, and then all of it is one.
inline Index shared_layer(const Config& config, const TensorInfo& info) {
  if (info.layer >= 0) return info.layer;
  const bool before = config.tie_word_embeddings || info.kind == TensorInfo::Kind::embedding;
  return before ? nn::before_layers : nn::behind_layers;
}

/// Adds to the weights of a norm: GGUF files have the sums with Config::norm_offset.
inline void move_weights(std::span<float> weights, double more) {
  if (more == 0) return;
  for (float& weight : weights) weight = static_cast<float>(static_cast<double>(weight) + more);
}

/// Numbers of the model, in all of its tensors.
inline Index parameters_of(const Config& config) {
  Index count = 0;
  for (const TensorInfo& tensor : tensors_of(config)) count += tensor.shape.count();
  return count;
}

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/description/tensors.ipp"
#endif
