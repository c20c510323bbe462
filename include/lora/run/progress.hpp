#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/run/event.hpp"
#include "lora/run/log_file.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/status_line.hpp"

namespace lora::run {

/// How long the steps up to `total_steps` take if those from `first_step` to `step` took `seconds`; 0 for none.
double seconds_left(Index first_step, Index step, Index total_steps, double seconds);

/// The facts of a progress line, `seconds` from the end.
Facts progress_facts(const StepMetrics& metrics, Index total_steps, double seconds);

/// Writes its thread's log to training.log too until destroyed. On a terminal a progress bar is updated with
/// every step; elsewhere, and in the file, each logged step is a line.
class Progress final : public Sink {
 public:
  Progress(const io::Path& training_log, bool append, Index total_steps, Index first_step = 0,
           bool terminal = ::isatty(STDERR_FILENO) == 1);

  /// Shows the bar before the first step, which may take long.
  void begin() { bar_.show(share(first_step_), {concat("step ", first_step_, "/", total_steps_)}); }

  void take(const Event& event) override;

 private:
  using Clock = std::chrono::steady_clock;

  // `logged`: writes the step's line too, not only the bar.
  void step(const StepMetrics& metrics, bool logged);

  double share(Index step) const;

  void say(log::Level level, std::string_view text);

  void to_file(log::Level level, std::string_view text);

  StatusLine bar_;
  LogFile file_;
  Index total_steps_;
  Index first_step_;
  Clock::time_point start_;
  log::Redirect redirect_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/progress.ipp"
#endif
