#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/data/encode.hpp"
#include "lora/inputs/records.hpp"
#include "lora/model/decoder.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/train/answers.hpp"

namespace lora::train {

/// Predicted peak memory of a micro-batch, or of an evaluation batch, in bytes, from the shapes alone.
struct MemoryForecast {
  double weights = 0;      ///< the model's, mapped from its files
  double activations = 0;  ///< saved for backward; in an evaluation the widest rows
  double workspace = 0;    ///< of the largest stage

  double total() const { return weights + activations + workspace; }
};

/// Bytes of the model's weights as they are stored.
double weight_bytes(const model::Source& source);

/// Bytes of them that lie in the memory of the run's device, or that it maps: of streamed layers the device's room for
/// them, and blocks decoded where the host does that.
template <AnyDevice D, class T>
double weight_bytes(const model::Decoder<D, T>& decoder, const model::Source& source) {
  if constexpr (D::reads_host_memory) {
    return weight_bytes(source);
  } else {
    const auto& streaming = decoder.streaming();
    double bytes = streaming ? static_cast<double>(streaming->device) : 0;
    for (const model::TensorInfo& info : model::tensors_of(source.config())) {
      if (streaming && info.kind == model::TensorInfo::Kind::projection) continue;
      const DType stored = source.dtype_of(info);
      const bool vector = info.shape.rank() == 1,
                 decoded = block_elements(stored) > 1 ? !model::stays_quantised<D>(info, stored) : !D::decodes(stored);
      const Index count = info.shape.count(), each = vector ? sizeof(Accum<T>) : sizeof(T);
      bytes += static_cast<double>(vector || decoded ? count * each : bytes_of(stored, count));
    }
    return bytes;
  }
}

/// Bytes of what trains, beside the model's weights as they are stored.
struct TrainedMemory {
  double masters = 0;    ///< values in Accum<T>
  double copies = 0;     ///< what products read, where T is narrower
  double gradients = 0;  ///< of a step of one unit
  double moments = 0;    ///< the optimizer's, of the rank with the largest part

