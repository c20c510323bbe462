#pragma once

#include "lora/core/config.hpp"
#include "lora/run/run_state.hpp"

namespace lora::run {

LORA_INLINE void LossMean::add(double loss) {
  sum += loss;
  ++steps;
}

LORA_INLINE std::string note_evaluated_records(RunState& state, const std::string& records) {
  const std::string before = std::exchange(state.evaluated_records, records);
  const bool was_evaluated = state.best_metric || state.to_beat || state.evaluations_without_improvement > 0;
  if (before.empty() || before == records || !was_evaluated) return {};
  state.best_eval_loss.reset();
  state.best_metric.reset();
  state.best_step = 0;
  state.to_beat.reset();
  state.evaluations_without_improvement = 0;
  return concat("evaluations were of ", before, ", and go on with ", records,
                "; the best of them and early stopping's patience begin anew");
}

LORA_INLINE std::string note_threads(RunState& state, Index threads) {
  const Index before = std::exchange(state.threads, threads);
  if (before == 0 || threads == 0 || before == threads) return {};
  return concat("the steps so far ran on ", before, before == 1 ? " thread" : " threads",
                " a process, those to come run on ", threads, "; the last bits of products depend on that number");
}

LORA_INLINE io::Json to_json(const std::vector<DrawnClasses>& parts) {
  io::Json list = io::Json::array();
  for (const DrawnClasses& part : parts) {
    io::Json counts = io::Json::object();
    for (const auto& [label, count] : part.counts) counts[label] = count;
    list.push_back(io::json_object({{"from_step", part.from_step}, {"to_step", part.to_step}, {"counts", counts}}));
  }
  return list;
}

LORA_INLINE io::Json to_json(const std::vector<std::pair<std::string, Index>>& files) {
  Index sum = 0;
  for (const auto& [name, count] : files) sum += count;
  io::Json list = io::Json::array();
  for (const auto& [name, count] : files) {
    const double share = sum > 0 ? static_cast<double>(count) / static_cast<double>(sum) : 0;
    list.push_back(io::json_object({{"name", name}, {"records", count}, {"share", share}}));
  }
  return list;
}

}  // namespace lora::run

