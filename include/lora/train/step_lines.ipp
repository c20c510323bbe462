#pragma once

#include "lora/core/config.hpp"
#include "lora/train/step_lines.hpp"

namespace lora::train {

LORA_INLINE void StepLines::begin(double elapsed) {
  begin_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(elapsed));
}

LORA_INLINE const run::StepMetrics& StepLines::add(const StepResult& result, bool applied, double learning_rate,
                                                   Clock::time_point begin) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin).count();
  speed_.add(result.tokens, seconds);
  last_ = metrics_of(state_, result, applied, learning_rate, seconds, run_.plan);
  last_.elapsed_seconds = std::chrono::duration<double>(now - begin_).count();
  unlogged = last_;
  const bool last = state_.step == run_.plan.total();
  if (last || state_.step % run_.config.logging_steps == 0) {
    tell_last(applied || last);
  } else {
    tell_(run::StepEvent{last_});
  }
  return last_;
}

LORA_INLINE void StepLines::tell_last(bool shown) {
  if (!unlogged) return;
  state_.losses_since_line = {};
  tell_(run::StepEvent{*unlogged, true, shown});
  unlogged.reset();
}

}  // namespace lora::train
