#pragma once

#include "lora/train/account.hpp"
#include "lora/train/answers.hpp"
#include "lora/train/callbacks.hpp"
#include "lora/train/measure.hpp"
#include "lora/train/ongoing.hpp"

namespace lora::train {

/// The evaluations of a run: when one is made, and what comes of it.
template <AnyDevice D, class T>
class Evaluations {
 public:
  Evaluations(Ongoing<D, T>& run, Callbacks<D, T>& callbacks) : run_(run), callbacks_(callbacks) {}

  /// Whether one follows from the step that was done.
  bool are_due() {
    if (!run_.prepared.data.evaluates()) return false;
    const settings::Config& config = run_.config();
    const Index every = config.eval_steps.value_or(config.seeks_best() ? config.save_steps : 0);
    if (!run_.is_over() && (every == 0 || run_.state.step % every != 0)) return false;
    return callbacks_.agree({.evaluates = callbacks_.want_evaluation()}).evaluates;
  }

  /// Evaluates; if that is interrupted, the resumed run does it again. True if the model is the best so far and
  /// load_best_model_at_end is set.
  bool make() {
    run::RunState& state = run_.state;
    auto evaluation = measure(run_.dev, run_.learner.decoder(), run_.prepared, state.step, run_.comm, cut_answers_);
    state.evaluation_due = callbacks_.agree({.interrupted = !evaluation}).interrupted;
    if (state.evaluation_due) return false;
    run_.tell(run::EvaluationEvent{*evaluation});
    say_evaluation(*evaluation);
    const Index stage = state.step > 0 ? run_.prepared.plan.stage_of(state.step - 1) : 0;
    const bool better = add_evaluation(state, *evaluation, run_.config(), stage);
    callbacks_.see_evaluation(*evaluation);
    (void)callbacks_.agree();
    return better && run_.config().load_best_model_at_end;
  }

 private:
  Ongoing<D, T>& run_;
  Callbacks<D, T>& callbacks_;
  CutAnswers cut_answers_;
};

}  // namespace lora::train
