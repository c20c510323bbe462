#pragma once

#include <algorithm>

#include "lora/core/config.hpp"
#include "lora/train/step.hpp"
#include "lora/train/step_work.hpp"

namespace lora::train {

LORA_INLINE StepBatches first_batches(Plan& plan, std::size_t stage, const inputs::Records& records,
                                      const settings::Config& config) {
  constexpr Index most = 8;
  const Index begin = plan.begin_of(stage), end = std::min(plan.end_of(stage), begin + most);
  StepBatches result{.count = std::max<Index>(1, end - begin)};
  for (Index step = begin; step < end; ++step) {
    const auto units = batches_of(records, plan.at(step), comm::Units{0, config.step_units});
    for (const auto& unit : units)
      for (const data::Batch& batch : unit) {
        StepBatches::Batch& one = result.batches.emplace_back(StepBatches::Batch{batch.rows(), batch.labelled});
        result.sequences += batch.sequences();
        for (const kernel::Segment& segment : batch.segments)
          one.pairs += static_cast<double>(segment.size()) * static_cast<double>(segment.size() + 1) / 2;
      }
  }
  return result;
}

}  // namespace lora::train
