#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lora/io/paths.hpp"
#include "lora/run/event.hpp"
#include "lora/run/metrics_log.hpp"
#include "lora/run/progress.hpp"
#include "lora/run/tensorboard_log.hpp"
#include "lora/train/pictures.hpp"

namespace lora::train {

/// What a run writes and shows while it goes, on the first rank: each thing is a sink of the run's events.
class Output final : public run::Sink {
 public:
  /// What a resumed run keeps of its logs: found out before anything changes, cut off when it begins.
  struct Kept {
    run::MetricsLog::Kept lines{};
    run::TensorBoardLog::Kept events{};
  };
  static Kept kept_through(const io::Path& folder, Index step) {
    return {run::MetricsLog::kept_through(folder, step), run::TensorBoardLog::kept_through(folder, step)};
  }

  /// From now on, what is logged is written to training.log too. `resumes`: behind what is there.
  Output(io::Path folder, bool resumes, Index total_steps, Index first_step, bool draws_bar)
      : folder_(std::move(folder)), progress_(folder_ / "training.log", resumes, total_steps, first_step, draws_bar) {}

  /// The first step is about to be made.
  void begin(const std::optional<Kept>& kept) {
    progress_.begin();
    using Lines = std::optional<run::MetricsLog::Kept>;
    using Events = std::optional<run::TensorBoardLog::Kept>;
    sinks_.push_back(std::make_unique<run::MetricsLog>(folder_, kept ? Lines(kept->lines) : Lines()));
    sinks_.push_back(std::make_unique<run::TensorBoardLog>(folder_, kept ? Events(kept->events) : Events()));
    sinks_.push_back(std::make_unique<Pictures>(folder_));  // of what the log has: behind it
  }

  void take(const run::Event& event) override {
    for (const auto& sink : sinks_) sink->take(event);
    progress_.take(event);
  }

 private:
  io::Path folder_;
  run::Progress progress_;
  std::vector<std::unique_ptr<run::Sink>> sinks_;
};

}  // namespace lora::train
