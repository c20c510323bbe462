#pragma once

#include <algorithm>

#include "lora/core/config.hpp"
#include "lora/forecast/run_forecast.hpp"

namespace lora::forecast {

LORA_INLINE StepBatches full_batches(const settings::Config& config) {
  const inputs::MicroBatchLimit limit = inputs::micro_batch_limit(config);
  const Index length = config.cutoff_len;
  const Index together = limit.tokens > 0 ? std::max<Index>(1, limit.tokens / length) : limit.sequences;
  StepBatches result{.sequences = config.sequences_per_step()};
  for (Index left = result.sequences; left > 0; left -= together) {
    const Index count = std::min(together, left), rows = count * length;
    result.batches.push_back(
        {rows, rows - count,  // the first token of a sequence has no label
         static_cast<double>(count) * static_cast<double>(length) * static_cast<double>(length + 1) / 2});
  }
  return result;
}

LORA_INLINE StepBatches first_batches(train::Plan& plan, std::size_t stage, const inputs::Records& records,
                                      const settings::Config& config) {
  constexpr Index most = 8;
  const Index begin = plan.begin_of(stage), end = std::min(plan.end_of(stage), begin + most);
  StepBatches result{.count = std::max<Index>(1, end - begin)};
  for (Index step = begin; step < end; ++step) {
    const auto units = train::batches_of(records, plan.at(step), comm::Units{0, config.step_units});
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

}  // namespace lora::forecast
