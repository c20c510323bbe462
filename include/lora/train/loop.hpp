#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/format.hpp"
#include "lora/run/event.hpp"
#include "lora/train/account.hpp"
#include "lora/train/learner.hpp"
#include "lora/train/measure.hpp"
#include "lora/train/non_finite.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/saving.hpp"
#include "lora/train/stage_turn.hpp"
#include "lora/train/step_lines.hpp"
#include "lora/train/upcoming.hpp"
#include "lora/train/verdict.hpp"

namespace lora::train {

/// The steps of a run, and what follows from each: an evaluation, the next stage, a checkpoint, an end. Every rank goes
/// through it, and all of them alike.
template <AnyDevice D, class T>
class Loop {
  using Units = std::span<const std::vector<data::Batch>>;

 public:
  /// All of these outlive it. `tell` gets the events of the run; on one rank only it does anything with them.
  Loop(D& dev, comm::Communicator<D>& comm, Prepared& run, Learner<D, T>& learner, Saving<D, T>& saving,
       run::RunState& state, std::function<void(const run::Event&)> tell)
      : dev_(dev),
        comm_(comm),
        run_(run),
        learner_(learner),
        saving_(saving),
        state_(state),
        tell_(std::move(tell)),
        lines_(run, state, tell_),
        upcoming_(run.plan, run.data.train(), learner.stepper().own_units()),
        stages_(run, learner, state, upcoming_) {}

  /// The last step's line of the log, where a run was stopped before it had one.
  void has_unlogged(run::StepMetrics metrics) { lines_.unlogged = std::move(metrics); }
  const run::Throughput& speed() const { return lines_.speed(); }

  /// Goes on to the end of the run, or until the stop flag is set; the value of that, or 0. `elapsed`: seconds of the
  /// run before now. `evaluates`: before the first step; `resumed`: an evaluation that was interrupted.
  int run(double elapsed, bool evaluates, bool resumed) {
    lines_.begin(elapsed);
    int stopped_by = 0;
    if (evaluates) {
      follow(true);
      if (state_.evaluation_due) stopped_by = agree({.stopped_by = run_.options.stop_flag()}).stopped_by;
      if (state_.evaluation_due != resumed) save();  // the state is not what is on disk
    }
    while (!is_over() && stopped_by == 0) {
      step();
      const bool best = follow(evaluation_due());
      const bool goes_on = !is_over() || state_.evaluation_due;  // one that has reached its end is not stopped
      stopped_by = agree({.stopped_by = goes_on ? run_.options.stop_flag() : 0}).stopped_by;
      const Index every = run_.config.save_steps;
      if (is_over() || best || stopped_by != 0 || (every > 0 && state_.step % every == 0)) save();
    }
    return stopped_by;
  }

 private:
  bool is_over() const { return state_.ended_early || state_.step == run_.plan.total(); }

  /// The one place where ranks agree on what to do next.
  Verdict agree(Verdict own) {
    own.finishes = std::exchange(finishes_, false);
    const Verdict all = agreed(comm_, own);
    if (all.finishes && state_.step < run_.plan.total()) state_.ended_early = true;
    return all;
  }

  /// Calls f(Running&), which may end the run: `agree` says whether it did.
  template <class F>
  void call(const F& f) {
    Running running(RunModel<D, T>{dev_, learner_.decoder()}, run_.data.text(), state_, run_.plan.total(), comm_);
    f(running);
    finishes_ = finishes_ || running.finishes();
  }

  void save() {
    state_.unlogged = state_.evaluation_due && lines_.unlogged ? run::to_json(*lines_.unlogged) : io::Json();
    tell_(run::SavingEvent{state_.step});
    saving_.checkpoint(state_, learner_.stepper());
  }

