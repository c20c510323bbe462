#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/train/step.hpp"
#include "lora/train/step_work.hpp"

namespace lora::train {

LORA_INLINE StepBatches first_batches(Plan& plan, std::size_t stage, const inputs::Records& records,
                                      const settings::Config& config, std::span<const Index> windows) {
  constexpr Index most = 8;
  const Index begin = plan.begin_of(stage), end = std::min(plan.end_of(stage), begin + most);
  StepBatches result{.count = std::max<Index>(1, end - begin)};
  for (Index step = begin; step < end; ++step) {
    const auto units = batches_of(records, plan.at(step), comm::Units{0, config.step_units});
    for (std::size_t unit = 0; unit < units.size(); ++unit)
      for (const data::Batch& batch : units[unit]) {
        StepBatches::Batch& one = result.batches.emplace_back(StepBatches::Batch{.rows = batch.rows(),
                                                                                 .tokens = batch.sequence_tokens,
                                                                                 .labeled = batch.labeled,
                                                                                 .unit = static_cast<Index>(unit)});
        result.sequences += batch.sequences();
        one.pairs = kernel::visible_pairs(batch.segments, batch.segments);
        for (const Index window : windows)
          if (window > 0 && !one.windowed.contains(window))
            one.windowed[window] = kernel::visible_pairs(batch.segments, batch.segments, window);
      }
  }
  return result;
}

LORA_INLINE StepBatches busiest(const StepBatches& batches, const settings::Config& config, int ranks) {
  StepBatches most{.sequences = batches.sequences, .count = batches.count};
  if (config.zero_stage > 1 && ranks > 1) {
    Index last_unit = -1, last_round = -1;
    for (const auto& batch : batches.batches) {
      const Index round = batch.unit / ranks;
      const bool follows = batch.unit > last_unit && round == last_round;  // else another round, or another step
      if (!follows)
        most.batches.push_back(batch);
      else if (batch.rows > most.batches.back().rows)
        most.batches.back() = batch;
      last_unit = batch.unit;
      last_round = round;
    }
    return most;
  }
  Index most_rows = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    const comm::OwnUnits own = comm::units_of(config.step_units, rank, ranks);
    StepBatches of_rank{.sequences = batches.sequences, .count = batches.count};
    Index rows = 0;
    for (const auto& batch : batches.batches) {
      if (!own.has(batch.unit)) continue;
      of_rank.batches.push_back(batch);
      rows += batch.rows;
    }
    if (rows > std::exchange(most_rows, std::max(most_rows, rows))) most = std::move(of_rank);
  }
  return most;
}

}  // namespace lora::train
