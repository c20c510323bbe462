#pragma once

#include <string>
#include <variant>

#include "lora/core/scalar.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/run/metrics.hpp"

namespace lora::run {

/// A step has been done. If an evaluation after the step was interrupted, the event comes once the resumed run has
/// finished that evaluation.
struct StepEvent {
  const StepMetrics& metrics;
  bool has_line = false;  ///< logging_steps asks for a line in the log
  bool is_shown = false;  ///< the line is also printed; false for a skipped step, for which a warning was printed
};

struct EvaluationEvent {
  const model::Evaluation& evaluation;
};

/// A later stage of the run begins with the next step. The plan has this many steps from now on, fewer than before
/// where the stage before it has ended early.
struct StageEvent {
  Index stage;  ///< its number, from 0
  Index total_steps;
};

/// A checkpoint is about to be written. What was told before must be on the disk first.
struct SavingEvent {
  Index step;
};

/// The run is over, and all its other files are there.
struct FinishedEvent {};

/// The events of a run, in order, from its first step on. Only rank 0 emits them. Warnings are none: they are logged
/// where they are found, on every rank, and a run's log is among what listens (core/log.hpp).
using Event = std::variant<StepEvent, EvaluationEvent, StageEvent, SavingEvent, FinishedEvent>;

/// What becomes of events: a file, a progress bar, a picture.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  virtual void take(const Event& event) = 0;
};

}  // namespace lora::run