  double total() const { return masters + copies + gradients + moments; }
};

/// Of parameters of these sizes, with the optimizer's state shared out among `ranks`.
template <class T>
TrainedMemory trained_memory(const std::vector<nn::GroupSize>& sizes, int ranks = 1) {
  TrainedMemory memory;
  for (const nn::GroupSize& group : sizes) {
    const auto parts = comm::even_parts(group.trained / kernel::sum_block, kernel::sum_block, ranks);
    Index largest = 0;
    for (std::size_t i = 1; i < parts.size(); ++i) largest = std::max(largest, parts[i] - parts[i - 1]);
    memory.masters += static_cast<double>(group.all) * sizeof(Accum<T>);
    memory.gradients += static_cast<double>(group.trained) * sizeof(Accum<T>);
    if (!std::same_as<T, Accum<T>>) memory.copies += static_cast<double>(group.all) * sizeof(T);
    memory.moments += 2 * static_cast<double>(largest) * sizeof(Accum<T>);
  }
  return memory;
}

/// From the description alone, before anything is loaded: for an adapter (null: none) and those of the model's own
/// tensors for which `trains` is true, with the optimizer's state shared out among `ranks`.
template <class T, class Trains>
TrainedMemory forecast_trained(const model::Config& config, const model::AdapterConfig* adapter, const Trains& trains,
                               int ranks = 1) {
  std::vector<nn::GroupSize> groups(2);  // matrices, and what does not decay
  const auto add = [&](std::size_t group, Index count) {
    const Index blocks = (count + kernel::sum_block - 1) / kernel::sum_block * kernel::sum_block;
    groups[group].all += blocks;
    groups[group].trained += blocks;
  };
  Index stacked = 0, in = 0;  // the rows of A of the projections that share an input
  for (const model::TensorInfo& info : model::tensors_of(config)) {
    if (trains(info)) add(info.shape.rank() > 1 ? 0 : 1, info.shape.count());
    if (adapter == nullptr || info.kind != model::TensorInfo::Kind::projection) continue;
    if (info.projection != "k_proj" && info.projection != "v_proj" && info.projection != "up_proj") {
      add(0, stacked * in);
      stacked = 0;
    }
    const Index rank = adapter->rank_of(info.layer, info.projection).rank;
    stacked += rank;
    in = info.shape[1];
    add(0, rank * info.shape[0]);
  }
  add(0, stacked * in);
  return trained_memory<T>(groups, ranks);
}

/// The most that a device has of what trains while a stage begins: values, gradients and the optimizer's state move one
/// kind and group at a time (ParamStore::train, AdamW::follow). The state may lie on the host.
template <AnyDevice D, class T>
double memory_to_move(const std::vector<nn::GroupSize>& before, const std::vector<nn::GroupSize>& now,
                      bool state_on_host) {
  const TrainedMemory old = trained_memory<T>(before), next = trained_memory<T>(now);
  Index largest = 0;
  for (const nn::GroupSize& group : now) largest = std::max(largest, group.all);
  const double values = old.masters + static_cast<double>(largest) * sizeof(Accum<T>);
  // First all of the old, then values that move beside the old moments, then moments that move beside the new rest.
  if (state_on_host) return std::max({old.total() - old.moments, values, next.total() - next.moments});
  const auto moments = static_cast<double>(optim::AdamW<D, T>::moment_bytes_to_follow(before, now));
  return std::max({old.total(), values + old.moments, next.total() - next.moments + moments});
}

/// The adapter that a model has; null if it has none.
template <class Model>
const model::AdapterConfig* adapter_of(Model& decoder) {
  bool any = false;
  model::for_each_factor(decoder, [&](const auto&) { any = true; });
  return any ? &decoder.adapter() : nullptr;
}

/// Whether products of a weight of the layers decode it first.
template <class Model>
bool decodes_projections(Model& decoder) {
  bool any = false;
  for (Index i = 0; i < decoder.stack().size(); ++i) {
    for (auto* group : decoder.stack().layer(i).inner().groups())
      for (std::size_t j = 0; j < group->projections().size(); ++j) any = any || group->linear(j).weight.decodes();
  }
  return any;
}

/// For a model whose layers [0, `recomputed`) are checkpointed. Kernels' own buffers, up to a fifth of the workspace,
/// are not counted. Shapes   N `rows`, of which n `labelled`; letters as in the design
template <AnyDevice D, class T>
MemoryForecast forecast_memory(model::Decoder<D, T>& decoder, double weight_bytes, Index rows, Index labelled,
                               Index recomputed) {
  const model::Config& c = decoder.config();
  const model::AdapterConfig* adapter = adapter_of(decoder);
  const auto d = [](Index value) { return static_cast<double>(value); };
  const double t = sizeof(T), a = sizeof(Accum<T>);
  const double n = d(rows), e = d(c.hidden_size), f = d(c.intermediate_size), layers = d(c.num_hidden_layers);
  const double q = d(c.num_attention_heads * c.head_dim), qkv = q + 2 * d(c.num_key_value_heads * c.head_dim);
  double ranks = 0;  // ΣR of a layer
  if (adapter != nullptr)
    for (const auto name : model::projection_names) ranks += d(adapter->rank_of(0, name).rank);

  const double sums = d(c.num_attention_heads * kernel::Attention<D>::saved_per_head) * a;
  const double kept = n * (q * t + sums);  // attention's output and what its backward needs
  const double norms = c.qk_norm ? n * d(c.num_attention_heads + c.num_key_value_heads) * a : 0;
  const bool dropout = adapter != nullptr && adapter->dropout > 0;
  const kernel::DropoutBytes dropping =
      dropout ? kernel::Elementwise<D>::template dropout_bytes<T>() : kernel::DropoutBytes{};
  const double masks = n * (2 * e + q + f) * dropping.kept;
  const double layer = kept + norms + masks + n * ((e + qkv + 2 * f + ranks) * t + 2 * a);
  MemoryForecast forecast;
  forecast.weights = weight_bytes;
  const double again = d(std::min(recomputed, c.num_hidden_layers));
  forecast.activations = layers * n * e * t + again * kept + (layers - again) * layer + (again > 0 ? layer : 0);

  const bool decodes = decodes_projections(decoder);
  const double input = n * e * t * (dropout ? 2 : 1);  // the norm's output, and what dropout makes of it
  const double apart = kernel::swiglu_backward_in_place<D> ? 0 : 2 * n * f * t;  // gradients of gate and up
  const double mlp =
      apart + std::max(n * f * (t + std::max(dropout ? t : 0, dropping.scratch)) + (decodes ? e * f * t : 0),
                       input + (decodes ? 2 * e * f * t : 0));
  const double attention = n * (q + qkv) * t + std::max(input, c.qk_norm ? n * (q + qkv) / 2 * t : 0);
  const double head = 3 * d(labelled) * e * t + d(decoder.head().scratch_bytes(labelled, true));
  // The stack's output and gradient, and the gradient between a layer's halves; then its widest part, or the head.
  forecast.workspace = 2 * n * e * t + std::max(head, n * e * t + std::max(mlp, attention));
  return forecast;
}

/// For an evaluation, which saves nothing between layers.
/// Shapes   as above
template <AnyDevice D, class T>
MemoryForecast forecast_evaluation(model::Decoder<D, T>& decoder, double weight_bytes, Index rows, Index labelled) {
  const model::Config& c = decoder.config();
  const auto d = [](Index value) { return static_cast<double>(value); };
  const double t = sizeof(T);
  const double n = d(rows), e = d(c.hidden_size), f = d(c.intermediate_size);
  const double q = d(c.num_attention_heads * c.head_dim), kv = d(c.num_key_value_heads * c.head_dim);
  const bool decodes = decodes_projections(decoder);
  const double gate_up = 2 * n * f * t;
  const double mlp = std::max(n * f * t + (decodes ? e * f * t : 0), n * e * t + (decodes ? 2 * e * f * t : 0));
  const double attention = n * (q + (q + 2 * kv) + std::max(e, c.qk_norm ? q + kv : 0)) * t;
  const double head = 2 * d(labelled) * e * t + d(decoder.head().scratch_bytes(labelled, false));
  MemoryForecast forecast;
  forecast.weights = weight_bytes;
  forecast.activations = gate_up;
  // The stack's input and output, a layer's input, output and h; then its widest part, or the head.
  forecast.workspace = n * e * t + std::max(head, 4 * n * e * t + std::max(mlp, attention));
  return forecast;
}

/// Keys and values of the records that are answered together, each of `length` tokens.
template <class T>
double cache_bytes(const model::Config& config, Index length) {
  const Index numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
  return static_cast<double>(answered_together) * static_cast<double>(numbers * length) * sizeof(T);
}

/// The largest micro-batch that a run can have, from the longest records.
struct LargestBatch {
  Index rows = 0;
  Index labelled = 0;  ///< estimated from the share of labelled rows
  Index longest = 0;   ///< record, of an evaluation
};

/// For records that are taken `per_step` at a time.
LargestBatch largest_batch(const data::EncodeSummary& records, const inputs::MicroBatchLimit& limit, Index per_step);

/// The same for an evaluation of `sequences` at a time, which reads longer records in windows.
LargestBatch largest_evaluation(const data::EncodeSummary& records, Index sequences, Index window);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/memory.ipp"
#endif
