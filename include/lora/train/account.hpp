#pragma once

#include <cmath>
#include <limits>

#include "lora/run/checkpoint.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/metrics.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/plan.hpp"
#include "lora/train/step.hpp"

// What a step that was done adds to the state of its run, and what is logged of it.

namespace lora::train {

/// `applied`: the step's gradient was applied, which made `updates` in all.
inline void add_step(run::RunState& state, const StepResult& result, bool applied, Index updates, const Plan& plan) {
  ++state.step;
  state.evaluation_due = false;
  state.updates = updates;
  state.next_sample = plan.samples_before(state.step);
  state.stage = plan.stage_of(state.step);
  state.total_tokens += result.tokens;
  if (applied) {
    state.last_loss = result.loss;
    state.losses.add(result.loss);
    state.losses_since_line.add(result.loss);
  }
}

/// Of the step that was added last and took `seconds`.
inline run::StepMetrics metrics_of(const run::RunState& state, const StepResult& result, bool applied,
                                   double learning_rate, double seconds, const Plan& plan) {
  run::StepMetrics metrics;
  metrics.skipped = !applied;
  metrics.step = state.step;
  metrics.epoch = plan.epoch_after(state.step);
  metrics.loss = result.has_labels() ? result.loss : std::numeric_limits<double>::quiet_NaN();
  metrics.mean_loss = state.losses_since_line.mean();
  metrics.learning_rate = learning_rate;
  metrics.grad_norm = result.grad_norm;
  metrics.tokens = result.tokens;
  metrics.labelled_tokens = result.labelled;
  metrics.tokens_per_second = seconds > 0 ? static_cast<double>(result.tokens) / seconds : 0;
  metrics.peak_memory_gib = run::peak_memory_gib();
  return metrics;
}

/// Whether an evaluation is the best so far. `config`: by which metric, and when the run ends early.
/// Source   transformers, EarlyStoppingCallback
inline bool add_evaluation(run::RunState& state, const run::EvalMetrics& metrics, const settings::Config& config) {
  state.last_eval_loss = metrics.loss;
  if (state.step == 0) return false;  // before training, for comparison
  const bool by_loss = config.metric_for_best_model == "eval_loss";
  const double value = by_loss ? metrics.loss : metrics.token_accuracy;
  const auto gain = [&] { return by_loss ? *state.best_metric - value : value - *state.best_metric; };
  const bool better = std::isfinite(metrics.loss) && (!state.best_metric || gain() > 0);
  const bool improved = better && (!state.best_metric || gain() > config.early_stopping_threshold);
  state.evaluations_without_improvement = improved ? 0 : state.evaluations_without_improvement + 1;
  if (better) {
    state.best_metric = value;
    state.best_eval_loss = metrics.loss;
    state.best_step = state.step;
  }
  return better;
}

}  // namespace lora::train
