#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/forecast/run_forecast.hpp"

namespace lora::forecast {

LORA_INLINE train::StepBatches full_batches(const settings::Config& config, std::span<const Index> windows) {
  const inputs::MicroBatchLimit limit = inputs::micro_batch_limit(config);
  const Index length = config.cutoff_len;
  const Index together = limit.tokens > 0 ? std::max<Index>(1, limit.tokens / length) : limit.sequences;
  const std::vector<kernel::Segment> sequence{{0, length}};
  const auto of_sequence = [&](Index window) { return kernel::visible_pairs(sequence, sequence, window); };
  train::StepBatches result{.sequences = config.sequences_per_step()};
  const Index most = std::min(together, result.sequences);
  if (constexpr Index tokens = Index{1} << 31; most > tokens / length)
    fail<ConfigError>("key ", limit.tokens > 0 && most > 1 ? "max_tokens_per_micro_batch" : "cutoff_len",
                      ": a micro-batch of ", most, most == 1 ? " sequence" : " sequences", " of ", length,
                      " tokens; allowed: at most ", tokens, " tokens in one");
  if (constexpr Index count = 10'000'000; result.sequences / most > count)
    fail<ConfigError>("key gradient_accumulation_steps: a step of ", result.sequences, " sequences, ", most,
                      " in a micro-batch; allowed: at most ", count, " micro-batches");
  for (Index unit = 0; unit < config.step_units; ++unit) {
    const auto own = data::StepPlan::unit_of({0, result.sequences}, unit, config.step_units);
    for (Index left = own.end - own.begin; left > 0; left -= together) {
      const Index count = std::min(together, left), rows = count * length;
      result.batches.push_back({rows, rows, rows - count,  // the first token of a sequence has no label
                                static_cast<double>(count) * of_sequence(0), unit});
      for (const Index window : windows)
        if (window > 0) result.batches.back().windowed[window] = static_cast<double>(count) * of_sequence(window);
    }
  }
  return result;
}

LORA_INLINE std::vector<train::Traffic> most_traffic(const train::TrafficBasis& basis) {
  std::vector<train::Traffic> most;
  double sent = -1;
  for (const int rank : {0, basis.ranks - 1}) {  // with the smallest parts, and the largest
    auto traffic = train::step_traffic(basis, rank);
    double all = 0;
    for (const train::Traffic& one : traffic) all += one.sent;
    if (all <= sent) continue;
    sent = all;
    most = std::move(traffic);
  }
  return most;
}

}  // namespace lora::forecast