namespace lora::run::detail {

LORA_INLINE io::Json to_json(const LossMean& losses) {
  return io::json_object({{"sum", losses.sum}, {"steps", losses.steps}});
}

/// Checkpoints of earlier versions have none.
LORA_INLINE LossMean parse_losses(const io::JsonView& state, std::string_view name) {
  const auto losses = state.find(name);
  if (!losses) return {};
  return {losses->at<double>("sum"), losses->at<Index>("steps")};
}

LORA_INLINE std::optional<optim::LossScale> parse_loss_scale(const io::JsonView& state) {
  const auto value = state.get<double>("loss_scale");
  if (!value) return std::nullopt;
  const optim::LossScale scale{*value, state.get<Index>("steps_at_loss_scale").value_or(0)};
  int exponent = 0;
  if (!(scale.value >= scale.least && scale.value <= scale.most && std::frexp(scale.value, &exponent) == 0.5))
    state.fail(concat("\"loss_scale\" is ", scale.value, "; expected a power of two from 1 to 2^126"));
  if (scale.good_steps < 0) state.fail(concat("\"steps_at_loss_scale\" is ", scale.good_steps));
  return scale;
}

LORA_INLINE DrawnClasses parse_drawn(const io::JsonView& json) {
  DrawnClasses drawn{json.at<Index>("from_step"), json.at<Index>("to_step")};
  const auto counts = json.find("counts");
  if (!counts || !counts->json().is_object()) json.fail("\"counts\" must be an object");
  counts->for_each_field([&](const std::string& label, const io::JsonView& count) {
    drawn.counts.emplace_back(label, count.as<Index>());
  });
  return drawn;
}

LORA_INLINE std::pair<std::string, Index> parse_learned(const io::JsonView& file) {
  const auto records = file.at<Index>("records");
  if (records < 0) file.fail("\"records\" is ", records);
  return {file.at<std::string>("name"), records};
}

LORA_INLINE io::Json to_json(const RunState& state) {
  io::Json json = io::json_object({{"format", 2},
                                   {"step", state.step},
                                   {"updates", state.updates},
                                   {"next_sample", state.next_sample},
                                   {"total_tokens", state.total_tokens},
                                   {"last_loss", state.last_loss},
                                   {"losses", to_json(state.losses)},
                                   {"losses_since_line", to_json(state.losses_since_line)},
                                   {"last_eval_loss", nullptr},
                                   {"best_eval_loss", nullptr},
                                   {"best_metric", nullptr},
                                   {"best_step", state.best_step},
                                   {"evaluations_without_improvement", state.evaluations_without_improvement},
                                   {"evaluated_stage", state.evaluated_stage},
                                   {"stage", state.stage},
                                   {"ended_stages", state.ended_stages},
                                   {"loss_scale", nullptr},
                                   {"skipped", state.skipped},
                                   {"overflows", state.overflows},
                                   {"ended_early", state.ended_early},
                                   {"out_of_patience", state.out_of_patience},
                                   {"settings", state.settings}});
  if (state.shared_tokens > 0) json["shared_tokens"] = state.shared_tokens;
  if (state.last_eval_loss) json["last_eval_loss"] = *state.last_eval_loss;
  if (state.best_eval_loss) json["best_eval_loss"] = *state.best_eval_loss;
  if (state.best_metric) json["best_metric"] = *state.best_metric;
  if (state.to_beat) {
    json["metric_to_beat"] = state.to_beat->first;
    json["step_to_beat"] = state.to_beat->second;
  }
  if (!state.evaluated_records.empty()) json["evaluated_records"] = state.evaluated_records;
  if (state.threads > 0) json["threads"] = state.threads;
  if (state.last_exact_match) json["last_exact_match"] = *state.last_exact_match;
  if (state.last_rouge_l) json["last_rouge_l"] = *state.last_rouge_l;
  if (state.loss_scale) {
    json["loss_scale"] = state.loss_scale->value;
    json["steps_at_loss_scale"] = state.loss_scale->good_steps;
  }
  if (state.evaluation_due) json["evaluation_due"] = true;
  if (state.evaluation_due && !state.unlogged.is_null()) json["unlogged"] = state.unlogged;
  if (!state.drawn.empty()) json["curriculum"] = run::to_json(state.drawn);
  if (!state.learned_of_files.empty()) json["datasets"] = run::to_json(state.learned_of_files);
  return json;
}

LORA_INLINE RunState parse_state(const io::JsonView& json) {
  RunState state;
  state.step = json.at<Index>("step");
  state.updates = json.at<Index>("updates");
  state.next_sample = json.at<Index>("next_sample");
  state.total_tokens = json.at<Index>("total_tokens");
  state.shared_tokens = json.get<Index>("shared_tokens").value_or(0);
  state.last_loss = json.get<double>("last_loss").value_or(0);
  state.losses = parse_losses(json, "losses");
  state.losses_since_line = parse_losses(json, "losses_since_line");
  state.last_eval_loss = json.get<double>("last_eval_loss");
  state.last_exact_match = json.get<double>("last_exact_match");
  state.last_rouge_l = json.get<double>("last_rouge_l");
  state.best_eval_loss = json.get<double>("best_eval_loss");
  state.best_step = json.at<Index>("best_step");
  // Checkpoints of earlier versions have none of these.
  state.best_metric = json.get<double>("best_metric");
  if (!state.best_metric) state.best_metric = state.best_eval_loss;
  if (const auto metric = json.get<double>("metric_to_beat")) state.to_beat = {*metric, json.at<Index>("step_to_beat")};
  state.evaluations_without_improvement = json.get<Index>("evaluations_without_improvement").value_or(0);
  state.stage = json.get<Index>("stage").value_or(0);
  state.evaluated_records = json.get<std::string>("evaluated_records").value_or("");
  state.threads = json.get<Index>("threads").value_or(0);
  const auto evaluated = json.get<Index>("evaluated_stage");
  state.evaluated_stage = evaluated.value_or(state.stage);
  if (!evaluated && !state.to_beat && state.best_metric) state.to_beat.emplace(*state.best_metric, state.best_step);
  state.ended_stages = json.get<std::vector<Index>>("ended_stages").value_or(std::vector<Index>());
  state.out_of_patience = json.get<bool>("out_of_patience").value_or(false);
  state.loss_scale = parse_loss_scale(json);
  state.skipped = json.get<Index>("skipped").value_or(0);
  state.overflows = json.get<Index>("overflows").value_or(0);
  state.ended_early = json.get<bool>("ended_early").value_or(false);
  state.evaluation_due = json.get<bool>("evaluation_due").value_or(false);
  if (const auto line = json.find("unlogged")) state.unlogged = line->json();
  if (const auto drawn = json.find("curriculum"))
    for (std::size_t i = 0; i < drawn->json().size(); ++i) state.drawn.push_back(parse_drawn(drawn->element(i)));
  if (const auto files = json.find("datasets"))
    for (std::size_t i = 0; i < files->json().size(); ++i)
      state.learned_of_files.push_back(parse_learned(files->element(i)));
  const auto settings = json.find("settings");
  if (!settings || !settings->json().is_object()) json.fail("\"settings\" must be an object");
  state.settings = settings->json();
  return state;
}

}  // namespace lora::run::detail
