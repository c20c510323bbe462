#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/paths.hpp"
#include "lora/run/event.hpp"
#include "lora/run/line_stream.hpp"
#include "lora/run/metrics_log.hpp"
#include "lora/run/progress.hpp"
#include "lora/run/tensorboard_log.hpp"
#include "lora/settings/config.hpp"
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

  /// Whatever may keep it from writing and can be known before anything changes.   Throws   IoError
  static void expect_writable(const settings::Config& config) {
    if (config.reports_to("jsonl")) run::LineStream::expect_open(STDOUT_FILENO, standard_output);
  }

  /// From now on, what is logged is written to training.log too. `resumes`: behind what is there.
  Output(const settings::Config& config, io::Path folder, bool resumes, Index total_steps, Index first_step,
         bool draws_bar)
      : folder_(std::move(folder)),
        writes_events_(config.reports_to("tensorboard")),
        streams_lines_(config.reports_to("jsonl")),
        progress_(folder_ / "training.log", resumes, total_steps, first_step, draws_bar) {}

  /// The first step is about to be made.
  void begin(const std::optional<Kept>& kept) {
    progress_.begin();
    using Lines = std::optional<run::MetricsLog::Kept>;
    using Events = std::optional<run::TensorBoardLog::Kept>;
    sinks_.push_back(std::make_unique<run::MetricsLog>(folder_, kept ? Lines(kept->lines) : Lines()));
    if (writes_events_)
      sinks_.push_back(std::make_unique<run::TensorBoardLog>(folder_, kept ? Events(kept->events) : Events()));
    else if (kept && io::is_there(folder_ / "tensorboard"))
      (void)run::TensorBoardLog(folder_, kept->events);  // those of steps that are made again go
    if (streams_lines_) sinks_.push_back(std::make_unique<run::LineStream>(STDOUT_FILENO, standard_output));
    sinks_.push_back(std::make_unique<Pictures>(folder_));  // of what the log has: behind it
  }

  void take(const run::Event& event) override {
    for (const auto& sink : sinks_) sink->take(event);
    progress_.take(event);
  }

 private:
  static constexpr std::string_view standard_output = "standard output";

  io::Path folder_;
  bool writes_events_, streams_lines_;
  run::Progress progress_;
  std::vector<std::unique_ptr<run::Sink>> sinks_;
};

}  // namespace lora::train
