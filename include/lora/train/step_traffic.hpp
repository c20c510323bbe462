#pragma once

#include <string_view>
#include <vector>

#include "lora/nn/param_table.hpp"

namespace lora::train {

/// What a rank sends to the others in a step, or gets from them, of one kind.
struct Traffic {
  /// "layers" (frozen), "gradients", "last gradients" (of those that leave by layer what backward ends with), "norm",
  /// "summed gradients" or "values" (once a step, or of what is in no layer), "values of layers", "counts and losses"
  std::string_view what;
  std::string_view collective;  ///< "all-to-all" or "all-gather"
  double calls = 0;
  double sent = 0, received = 0;  ///< bytes
  /// What a device with links of its own computes meanwhile: anything, where layers come ahead of their use; backward,
  /// which forms the next layer's gradients; or nothing.
  enum class Beside { nothing, backward, anything } beside = Beside::nothing;
};

/// What decides it.
struct TrafficBasis {
  std::vector<nn::GroupSize> sizes{};  ///< of what trains
  int ranks = 1;
  Index units = 1;
  Index zero_stage = 0;
  std::size_t element = 4;            ///< bytes of a gradient, and of a value
  std::size_t product = 4;            ///< bytes of a value as products read it
  std::size_t sum = 8;                ///< bytes of a sum over many numbers
  std::vector<std::size_t> layers{};  ///< bytes of each that is frozen, where ranks gather it; none of one that trains
  Index depth = 0;                    ///< layers of the model
  int slots = 2;                      ///< layers that a device has room for
  Index first_trained = 0;            ///< the lowest layer that trains, where backward ends
  std::size_t piece = 0;              ///< bytes of each rank that a call gathers at most; 0: any number
  Index files = 0;                    ///< whose records are counted
};

/// How often each layer is gathered by forward and backward of so many micro-batches, into slots that keep what they
/// have until the room is needed. `there`: whether there is anything to be gathered, of each; `warm`: passes that were
/// made before.
std::vector<Index> gathers_of(const std::vector<bool>& there, int slots, Index first_trained, Index passes, Index warm);

/// Of one rank in a step that is neither evaluated nor saved. Gathered layers are those of steps after the first, whose
/// passes begin where the last one has ended. What a device's collectives add, to fill blocks up, is not counted.
std::vector<Traffic> step_traffic(const TrafficBasis& basis, int rank);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/step_traffic.ipp"
#endif
