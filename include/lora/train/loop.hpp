#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "lora/train/callbacks.hpp"
#include "lora/train/evaluations.hpp"
#include "lora/train/ongoing.hpp"
#include "lora/train/run_step.hpp"
#include "lora/train/stage_turn.hpp"
#include "lora/train/step_lines.hpp"
#include "lora/train/upcoming.hpp"

namespace lora::train {

/// The steps of a run, and what follows from each: an evaluation, the next stage, a checkpoint, an end. Every rank goes
/// through it, and all of them alike.
template <AnyDevice D, class T>
class Loop {
 public:
  explicit Loop(Ongoing<D, T>& run)
      : run_(run), upcoming_(run.prepared.plan, run.prepared.data.train(), run.learner.stepper().own_units()) {}

  /// The last step's line of the log, where a run was stopped before it had one.
  void has_unlogged(run::StepMetrics metrics) { lines_.unlogged = std::move(metrics); }
  const run::Throughput& speed() const { return lines_.speed(); }

  /// Goes on to the end of the run, or until the stop flag is set; the value of that, or 0. `elapsed`: seconds of the
  /// run before now. `evaluates`: before the first step; `resumed`: an evaluation that was interrupted.
  int run(double elapsed, bool evaluates, bool resumed) {
    run::RunState& state = run_.state;
    lines_.begin(elapsed);
    int stopped_by = 0;
    if (evaluates) {
      follow(true);
      if (state.evaluation_due) stopped_by = callbacks_.agree({.stopped_by = stop_flag()}).stopped_by;
      if (state.evaluation_due != resumed) save();  // the state is not what is on disk
    }
    while (!run_.is_over() && stopped_by == 0) {
      if (const std::string failure = step_.make(); !failure.empty()) fail_after_saving(failure);
      const bool best = follow(evaluations_.are_due());
      const bool goes_on = !run_.is_over() || state.evaluation_due;  // one that has reached its end is not stopped
      stopped_by = callbacks_.agree({.stopped_by = goes_on ? stop_flag() : 0}).stopped_by;
      const Index every = run_.config().save_steps;
      if (run_.is_over() || best || stopped_by != 0 || (every > 0 && state.step % every == 0)) save();
    }
    return stopped_by;
  }

 private:
  int stop_flag() const { return run_.prepared.options.stop_flag(); }

  /// What follows from a step, or comes before the first: an evaluation, and the next stage. True if the model is the
  /// best so far and load_best_model_at_end is set.
  bool follow(bool evaluates) {
    const bool best = evaluates && evaluations_.make();
    stages_.turn(evaluates);  // before the checkpoint, which holds what the next stage begins with
    if (run_.is_over() && !run_.state.evaluation_due) lines_.tell_last(true);
    return best;
  }

  void save() {
    run_.state.unlogged = run_.state.evaluation_due && lines_.unlogged ? run::to_json(*lines_.unlogged) : io::Json();
    run_.tell(run::SavingEvent{run_.state.step});
    run_.saving.checkpoint(run_.state, run_.learner.stepper());
  }

  [[noreturn]] void fail_after_saving(const std::string& what) {
    const std::string cause = step_.cause();
    try {
      save();
    } catch (const NonFiniteError& error) {  // the weights hold it already, of the base or since an earlier step
      fail<Error>(what, cause.empty() ? concat("; ", std::string_view(error.what())) : cause,
                  "; there is no sound state to save");
    }
    (void)callbacks_.agree();  // no rank ends the others before the first has written it
    fail<Error>(what, cause, "; the state before it is ",
                run_.saving.checkpoints().folder_of(run_.state.step).native());
  }

  Ongoing<D, T>& run_;
  StepLines lines_{run_.prepared, run_.state, run_.tell};
  Upcoming upcoming_;
  Callbacks<D, T> callbacks_{run_};
  RunStep<D, T> step_{run_, callbacks_, lines_, upcoming_};
  Evaluations<D, T> evaluations_{run_, callbacks_};
  StageTurn<D, T> stages_{run_, upcoming_};
};

}  // namespace lora::train
