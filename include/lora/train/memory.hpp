#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

#include "lora/model/decoder.hpp"

namespace lora::train {

/// What a micro-batch will need at its peak, in bytes, from the shapes alone.
struct MemoryForecast {
  double weights = 0;      ///< the model's, mapped from its files
  double activations = 0;  ///< kept for backward
  double workspace = 0;    ///< of the largest stage

  double total() const { return weights + activations + workspace; }
};

/// Bytes of the files that hold the model's weights.
inline double weight_bytes(const model::Source& source) {
  if (source.gguf()) return static_cast<double>(std::filesystem::file_size(source.path()));
  double bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source.path()))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<double>(entry.file_size());
  return bytes;
}

/// Of a model whose layers [0, `recomputed`) are checkpointed.
/// Shapes   N `rows`, of which n `labelled`; letters as in the design
template <Device D, class T>
MemoryForecast forecast_memory(model::Decoder<D, T>& decoder, double weight_bytes, Index rows, Index labelled,
                               Index recomputed) {
  const model::Config& c = decoder.config();
  const model::AdapterConfig& adapter = decoder.adapter();
  const auto d = [](Index value) { return static_cast<double>(value); };
  const double t = sizeof(T), a = sizeof(Accum<T>);
  const double n = d(rows), e = d(c.hidden_size), f = d(c.intermediate_size), layers = d(c.num_hidden_layers);
  const double q = d(c.num_attention_heads * c.head_dim), qkv = q + 2 * d(c.num_key_value_heads * c.head_dim);
  double ranks = 0;  // ΣR of a layer
  for (const auto name : model::projection_names) ranks += d(adapter.rank_of(0, name).rank);

  const double kept = n * (q * t + d(c.num_attention_heads) * a);  // attention's output and row sums
  const double norms = c.qk_norm ? n * d(c.num_attention_heads + c.num_key_value_heads) * a : 0;
  const double layer = kept + norms + n * ((e + qkv + 2 * f + ranks) * t + 2 * a);
  MemoryForecast forecast;
  forecast.weights = weight_bytes;
  const double again = d(std::min(recomputed, c.num_hidden_layers));
  forecast.activations = layers * n * e * t + again * kept + (layers - again) * layer + (again > 0 ? layer : 0);

  const bool dropout = adapter.dropout > 0;
  const bool widens = !stores<T>(decoder.head().weight().dtype());
  const double mlp = n * 2 * f * t + (dropout ? n * f * t : 0) + (widens ? 2 * e * f * t : 0);
  const double attention = n * (2 * qkv + q) * t + (dropout ? n * e * t : 0);
  const double head = 3 * d(labelled) * e * t + d(decoder.head().scratch_bytes(labelled, true));
  forecast.workspace = 2 * n * e * t + std::max(head, 3 * n * e * t + std::max(mlp, attention));
  return forecast;
}

}  // namespace lora::train
