#pragma once

#include <limits>

#include "lora/core/config.hpp"
#include "lora/run/metrics.hpp"

namespace lora::run {

LORA_INLINE io::Json to_json(const StepMetrics& metrics) {
  io::Json json = io::json_object({{"step", metrics.step},
                                   {"epoch", metrics.epoch},
                                   {"loss", metrics.loss},
                                   {"mean_loss", metrics.mean_loss},
                                   {"learning_rate", metrics.learning_rate},
                                   {"grad_norm", metrics.grad_norm},
                                   {"tokens", metrics.tokens},
                                   {"labelled_tokens", metrics.labeled_tokens},
                                   {"tokens_per_second", metrics.tokens_per_second},
                                   {"elapsed_seconds", metrics.elapsed_seconds},
                                   {"peak_memory_gib", metrics.peak_memory_gib}});
  if (metrics.computed_tokens) json["computed_tokens"] = *metrics.computed_tokens;
  if (metrics.stage > 0) json["stage"] = metrics.stage;
  if (metrics.skipped) json["skipped"] = true;
  if (metrics.loss_scale) json["loss_scale"] = *metrics.loss_scale;
  for (const auto& [label, share] : metrics.mix) json["mix"][label] = share;
  for (const auto& [name, share] : metrics.datasets) json["datasets"][name] = share;
  return json;
}

LORA_INLINE StepMetrics step_metrics_from(const io::JsonView& json) {
  const auto number = [&](std::string_view name) {
    return json.get<double>(name).value_or(std::numeric_limits<double>::quiet_NaN());
  };
  StepMetrics metrics;
  metrics.step = json.at<Index>("step");
  metrics.stage = json.get<Index>("stage").value_or(0);
  metrics.skipped = json.get<bool>("skipped").value_or(false);
  metrics.epoch = number("epoch");
  metrics.loss = number("loss");
  metrics.mean_loss = number("mean_loss");
  metrics.learning_rate = number("learning_rate");
  metrics.grad_norm = number("grad_norm");
  metrics.loss_scale = json.get<double>("loss_scale");
  metrics.tokens = json.at<Index>("tokens");
  metrics.computed_tokens = json.get<Index>("computed_tokens");
  metrics.labeled_tokens = json.at<Index>("labelled_tokens");
  metrics.tokens_per_second = number("tokens_per_second");
  metrics.elapsed_seconds = number("elapsed_seconds");
  metrics.peak_memory_gib = number("peak_memory_gib");
  const auto shares = [&](std::string_view name, auto& target) {
    if (const auto list = json.find(name))
      list->for_each_field(
          [&](const std::string& key, const io::JsonView& share) { target.emplace_back(key, share.as<double>()); });
  };
  shares("mix", metrics.mix);
  shares("datasets", metrics.datasets);
  return metrics;
}

LORA_INLINE io::Json to_json(const model::Evaluation& evaluation) {
  io::Json json = io::json_object({{"step", evaluation.step},
                                   {"eval_loss", evaluation.loss()},
                                   {"eval_perplexity", evaluation.perplexity()},
                                   {"eval_token_accuracy", evaluation.token_accuracy()}});
  if (evaluation.exact_match) json["eval_exact_match"] = *evaluation.exact_match;
  if (evaluation.rouge_l) json["eval_rouge_l"] = *evaluation.rouge_l;
  for (const model::GeneratedAnswer& sample : evaluation.samples)
    json["eval_samples"].push_back(
        io::json_object({{"prompt", sample.prompt}, {"predict", sample.answer}, {"label", sample.expected}}));
  return json;
}

LORA_INLINE void Throughput::add(Index tokens, double seconds) {
  ++steps_;
  Sum& sum = steps_ <= 2 ? first_ : later_;
  sum.tokens += tokens;
  sum.seconds += seconds;
}

LORA_INLINE double Throughput::tokens_per_second() const {
  const Sum& sum = steps_ <= 2 ? first_ : later_;
  return sum.seconds > 0 ? static_cast<double>(sum.tokens) / sum.seconds : 0;
}

LORA_INLINE io::Json to_json(const std::vector<StageSteps>& stages) {
  io::Json list = io::Json::array();
  for (const StageSteps& stage : stages)
    list.push_back(io::json_object(
        {{"from_step", stage.from_step}, {"to_step", stage.to_step}, {"ended_early", stage.ended_early}}));
  return list;
}

LORA_INLINE io::Json to_json(const RankMetrics& metrics) {
  return io::json_object({{"rank", metrics.rank},
                          {"host", metrics.host},
                          {"device", metrics.device},
                          {"threads", metrics.threads},
                          {"peak_memory_gib", metrics.peak_memory_gib},
                          {"communication_seconds", metrics.communication_seconds},
                          {"hidden_seconds", metrics.hidden_seconds},
                          {"sent_bytes", metrics.sent_bytes},
                          {"received_bytes", metrics.received_bytes}});
}

LORA_INLINE RankMetrics rank_metrics_from(const io::JsonView& json) {
  return {.rank = static_cast<int>(json.at<Index>("rank")),
          .host = json.at<std::string>("host"),
          .device = json.at<std::string>("device"),
          .threads = json.at<Index>("threads"),
          .peak_memory_gib = json.at<double>("peak_memory_gib"),
          .communication_seconds = json.at<double>("communication_seconds"),
          .hidden_seconds = json.at<double>("hidden_seconds"),
          .sent_bytes = json.at<double>("sent_bytes"),
          .received_bytes = json.at<double>("received_bytes")};
}

LORA_INLINE void write_training_metrics(const io::Path& output_dir, const RunMetrics& metrics) {
  io::Json json = io::json_object({{"finished", metrics.finished},
                                   {"train_loss", metrics.train_loss},
                                   {"mean_train_loss", metrics.mean_train_loss},
                                   {"steps", metrics.steps},
                                   {"total_tokens", metrics.total_tokens},
                                   {"tokens_per_second", metrics.tokens_per_second},
                                   {"peak_memory_gib", metrics.peak_memory_gib},
                                   {"seconds", metrics.seconds},
                                   {"resumed_from_step", metrics.resumed_from_step}});
  if (metrics.computed_tokens) json["computed_tokens"] = *metrics.computed_tokens;
  if (metrics.eval_loss) json["eval_loss"] = *metrics.eval_loss;
  if (metrics.eval_exact_match) json["eval_exact_match"] = *metrics.eval_exact_match;
  if (metrics.eval_rouge_l) json["eval_rouge_l"] = *metrics.eval_rouge_l;
  if (metrics.best_eval_loss) json["best_eval_loss"] = *metrics.best_eval_loss;
  if (metrics.best_step) json["best_step"] = *metrics.best_step;
  if (metrics.weights_step) json["final_model_step"] = *metrics.weights_step;
  if (!metrics.ended_early.empty()) json["ended_early"] = metrics.ended_early;
  if (!metrics.stages.empty()) json["stages"] = to_json(metrics.stages);
  if (!metrics.curriculum.empty() || !metrics.absent_class_field.empty())
    json["curriculum"] = to_json(metrics.curriculum);
  if (!metrics.files.empty()) json["datasets"] = to_json(metrics.files);
  for (const RankMetrics& rank : metrics.ranks) json["ranks"].push_back(to_json(rank));
  io::write_json(output_dir / metrics_file, json);
}

LORA_INLINE std::optional<Index> steps_of_metrics(const io::Path& output_dir, bool of_finished) {
  try {
    const io::JsonFile file(output_dir / metrics_file);
    if (of_finished && !file->get<bool>("finished").value_or(true)) return std::nullopt;  // earlier versions: not said
    return file->get<Index>("steps");
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace lora::run
