#pragma once

#include <algorithm>

#include "lora/core/config.hpp"
#include "lora/forecast/run_forecast.hpp"

namespace lora::forecast {

LORA_INLINE train::StepBatches full_batches(const settings::Config& config) {
  const inputs::MicroBatchLimit limit = inputs::micro_batch_limit(config);
  const Index length = config.cutoff_len;
  const Index together = limit.tokens > 0 ? std::max<Index>(1, limit.tokens / length) : limit.sequences;
  train::StepBatches result{.sequences = config.sequences_per_step()};
  for (Index left = result.sequences; left > 0; left -= together) {
    const Index count = std::min(together, left), rows = count * length;
    result.batches.push_back(
        {rows, rows - count,  // the first token of a sequence has no label
         static_cast<double>(count) * static_cast<double>(length) * static_cast<double>(length + 1) / 2});
  }
  return result;
}

}  // namespace lora::forecast
