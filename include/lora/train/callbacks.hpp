#pragma once

#include <utility>

#include "lora/train/ongoing.hpp"
#include "lora/train/verdict.hpp"

namespace lora::train {

/// Calls the functions that a program gave a run (RunOptions), and has ranks agree on what follows.
template <AnyDevice D, class T>
class Callbacks {
 public:
  explicit Callbacks(Ongoing<D, T>& run) : run_(run) {}

  void see_step(const run::StepMetrics& metrics) { call(run_.prepared.options.on_step, metrics); }
  void see_evaluation(const model::Evaluation& evaluation) { call(run_.prepared.options.on_evaluation, evaluation); }
  /// Whether an evaluation that is due is wanted on this rank.
  bool want_evaluation() {
    bool wanted = true;
    const auto& asks = run_.prepared.options.evaluates;
    if (asks) with_running([&](Running& running) { wanted = asks(running); });
    return wanted;
  }

  /// The one place where ranks agree on what to do next. Every rank calls it, and the run ends early if a callback of
  /// any rank has ended it since.
  Verdict agree(Verdict own = {}) {
    own.finishes = std::exchange(finishes_, false);
    const Verdict all = agreed(run_.comm, own);
    if (all.finishes && !run_.is_over()) run_.state.ended_early = true;
    return all;
  }

 private:
  template <class Metrics>
  void call(const Callback<Metrics>& callback, const Metrics& metrics) {
    if (callback) with_running([&](Running& running) { callback(metrics, running); });
  }

  template <class F>
  void with_running(const F& f) {
    Running running(RunModel<D, T>{run_.dev, run_.learner.decoder()}, run_.prepared.data.text(), run_.state,
                    run_.prepared.plan.total(), run_.comm);
    f(running);
    finishes_ = finishes_ || running.finishes();
  }

  Ongoing<D, T>& run_;
  bool finishes_ = false;  // a callback of this rank has ended the run
};

}  // namespace lora::train
