#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/run/event.hpp"
#include "lora/train/account.hpp"
#include "lora/train/learner.hpp"
#include "lora/train/measure.hpp"
#include "lora/train/non_finite.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/saving.hpp"
#include "lora/train/upcoming.hpp"
#include "lora/train/verdict.hpp"

namespace lora::train {

/// The steps of a run, and what follows from each: an evaluation, the next stage, a checkpoint, an end. Every rank goes
/// through it, and all of them alike.
template <AnyDevice D, class T>
class Loop {
  using Clock = std::chrono::steady_clock;
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
        upcoming_(run.plan, run.data.train(), learner.stepper().own_units()) {}

  /// The last step's line of the log, where a run was stopped before it had one.
  void has_unlogged(run::StepMetrics metrics) { unlogged_ = std::move(metrics); }
  const run::Throughput& speed() const { return speed_; }

  /// Goes on to the end of the run, or until the stop flag is set; the value of that, or 0. `elapsed`: seconds of the
  /// run before now. `evaluates`: before the first step; `resumed`: an evaluation that was interrupted.
  int run(double elapsed, bool evaluates, bool resumed) {
    begin_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(elapsed));
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
    state_.unlogged = state_.evaluation_due && unlogged_ ? run::to_json(*unlogged_) : io::Json();
    tell_(run::SavingEvent{state_.step});
    saving_.checkpoint(state_, learner_.stepper());
  }

  void step() {
    const auto begin = Clock::now();
    const ProfileScope whole(dev_, Profile::Kind::step, "step");
    const PreparedStep prepared = [&] {
      const ProfileScope waiting(dev_, Profile::Kind::phase, "data");
      return upcoming_.take(state_.step);
    }();
    const Units units(prepared.units);
    Stepper<D, T>& stepper = learner_.stepper();
    const StepResult result =
        stepper.accumulate(dev_, state_.step, units, state_.loss_scale ? state_.loss_scale->value : 1);
    const bool applies = is_usable(result, units);
    if (applies) stepper.update(dev_, result, prepared.plan.learning_rate);
    add_step(state_, result, applies, stepper.updates(dev_), run_.plan);
    count(prepared.plan.step, applies ? units : Units());
    tell_step(result, applies, prepared.plan.learning_rate, begin);
  }

  /// Adds the records of a step that were learned from to what the state counts.
  void count(Index step, Units units) {
    const inputs::RunData& data = run_.data;
    if (const auto part = run_.plan.curriculum_part(step); part)
      add_drawn(state_, *part, comm_, units, [&](Index record) -> const std::string& { return data.label_of(record); });
    add_files(state_, run_.file_names, comm_, units,
              [&](Index record) { return data.train().dataset().file_number(record); });
  }

  void tell_step(const StepResult& result, bool applies, double rate, Clock::time_point begin) {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - begin).count();
    speed_.add(result.tokens, seconds);
    run::StepMetrics metrics = train::metrics_of(state_, result, applies, rate, seconds, run_.plan);
    metrics.elapsed_seconds = std::chrono::duration<double>(now - begin_).count();
    const bool last = state_.step == run_.plan.total();
    unlogged_ = metrics;
    if (last || state_.step % run_.config.logging_steps == 0) {
      tell_line(applies || last);
    } else {
      tell_(run::StepEvent{metrics});
    }
    const auto& on_step = run_.options.on_step;
    if (on_step) call([&](Running& running) { on_step(metrics, running); });
    (void)agree({});
  }

  /// Tells the last step's line, unless it has one.
  void tell_line(bool shown) {
    if (!unlogged_) return;
    state_.losses_since_line = {};
    tell_(run::StepEvent{*unlogged_, true, shown});
    unlogged_.reset();
  }

  /// Whether the step's gradient may be applied. If it overflows at a loss scale, the step is skipped; if it is not
  /// finite otherwise, the run stops or the step is skipped, as on_non_finite says.
  bool is_usable(const StepResult& result, Units units) {
    const std::string name = concat("step ", state_.step + 1);
    if (!result.has_labels()) {
      lora::log::warn(name, " has no labeled token and is skipped");
      return false;
    }
    if (result.finite()) return true;
    if (state_.loss_scale && result.overflows() && state_.loss_scale->can_shrink()) {
      lora::log::info(name, ": the gradient overflows at loss scale ", result.loss_scale,
                      "; the step is skipped, and the scale halves");
      ++state_.overflows;
      return false;
    }
    std::string what = describe_non_finite(state_.step + 1, result, units, run_.data.train());
    if (state_.loss_scale) what += "; float16 ends at 65504, dtype bfloat16 and float32 don't";
    if (run_.config.on_non_finite != "skip") fail_after_saving(what);
    lora::log::warn(what, state_.skipped == 0 ? spoiled() : "", "; the step is skipped");
    ++state_.skipped;
    return false;
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
    turn_stage(evaluates);  // before the checkpoint, which holds what the next stage begins with
    tell_(run::PlanEvent{run_.plan.total()});
    if (is_over() && !state_.evaluation_due) tell_line(true);
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

  /// Begins the stage that the next step belongs to.
  void begin_stage() {
    state_.stage = run_.plan.stage_of(state_.step);
    state_.next_sample = run_.plan.samples_before(state_.step);
    lora::log::info("step ", state_.step, ": ",
                    settings::stage_name(run_.config, static_cast<std::size_t>(state_.stage)), " begins");
    learner_.enter(state_.stage);
  }

  /// After a step and its evaluation, or an evaluation that a resumed run makes first: begins the next stage where the
  /// step was its stage's last, by the plan or, if it was `evaluated`, for want of better evaluations.
  void turn_stage(bool evaluated) {
    if (state_.step == 0 || state_.step == run_.plan.total()) return;
    const Index stage = run_.plan.stage_of(state_.step - 1);
    if (state_.evaluation_due || state_.ended_early) {
      learner_.enter(state_.stage);  // as checkpoints have it; it begins once the evaluation is made, or not at all
    } else if (stage != state_.stage) {
      begin_stage();
    } else if (evaluated && is_out_of_patience(state_, run_.config)) {
      end_stage();
    }
  }

  /// Ends the stage of the last step for want of better evaluations, or with the last stage the run.
  void end_stage() {
    const Index waited = state_.evaluations_without_improvement;
    const std::string why =
        concat(waited, waited == 1 ? " evaluation" : " evaluations", " without improvement of ",
               run_.config.metric_for_best_model, "; the best was step ", state_.step_to_beat(), "'s");
    if (state_.stage + 1 == std::ssize(run_.plan.stages())) {
      lora::log::info("the run ends early: ", why);
      state_.ended_early = state_.out_of_patience = true;
      return;
    }
    lora::log::info(settings::stage_name(run_.config, static_cast<std::size_t>(state_.stage)),
                    " ends early after step ", state_.step, ": ", why);
    state_.ended_stages.push_back(state_.step);
    upcoming_.forget();
    run_.plan.end_stages(state_.ended_stages);
    begin_stage();
  }

  D& dev_;
  comm::Communicator<D>& comm_;
  Prepared& run_;
  Learner<D, T>& learner_;
  Saving<D, T>& saving_;
  run::RunState& state_;
  std::function<void(const run::Event&)> tell_;
  Upcoming upcoming_;
  std::optional<run::StepMetrics> unlogged_;  // of the last step, while it has no line in the log
  CutAnswers cut_answers_;
  run::Throughput speed_;
  Clock::time_point begin_{};  // of the run, were it not resumed
  bool finishes_ = false;      // a callback of this rank has ended the run
};

}  // namespace lora::train
