#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "lora/inputs/records.hpp"
#include "lora/kernel/cost.hpp"
#include "lora/model/decoder/blueprint.hpp"
#include "lora/model/decoder/trainable.hpp"
#include "lora/model/description/layout.hpp"
#include "lora/nn/work.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/plan.hpp"

namespace lora::train {

/// Micro-batches of `count` steps.
struct StepBatches {
  struct Batch {
    Index rows = 0;
    Index tokens = 0;  ///< of its sequences
    Index labeled = 0;
    double pairs = 0;                    ///< of a query and a key that it sees
    Index unit = 0;                      ///< of its step
    std::map<Index, double> windowed{};  ///< the pairs by a layer's window
  };
  std::vector<Batch> batches{};
  Index sequences = 0;
  Index count = 1;
};

/// The first steps of a stage, eight at most. `windows`: of the model's layers.
StepBatches first_batches(Plan& plan, std::size_t stage, const inputs::Records& records, const settings::Config& config,
                          std::span<const Index> windows);

/// Of the rank with the most rows; where gradients leave with each micro-batch, and ranks meet at each, of each round
/// the largest.
StepBatches busiest(const StepBatches& batches, const settings::Config& config, int ranks);

/// What a step takes on average.
struct StepWork {
  double sequences = 0;
  double tokens = 0;  ///< of the sequences
  double rows = 0;    ///< fewer where these have beginnings in common
  double micro_batches = 0;
  nn::Work work{};
};

/// Of steps with these batches, on D in T. `trains`: empty: all that can. `recomputed`: layers with gradient
/// checkpointing. `updates`: the part of what trains that is updated.
template <AnyDevice D, class T>
StepWork step_work(const StepBatches& batches, const nn::Machine& machine, const model::Blueprint& blueprint,
                   const model::Trained& trains, Index recomputed, double updates = 1) {
  const auto shape = model::shape_of<D, T>(blueprint, trains, recomputed);
  StepWork step;
  for (const auto& batch : batches.batches) {
    const nn::WorkPass pass{.rows = batch.rows,
                            .labeled = batch.labeled,
                            .pairs = batch.pairs,
                            .windowed = batch.windowed,
                            .element = sizeof(T),
                            .sum = sizeof(Accum<T>),
                            .tiling = machine.tiling,
                            .whole_rows = kernel::HasCrossEntropy<D, T>};
    step.work += model::training_work(pass, shape);
    step.tokens += static_cast<double>(batch.tokens);
    step.rows += static_cast<double>(batch.rows);
  }
  double trained = 0;
  const auto all = [](std::string_view) { return true; };
  for (const nn::GroupSize& group : blueprint.parameters().sizes(trains ? trains : model::Trained(all)))
    trained += static_cast<double>(group.trained);
  const double share = 1 / static_cast<double>(batches.count);
  step.micro_batches = share * static_cast<double>(batches.batches.size());
  step.sequences = share * static_cast<double>(batches.sequences);
  step.tokens *= share;
  step.rows *= share;
  step.work = share * step.work + nn::update_work(updates * trained, sizeof(T), sizeof(Accum<T>));
  return step;
}

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/step_work.ipp"
#endif
