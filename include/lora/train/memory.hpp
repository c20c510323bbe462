#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/comm/sum_tree.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/inputs/records.hpp"
#include "lora/model/decoder/blueprint.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/train/answers.hpp"

namespace lora::train {

/// Predicted peak memory of a micro-batch, or of an evaluation batch, in bytes, from the shapes alone.
struct MemoryForecast {
  double weights = 0;      ///< the model's, mapped from its files
  double activations = 0;  ///< saved for backward; in an evaluation the widest rows
  double workspace = 0;    ///< of the largest stage

  MemoryForecast() = default;
  MemoryForecast(double weights_, double activations_, double workspace_)
      : weights(weights_), activations(activations_), workspace(workspace_) {}
  MemoryForecast(double weights_, const nn::Footprint& arena, double kernels)
      : MemoryForecast(weights_, static_cast<double>(arena.low), static_cast<double>(arena.scratch) + kernels) {}

  double total() const { return weights + activations + workspace; }
};

/// What a run's memory is forecast from. Nothing of it needs to be loaded.
struct MemoryBasis {
  model::Blueprint model{};
  nn::Machine machine{};
  double weights = 0;       ///< bytes of them in the memory of the run's device, or that it maps: `weight_bytes`
  double host_weights = 0;  ///< page-locked, of layers that are streamed
  int ranks = 1;            ///< that train together
  double host_loading = 0;  ///< page-locked, while these share layers out

  /// Ranks that share out the optimizer's state, and with zero_stage 2 gradients.
  int shards(const settings::Config& config) const { return config.zero_stage > 0 ? ranks : 1; }
  /// The last rank's: where parts are not even, it has the most of each.
  optim::AdamWShard largest_shard(const settings::Config& config) const { return {shards(config) - 1, shards(config)}; }
};

/// Bytes of a model's weights that lie in the memory of the run's device, or that it maps: of streamed layers the
/// device's room for them, and blocks decoded where the host does that. A device's own memory does not have matrices
/// that may train.
template <AnyDevice D, class T>
double weight_bytes(const model::Blueprint& model, const std::optional<model::LayerStreaming>& streaming = {}) {
  double bytes = streaming ? static_cast<double>(streaming->device) : 0;
  for (const model::TensorInfo& info : model::tensors_of(model.config)) {
    if (!D::reads_host_memory && info.shape.rank() > 1 && model.may_train(info)) continue;
    if (streaming && info.kind == model::TensorInfo::Kind::projection) continue;
    const DType stored = model.stored(info), there = model::dtype_on_device<D, T>(info, stored);
    const bool widened = !D::reads_host_memory && info.shape.rank() == 1;
    const Index count = info.shape.count();
    bytes += static_cast<double>(widened ? count * Index{sizeof(Accum<T>)} : bytes_of(there, count));
  }
  return bytes;
}

/// For a device, to which layers are streamed or not.
template <AnyDevice D, class T>
MemoryBasis memory_basis(D& dev, model::Blueprint model, const std::optional<model::LayerStreaming>& streaming = {}) {
  model.forming_layers = nn::forming_layers<D>;
  const double weights = weight_bytes<D, T>(model, streaming);
  MemoryBasis basis{std::move(model), nn::machine_of(dev), weights};
  if (streaming) basis.host_weights = static_cast<double>(streaming->host);
  if (streaming) basis.host_loading = static_cast<double>(streaming->loading);
  return basis;
}

/// Bytes of what trains, beside the model's weights as they are stored.
struct TrainedMemory {
  double masters = 0;  ///< values in Accum<T>; a share of them where ranks share them out, none of those on the host
  double copies = 0;   ///< what products read, where T is narrower, or the room for layers that come when they are used
  double gradients = 0;  ///< of a step of one unit; where they leave by layer, a share and the room to form a layer's
  double moments = 0;    ///< the optimizer's, of the rank with the largest part

