#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

#include "lora/kernel/buffers.hpp"
#include "lora/model/description/adapter_config.hpp"
#include "lora/model/description/computable.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/nn/objective.hpp"
#include "lora/nn/param_table.hpp"
#include "lora/nn/stack.hpp"
#include "lora/nn/work.hpp"

namespace lora::model {

/// A model and what of it may train, before anything is loaded: what forecasts are made from. A Decoder of the same
/// config, adapter and choice has these parameters, and takes that memory.
struct Blueprint {
  Config config{};
  std::function<DType(const TensorInfo&)> stored{};  ///< how its files have a tensor
  std::optional<AdapterConfig> adapter{};
  Index b_group = 0;                                ///< as Decoder::attach has it
  std::function<bool(const TensorInfo&)> chosen{};  ///< of the model's own tensors, as Decoder has it; empty: none
  bool shares_by_layer = false;                     ///< ranks share out what trains layer by layer
  bool shares_values = false;                       ///< and its values
  int forming_layers = 1;                           ///< as the device of the run has it
  bool values_on_host = false;                      ///< these lie on the host beside the device

  /// Whether a tensor of the model's own may train.
  bool may_train(const TensorInfo& info) const {
    return (adapter && adapter->trains_whole(info)) || (chosen && chosen(info));
  }
  /// What may train, in the order of a Decoder's store.
  nn::ParamTable parameters() const;
};

/// Of a model whose files are there, and outlive it.
Blueprint blueprint_of(const Source& source);

/// Which tensors train now, by their names in files; empty: all that may.
using Trained = std::function<bool(std::string_view)>;

/// The type that a tensor has where products read it: the device's, or what the host makes of it.
template <AnyDevice D, class T>
DType dtype_on_device(const TensorInfo& info, DType stored) {
  if constexpr (D::reads_host_memory) {
    return stored;
  } else {
    const bool stays = block_elements(stored) > 1 ? stays_quantized<D>(info, stored) : D::decodes(stored);
    return stays ? stored : dtype_of<T>;
  }
}

/// What of the memory of a Decoder depends on what it is.
struct DecoderShape {
  nn::StackShape stack{};
  nn::HeadShape head{};
  bool embedding_trains = false;
};

/// `decodes`: whether products can't read a tensor as it lies, unless it may train. Layers [0, recomputed) are
/// checkpointed.
DecoderShape shape_of(const Blueprint& blueprint, const std::function<bool(const TensorInfo&)>& decodes,
                      const Trained& trains, Index recomputed);

/// The same for a device and a type. Throws   ConfigError as check_computable
template <AnyDevice D, class T>
DecoderShape shape_of(const Blueprint& blueprint, const Trained& trains = {}, Index recomputed = 0) {
  check_computable<D, T>(blueprint.config);
  const auto decodes = [&](const TensorInfo& info) {
    return !stores<T>(dtype_on_device<D, T>(info, blueprint.stored(info)));
  };
  return shape_of(blueprint, decodes, trains, recomputed);
}

/// What bounds the buffers of kernels in a pass of so many rows. `trees`: sequences may have some of them in common.
kernel::PassExtents extents_of(const DecoderShape& shape, Index rows, bool trees = false);

/// What Decoder::train_micro_batch takes of the arena.
/// Shapes   N `rows`, of which n `labeled`
template <AnyDevice D, class T>
nn::Footprint training_footprint(const nn::Machine& machine, const DecoderShape& shape, Index rows, Index labeled) {
  const nn::PassShape pass{machine, rows, true, labeled};
  nn::Footprint result = nn::Stack<D, T>::footprint(pass, shape.stack, nn::Keep::all, shape.embedding_trains);
  result.scratch = std::max(result.scratch, nn::Objective<D, T>::footprint(machine, shape.head, labeled, true));
  result.scratch += nn::Pass<D, T>::footprint(pass, labeled) + 2 * pass.rows_of<T>(shape.stack.width);
  return result;
}

/// What Decoder::evaluate does.
/// Shapes   as above
template <AnyDevice D, class T>
nn::Footprint evaluation_footprint(const nn::Machine& machine, const DecoderShape& shape, Index rows, Index labeled) {
  const nn::PassShape pass{machine, rows, false, labeled};
  nn::Footprint result = nn::Stack<D, T>::footprint(pass, shape.stack, nn::Keep::nothing);
  const Index scored = nn::largest_row_tile(labeled, machine.tiling.head_rows);
  result.scratch = std::max(result.scratch, nn::Objective<D, T>::footprint(machine, shape.head, scored, false));
  result.scratch += nn::Pass<D, T>::footprint(pass, labeled) + pass.rows_of<T>(shape.stack.width);
  return result;
}

/// What Decoder::train_micro_batch asks of a device.
inline nn::Work training_work(const nn::WorkPass& pass, const DecoderShape& shape) {
  return nn::training_work(pass, shape.stack, shape.embedding_trains) + nn::training_work(pass, shape.head);
}

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/decoder/blueprint.ipp"
#endif
