#pragma once

#include <variant>

#include "lora/core/config.hpp"
#include "lora/run/progress.hpp"

namespace lora::run {

LORA_INLINE double seconds_left(Index first_step, Index step, Index total_steps, double seconds) {
  if (step <= first_step) return 0;
  return seconds / static_cast<double>(step - first_step) * static_cast<double>(total_steps - step);
}

LORA_INLINE Facts progress_facts(const StepMetrics& metrics, Index total_steps, double seconds) {
  return {concat("step ", metrics.step, "/", total_steps),
          metrics.skipped ? std::string("skipped") : concat("loss ", fixed(metrics.loss, 4)),
          concat(duration_text(seconds), " left"),
          concat(fixed(metrics.tokens_per_second, 0), " tokens/s"),
          concat("epoch ", fixed(metrics.epoch, 2)),
          concat("lr ", significant(metrics.learning_rate, 3)),
          concat("grad norm ", significant(metrics.grad_norm, 4)),
          concat(fixed(metrics.peak_memory_gib, 2), " GiB")};
}

LORA_INLINE Progress::Progress(const io::Path& training_log, bool append, Index total_steps, Index first_step,
                               bool terminal)
    : bar_(terminal),
      file_(training_log, append),
      total_steps_(total_steps),
      first_step_(first_step),
      start_(Clock::now()),
      redirect_([this](log::Level level, std::string_view text) { say(level, text); }) {}

LORA_INLINE void Progress::take(const Event& event) {
  if (const auto* const done = std::get_if<StepEvent>(&event)) step(done->metrics, done->has_line && done->is_shown);
  if (const auto* const stage = std::get_if<StageEvent>(&event)) total_steps_ = stage->total_steps;
}

LORA_INLINE void Progress::step(const StepMetrics& metrics, bool logged) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const Facts facts =
      progress_facts(metrics, total_steps_, seconds_left(first_step_, metrics.step, total_steps_, seconds));
  if (bar_.terminal()) {
    if (logged) to_file(log::Level::info, to_text(facts));
    bar_.show(share(metrics.step), facts);
  } else if (logged) {
    log::info(to_text(facts));
  }
}

LORA_INLINE double Progress::share(Index step) const {
  return static_cast<double>(step) / static_cast<double>(std::max<Index>(total_steps_, 1));
}

LORA_INLINE void Progress::say(log::Level level, std::string_view text) {
  redirect_.pass_on(level, text);
  to_file(level, text);
}

LORA_INLINE void Progress::to_file(log::Level level, std::string_view text) {
  if (const auto error = file_.write(level, text))
    redirect_.pass_on(log::Level::warning, concat("training.log ends here: ", *error));
}

}  // namespace lora::run
