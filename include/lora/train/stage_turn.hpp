#pragma once

#include <string>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/run/event.hpp"
#include "lora/run/run_state.hpp"
#include "lora/train/account.hpp"
#include "lora/train/ongoing.hpp"
#include "lora/train/upcoming.hpp"

namespace lora::train {

/// How one stage of a run follows another.
template <AnyDevice D, class T>
class StageTurn {
 public:
  StageTurn(Ongoing<D, T>& run, Upcoming& upcoming) : run_(run), upcoming_(upcoming) {}

  /// After a step and its evaluation, or an evaluation that a resumed run makes first: begins the next stage where the
  /// step was its stage's last, by the plan or, if it was `evaluated`, for want of better evaluations.
  void turn(bool evaluated) {
    const run::RunState& state = run_.state;
    if (state.step == 0 || state.step == plan().total()) return;
    if (state.evaluation_due || state.ended_early) {
      run_.learner.enter(state.stage);  // as checkpoints have it; it begins once the evaluation is made, or not at all
    } else if (plan().stage_of(state.step - 1) != state.stage) {
      begin();
    } else if (evaluated && is_out_of_patience(state, run_.config())) {
      end();
    }
  }

 private:
  Plan& plan() { return run_.prepared.plan; }
  std::string name() const { return settings::stage_name(run_.config(), static_cast<std::size_t>(run_.state.stage)); }

  /// Begins the stage that the next step belongs to.
  void begin() {
    run::RunState& state = run_.state;
    state.stage = plan().stage_of(state.step);
    state.next_sample = plan().samples_before(state.step);
    log::info("step ", state.step, ": ", name(), " begins");
    run_.learner.enter(state.stage);
    run_.tell(run::StageEvent{state.stage, plan().total()});
  }

  /// Ends the stage of the last step for want of better evaluations, or with the last stage the run.
  void end() {
    run::RunState& state = run_.state;
    const Index waited = state.evaluations_without_improvement;
    const std::string why =
        concat(waited, waited == 1 ? " evaluation" : " evaluations", " without improvement of ",
               run_.config().metric_for_best_model, "; the best was step ", state.step_to_beat(), "'s");
    if (state.stage + 1 == std::ssize(plan().stages())) {
      log::info("the run ends early: ", why);
      state.ended_early = state.out_of_patience = true;
      return;
    }
    log::info(name(), " ends early after step ", state.step, ": ", why);
    state.ended_stages.push_back(state.step);
    upcoming_.forget();
    plan().end_stages(state.ended_stages);
    begin();
  }

  Ongoing<D, T>& run_;
  Upcoming& upcoming_;
};

}  // namespace lora::train
