#pragma once

#include "lora/core/config.hpp"
#include "lora/train/account.hpp"

namespace lora::train {

LORA_INLINE void add_step(run::RunState& state, const StepResult& result, bool applied, Index updates,
                          const Plan& plan) {
  ++state.step;
  state.evaluation_due = false;
  state.updates = updates;
  state.next_sample = plan.samples_before(state.step);
  state.stage = plan.stage_of(state.step);
  state.total_tokens += result.tokens;
  state.shared_tokens += result.tokens - result.computed_tokens;
  if (applied) {
    state.last_loss = result.loss;
    state.losses.add(result.loss);
    state.losses_since_line.add(result.loss);
  }
  if (state.loss_scale && (applied || result.overflows()) && (applied || state.loss_scale->can_shrink()))
    state.loss_scale->add_step(!applied);
}

LORA_INLINE std::vector<std::pair<std::string, double>> shares_of(
    const std::vector<std::pair<std::string, Index>>& counts) {
  Index sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  std::vector<std::pair<std::string, double>> shares;
  for (const auto& [name, count] : counts)
    shares.emplace_back(name, sum > 0 ? static_cast<double>(count) / static_cast<double>(sum) : 0);
  return shares;
}

LORA_INLINE run::StepMetrics metrics_of(const run::RunState& state, const StepResult& result, bool applied,
                                        double learning_rate, double seconds, const Plan& plan) {
  run::StepMetrics metrics;
  metrics.skipped = !applied;
  metrics.step = state.step;
  if (plan.stages().size() > 1) metrics.stage = plan.stage_of(state.step - 1) + 1;
  metrics.epoch = plan.epoch_after(state.step);
  metrics.loss = result.has_labels() ? result.loss : std::numeric_limits<double>::quiet_NaN();
  metrics.mean_loss = state.losses_since_line.mean();
  metrics.learning_rate = learning_rate;
  metrics.grad_norm = result.grad_norm;
  if (state.loss_scale) metrics.loss_scale = result.loss_scale;
  metrics.tokens = result.tokens;
  if (result.computed_tokens < result.tokens) metrics.computed_tokens = result.computed_tokens;
  metrics.labeled_tokens = result.labeled;
  metrics.tokens_per_second = seconds > 0 ? static_cast<double>(result.tokens) / seconds : 0;
  metrics.peak_memory_gib = run::peak_memory_gib();
  if (!state.drawn.empty() && state.drawn.back().to_step == state.step)
    metrics.mix = shares_of(state.drawn.back().counts);
  metrics.datasets = shares_of(state.learned_of_files);
  return metrics;
}

LORA_INLINE double cost_of(const model::Evaluation& evaluation, std::string_view name) {
  if (name == "eval_token_accuracy") return -evaluation.token_accuracy();
  if (name == "eval_exact_match") return -evaluation.exact_match.value();
  if (name == "eval_rouge_l") return -evaluation.rouge_l.value();
  return evaluation.loss();
}

LORA_INLINE bool add_evaluation(run::RunState& state, const model::Evaluation& evaluation,
                                const settings::Config& config, Index stage) {
  state.last_eval_loss = evaluation.loss();
  state.last_exact_match = evaluation.exact_match;
  state.last_rouge_l = evaluation.rouge_l;
  if (state.step == 0) return false;  // before training, for comparison
  if (stage != state.evaluated_stage) {
    state.evaluated_stage = stage;
    state.to_beat.reset();
    state.evaluations_without_improvement = 0;
  }
  const double cost = cost_of(evaluation, config.metric_for_best_model);
  const double sign = config.metric_for_best_model == "eval_loss" ? 1 : -1;
  const auto gains = [&](const double* metric, double more_than) {
    return std::isfinite(evaluation.loss()) && (metric == nullptr || sign * *metric - cost > more_than);
  };
  const bool better = gains(state.best_metric ? &*state.best_metric : nullptr, 0);
  const double* to_beat = state.to_beat ? &state.to_beat->first : nullptr;
  const bool improved = gains(to_beat, config.early_stopping_threshold);
  state.evaluations_without_improvement = improved ? 0 : state.evaluations_without_improvement + 1;
  if (gains(to_beat, 0)) state.to_beat.emplace(sign * cost, state.step);
  if (better) {
    state.best_metric = sign * cost;
    state.best_eval_loss = evaluation.loss();
    state.best_step = state.step;
  }
  return better;
}

LORA_INLINE bool is_out_of_patience(const run::RunState& state, const settings::Config& config) {
  return config.early_stopping_patience && state.evaluations_without_improvement >= *config.early_stopping_patience;
}

LORA_INLINE bool stays_ended(const run::RunState& state, const settings::Config& config) {
  return state.ended_early && (!state.out_of_patience || is_out_of_patience(state, config));
}

LORA_INLINE run::RunMetrics lasting_metrics(const run::RunState& state, const Plan& plan,
                                            const std::string& absent_class_field) {
  run::RunMetrics metrics;
  metrics.train_loss = state.updates > 0 ? state.last_loss : std::numeric_limits<double>::quiet_NaN();
  metrics.mean_train_loss = state.losses.mean();
  metrics.steps = state.step;
  metrics.total_tokens = state.total_tokens;
  if (state.shared_tokens > 0) metrics.computed_tokens = state.total_tokens - state.shared_tokens;
  metrics.eval_loss = state.last_eval_loss;
  metrics.eval_exact_match = state.last_exact_match;
  metrics.eval_rouge_l = state.last_rouge_l;
  metrics.best_eval_loss = state.best_eval_loss;
  if (state.best_eval_loss) metrics.best_step = state.best_step;
  if (state.ended_early) metrics.ended_early = state.out_of_patience ? "early_stopping_patience" : "the program";
  metrics.curriculum = state.drawn;
  metrics.absent_class_field = absent_class_field;
  metrics.files = state.learned_of_files;
  for (std::size_t i = 0; plan.stages().size() > 1 && i < plan.stages().size(); ++i) {
    const Index begin = plan.begin_of(i), end = plan.end_of(i);
    if (begin >= state.step) break;
    const bool early = std::binary_search(state.ended_stages.begin(), state.ended_stages.end(), end) ||
                       (state.out_of_patience && end >= state.step);
    metrics.stages.push_back({begin, std::min(end, state.step), early});
  }
  return metrics;
}

}  // namespace lora::train
