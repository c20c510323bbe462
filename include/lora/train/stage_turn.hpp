#pragma once

#include <string>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/run/run_state.hpp"
#include "lora/train/account.hpp"
#include "lora/train/learner.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/upcoming.hpp"

namespace lora::train {

/// How one stage of a run follows another.
template <AnyDevice D, class T>
class StageTurn {
 public:
  StageTurn(Prepared& run, Learner<D, T>& learner, run::RunState& state, Upcoming& upcoming)
      : run_(run), learner_(learner), state_(state), upcoming_(upcoming) {}

  /// After a step and its evaluation, or an evaluation that a resumed run makes first: begins the next stage where the
  /// step was its stage's last, by the plan or, if it was `evaluated`, for want of better evaluations.
  void turn(bool evaluated) {
    if (state_.step == 0 || state_.step == run_.plan.total()) return;
    const Index stage = run_.plan.stage_of(state_.step - 1);
    if (state_.evaluation_due || state_.ended_early) {
      learner_.enter(state_.stage);  // as checkpoints have it; it begins once the evaluation is made, or not at all
    } else if (stage != state_.stage) {
      begin();
    } else if (evaluated && is_out_of_patience(state_, run_.config)) {
      end();
    }
  }

 private:
  std::string name() const { return settings::stage_name(run_.config, static_cast<std::size_t>(state_.stage)); }

  /// Begins the stage that the next step belongs to.
  void begin() {
    state_.stage = run_.plan.stage_of(state_.step);
    state_.next_sample = run_.plan.samples_before(state_.step);
    log::info("step ", state_.step, ": ", name(), " begins");
    learner_.enter(state_.stage);
  }

  /// Ends the stage of the last step for want of better evaluations, or with the last stage the run.
  void end() {
    const Index waited = state_.evaluations_without_improvement;
    const std::string why =
        concat(waited, waited == 1 ? " evaluation" : " evaluations", " without improvement of ",
               run_.config.metric_for_best_model, "; the best was step ", state_.step_to_beat(), "'s");
    if (state_.stage + 1 == std::ssize(run_.plan.stages())) {
      log::info("the run ends early: ", why);
      state_.ended_early = state_.out_of_patience = true;
      return;
    }
    log::info(name(), " ends early after step ", state_.step, ": ", why);
    state_.ended_stages.push_back(state_.step);
    upcoming_.forget();
    run_.plan.end_stages(state_.ended_stages);
    begin();
  }

  Prepared& run_;
  Learner<D, T>& learner_;
  run::RunState& state_;
  Upcoming& upcoming_;
};

}  // namespace lora::train
