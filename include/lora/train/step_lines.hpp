#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "lora/run/event.hpp"
#include "lora/train/account.hpp"
#include "lora/train/prepared.hpp"

namespace lora::train {

/// What is told of each step, and whether it has its line in the log: every logging_steps-th and the last one have, and
/// one that an evaluation was interrupted behind gets it from the run that goes on.
class StepLines {
 public:
  using Clock = std::chrono::steady_clock;

  StepLines(const Prepared& run, run::RunState& state, std::function<void(const run::Event&)> tell)
      : run_(run), state_(state), tell_(std::move(tell)) {}

  /// `elapsed`: seconds of the run before now.
  void begin(double elapsed);
  /// Tells of the step that the state has come to, which began at `begin`.
  const run::StepMetrics& add(const StepResult& result, bool applied, double learning_rate, Clock::time_point begin);
  /// Tells the last step's line, unless it has one. `shown`: where a bar or the like is, too.
  void tell_last(bool shown);
  /// The last step's line, where it was not told; of a run that goes on from such a step it is set.
  std::optional<run::StepMetrics> unlogged{};
  const run::Throughput& speed() const { return speed_; }

 private:
  const Prepared& run_;
  run::RunState& state_;
  std::function<void(const run::Event&)> tell_;
  run::StepMetrics last_{};
  run::Throughput speed_;
  Clock::time_point begin_{};  // of the run, were it not resumed
};

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/step_lines.ipp"
#endif