  void step() {
    const auto begin = StepLines::Clock::now();
    const ProfileScope whole(dev_, Profile::Kind::step, "step");
    const PreparedStep prepared = [&] {
      const ProfileScope waiting(dev_, Profile::Kind::phase, "data");
      return upcoming_.take(state_.step);
    }();
    const Units units(prepared.units);
    Stepper<D, T>& stepper = learner_.stepper();
    const StepResult result =
        stepper.accumulate(dev_, state_.step, units, state_.loss_scale ? state_.loss_scale->value : 1);
    const auto [applies, failure] = outcome_of(result, units, run_, state_, [this] { return spoiled(); });
    if (!failure.empty()) fail_after_saving(failure);
    if (applies) stepper.update(dev_, result, prepared.plan.learning_rate);
    add_step(state_, result, applies, stepper.updates(dev_), run_.plan);
    count(prepared.plan.step, applies ? units : Units());
    const run::StepMetrics& metrics = lines_.add(result, applies, prepared.plan.learning_rate, begin);
    const auto& on_step = run_.options.on_step;
    if (on_step) call([&](Running& running) { on_step(metrics, running); });
    (void)agree({});
  }

  /// Adds the records of a step that were learned from to what the state counts.
  void count(Index step, Units units) {
    const inputs::RunData& data = run_.data;
    if (const auto part = run_.plan.curriculum_part(step); part)
      add_drawn(state_, *part, comm_, units, [&](Index record) -> const std::string& { return data.label_of(record); });
    add_files(state_, run_.file_names, comm_, units,
              [&](Index record) { return data.train().dataset().file_number(record); });
  }

  std::string spoiled() { return spoiled_weight(dev_, run_.config, run_.source, state_.updates); }

  [[noreturn]] void fail_after_saving(const std::string& what) {
    const std::string cause = spoiled();
    try {
      save();
    } catch (const NonFiniteError& error) {  // the weights hold it already, of the base or since an earlier step
      fail<Error>(what, cause.empty() ? concat("; ", std::string_view(error.what())) : cause,
                  "; there is no sound state to save");
    }
    (void)agree({});  // no rank ends the others before the first has written it
    fail<Error>(what, cause, "; the state before it is ", saving_.checkpoints().folder_of(state_.step).native());
  }

  bool evaluation_due() {
    if (!run_.data.evaluates()) return false;
    const settings::Config& config = run_.config;
    const Index every = config.eval_steps.value_or(config.seeks_best() ? config.save_steps : 0);
    if (!is_over() && (every == 0 || state_.step % every != 0)) return false;
    bool wanted = true;
    const auto& asks = run_.options.evaluates;
    if (asks) call([&](Running& running) { wanted = asks(running); });
    return agree({.evaluates = wanted}).evaluates;
  }

  /// What follows from a step, or comes before the first: an evaluation, and the next stage. True if the model is the
  /// best so far and load_best_model_at_end is set.
  bool follow(bool evaluates) {
    const bool best = evaluates && evaluate();
    stages_.turn(evaluates);  // before the checkpoint, which holds what the next stage begins with
    tell_(run::PlanEvent{run_.plan.total()});
    if (is_over() && !state_.evaluation_due) lines_.tell_last(true);
    return best;
  }

  /// If it is interrupted, the resumed run evaluates again.
  bool evaluate() {
    auto evaluation = measure(dev_, learner_.decoder(), run_, state_.step, comm_, cut_answers_);
    state_.evaluation_due = agree({.interrupted = !evaluation}).interrupted;
    if (state_.evaluation_due) return false;
    tell_(run::EvaluationEvent{*evaluation});
    say_evaluation(*evaluation);
    const Index stage = state_.step > 0 ? run_.plan.stage_of(state_.step - 1) : 0;
    const bool better = add_evaluation(state_, *evaluation, run_.config, stage);
    const auto& sees = run_.options.on_evaluation;
    if (sees) call([&](Running& running) { sees(*evaluation, running); });
    (void)agree({});
    return better && run_.config.load_best_model_at_end;
  }

  D& dev_;
  comm::Communicator<D>& comm_;
  Prepared& run_;
  Learner<D, T>& learner_;
  Saving<D, T>& saving_;
  run::RunState& state_;
  std::function<void(const run::Event&)> tell_;
  StepLines lines_;
  Upcoming upcoming_;
  StageTurn<D, T> stages_;
  CutAnswers cut_answers_;
  bool finishes_ = false;  // a callback of this rank has ended the run
};

}  // namespace lora::train
