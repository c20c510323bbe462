#pragma once

#include <span>
#include <string>
#include <vector>

#include "lora/train/account.hpp"
#include "lora/train/callbacks.hpp"
#include "lora/train/non_finite.hpp"
#include "lora/train/ongoing.hpp"
#include "lora/train/step_lines.hpp"
#include "lora/train/upcoming.hpp"

namespace lora::train {

/// One step of a run: its records, their gradient, the update, and what the state and the log have of it.
template <AnyDevice D, class T>
class RunStep {
  using Units = std::span<const std::vector<data::Batch>>;

 public:
  RunStep(Ongoing<D, T>& run, Callbacks<D, T>& callbacks, StepLines& lines, Upcoming& upcoming)
      : run_(run), callbacks_(callbacks), lines_(lines), upcoming_(upcoming) {}

  /// Returns   why the run ends here, with the state before the step; empty if it goes on
  std::string make() {
    const auto begin = StepLines::Clock::now();
    const ProfileScope whole(run_.dev, Profile::Kind::step, "step");
    run::RunState& state = run_.state;
    const PreparedStep prepared = [&] {
      const ProfileScope waiting(run_.dev, Profile::Kind::phase, "data");
      return upcoming_.take(state.step);
    }();
    const Units units(prepared.units);
    Stepper<D, T>& stepper = run_.learner.stepper();
    const StepResult result =
        stepper.accumulate(run_.dev, state.step, units, state.loss_scale ? state.loss_scale->value : 1);
    const auto [applies, failure] = outcome_of(result, units, run_.prepared, state, [this] { return cause(); });
    if (!failure.empty()) return failure;
    if (applies) stepper.update(run_.dev, result, prepared.plan.learning_rate);
    add_step(state, result, applies, stepper.updates(run_.dev), run_.prepared.plan);
    count(prepared.plan.step, applies ? units : Units());
    callbacks_.see_step(lines_.add(result, applies, prepared.plan.learning_rate, begin));
    (void)callbacks_.agree();
    return {};
  }

  /// What of the weights may have made a loss or gradient NaN or infinite, as the end of a sentence.
  std::string cause() { return spoiled_weight(run_.dev, run_.config(), run_.prepared.source, run_.state.updates); }

 private:
  // Adds the records of a step that were learned from to what the state counts.
  void count(Index step, Units units) {
    const Prepared& prepared = run_.prepared;
    if (const auto part = prepared.plan.curriculum_part(step); part)
      add_drawn(run_.state, *part, run_.comm, units,
                [&](Index record) -> const std::string& { return prepared.data.label_of(record); });
    add_files(run_.state, prepared.file_names, run_.comm, units,
              [&](Index record) { return prepared.data.train().dataset().file_number(record); });
  }

  Ongoing<D, T>& run_;
  Callbacks<D, T>& callbacks_;
  StepLines& lines_;
  Upcoming& upcoming_;
};

}  // namespace lora::train