  double total() const { return masters + copies + gradients + moments; }
};

/// Whether gradients leave by layer, to be shared out among `ranks`.
inline bool gives_gradients_away(const std::vector<nn::GroupSize>& sizes, int ranks) {
  return ranks > 1 && std::any_of(sizes.begin(), sizes.end(), [](const auto& group) { return !group.buckets.empty(); });
}

/// Elements of what trains that the rank with the largest shares has.
Index largest_shares(const std::vector<nn::GroupSize>& sizes, int ranks);

/// Of parameters of these sizes, with the optimizer's state shared out among `ranks`.
template <class T>
TrainedMemory trained_memory(const std::vector<nn::GroupSize>& sizes, int ranks = 1) {
  TrainedMemory memory;
  const auto shares = static_cast<double>(largest_shares(sizes, ranks));
  for (const nn::GroupSize& group : sizes) {
    if (!group.on_host)
      memory.masters += static_cast<double>(nn::values_held(group, ranks - 1, ranks)) * sizeof(Accum<T>);
    memory.gradients += static_cast<double>(group.trained) * sizeof(Accum<T>);
    if (!std::same_as<T, Accum<T>> && group.values.empty()) memory.copies += static_cast<double>(group.all) * sizeof(T);
  }
  memory.copies += static_cast<double>(nn::room_for_gathered(nn::gathered_layers(sizes, sizeof(T), sizeof(Accum<T>))));
  if (gives_gradients_away(sizes, ranks))
    memory.gradients = (shares + static_cast<double>(nn::forming_places(sizes).size)) * sizeof(Accum<T>);
  memory.moments = 2 * shares * sizeof(Accum<T>);
  return memory;
}

/// Bytes that the host keeps of values of these sizes, and of what products read of them. `moves`: at most, while what
/// trains changes.
template <class T>
double values_on_host(const std::vector<nn::GroupSize>& sizes, int ranks, bool moves = false) {
  double values = 0, copies = 0, largest = 0;
  for (const nn::GroupSize& group : sizes) {
    if (!group.on_host) continue;
    const auto held = static_cast<double>(nn::values_held(group, ranks - 1, ranks));
    values += held * sizeof(Accum<T>);
    largest = std::max(largest, held * sizeof(Accum<T>));
    if (!std::same_as<T, Accum<T>> && !group.in_full) copies += held * sizeof(T);
  }
  return values + (moves ? std::max(copies, largest) : copies);  // copies go first, and one group is there twice
}

/// Bytes of the sums that a rank holds from the first step on, beside gradients, where steps have `units`.
template <class T>
double sums_memory(const std::vector<nn::GroupSize>& sizes, Index units, int ranks) {
  if (!gives_gradients_away(sizes, ranks)) return trained_memory<T>(sizes).gradients * comm::held_sums(units, ranks);
  const Index brought = nn::most_at_once(sizes, ranks - 1, ranks);  // by each rank's unit
  const Index elements = (comm::held_in_turn(units) - 1) * largest_shares(sizes, ranks) + ranks * brought;
  return static_cast<double>(elements) * sizeof(Accum<T>);
}

/// Bytes of the largest tensor that trains, or where `trains` is empty of all that may: ranks that share the
/// optimizer's state or values out gather one after the other for a checkpoint, and where what trains changes.
template <class T>
double largest_tensor(const nn::ParamTable& params, const model::Trained& trains) {
  const auto told = params.told(trains ? trains : model::Trained([](std::string_view) { return true; }));
  Index largest = 0;
  for (std::size_t i = 0; i < told.size(); ++i)
    if (const auto& storage = params.storages()[i]; told[i]) largest = std::max(largest, storage.rows * storage.cols);
  return static_cast<double>(largest) * sizeof(Accum<T>);
}

/// Bytes of scratch in which what may train of the model's own gets its numbers, one tensor after the other: as it is
/// stored, in memory of a device's own, and where values come by layer in Accum<T>, as whenever it is wanted whole.
template <AnyDevice D, class T>
double scratch_to_start(const model::Blueprint& model) {
  Index most = 0;
  for (const model::TensorInfo& info : model::tensors_of(model.config)) {
    if (!model.may_train(info)) continue;
    const Index count = info.shape.count();
    Index bytes = model.shares_values || model.values_on_host ? count * Index{sizeof(Accum<T>)} : 0;
    if (!D::reads_host_memory && info.shape.rank() > 1)
      bytes += bytes_of(model::dtype_on_device<D, T>(info, model.stored(info)), count);
    most = std::max(most, bytes);
  }
  return static_cast<double>(most);
}

/// The most that a device has of what trains while a stage begins: values, gradients and the optimizer's state move one
/// kind and group at a time (ParamStore::train, AdamW::follow). The state may lie on the host, or be shared out among
/// `ranks`.
template <AnyDevice D, class T>
double memory_to_move(const std::vector<nn::GroupSize>& before, const std::vector<nn::GroupSize>& now,
                      bool state_on_host, int ranks = 1) {
  const TrainedMemory old = trained_memory<T>(before, ranks), next = trained_memory<T>(now, ranks);
  Index largest = 0;
  for (const nn::GroupSize& group : now)
    if (!group.on_host) largest = std::max(largest, nn::values_held(group, ranks - 1, ranks));
  const double values = old.masters + static_cast<double>(largest) * sizeof(Accum<T>);
  // First all of the old, then values that move beside the old moments, then moments that move beside the new rest.
  if (state_on_host) return std::max({old.total() - old.moments, values, next.total() - next.moments});
  const auto moments = static_cast<double>(optim::AdamW<D, T>::moment_bytes_to_follow(before, now, {ranks - 1, ranks}));
  return std::max({old.total(), values + old.moments, next.total() - next.moments + moments});
}

/// For a model whose layers [0, `recomputed`) are checkpointed, and of which that trains now. Activations are exact,
/// and so is the part of the workspace that modules take. That of kernels is bounded by kernel::Buffers: on the
/// processors the workspace is never below the peak, and above it by no more than a third and 0.75 MiB a thread. Shapes
/// N `rows`, of which n `labeled`; letters as in the design. `trees`: sequences may have rows in common
template <AnyDevice D, class T>
MemoryForecast forecast_memory(const MemoryBasis& basis, Index rows, Index labeled, Index recomputed,
                               const model::Trained& trains = {}, bool trees = false) {
  const auto shape = model::shape_of<D, T>(basis.model, trains, recomputed);
  return {basis.weights, model::training_footprint<D, T>(basis.machine, shape, rows, labeled),
          kernel::Buffers<D>::template most<T>(basis.machine.kernels, model::extents_of(shape, rows, trees))};
}

/// For an evaluation, which saves nothing between layers.
/// Shapes   as above
template <AnyDevice D, class T>
MemoryForecast forecast_evaluation(const MemoryBasis& basis, Index rows, Index labeled, bool trees = false) {
  const auto shape = model::shape_of<D, T>(basis.model);
  return {basis.weights, model::evaluation_footprint<D, T>(basis.machine, shape, rows, labeled),
          kernel::Buffers<D>::template most<T>(basis.machine.kernels, model::extents_of(shape, rows, trees))};
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
  Index labeled = 0;    ///< estimated from the share of labeled rows
  Index longest = 0;    ///< record, of an evaluation
  bool shares = false;  ///< sequences may have rows in common
};

/// For records that are taken `at_once`, as a unit of a step has them, and share rows as `shared` says.
LargestBatch largest_batch(const data::EncodeSummary& records, const inputs::MicroBatchLimit& limit, Index at_once,
                           const inputs::Sharing& shared = {});

/// The same for an evaluation of `sequences` at a time, which reads longer records in windows.
LargestBatch largest_evaluation(const data::EncodeSummary& records, Index sequences, Index window);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/memory.ipp"
#endif
