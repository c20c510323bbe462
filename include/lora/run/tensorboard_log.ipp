#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/files/file_system.hpp"
#include "lora/run/tensorboard_log.hpp"

namespace lora::run {

LORA_INLINE void TensorBoardLog::take(const Event& event) {
  if (const auto* const step = std::get_if<StepEvent>(&event); step != nullptr && step->has_line) write(step->metrics);
  if (const auto* const told = std::get_if<EvaluationEvent>(&event)) write(told->evaluation);
  if (!std::holds_alternative<SavingEvent>(event)) return;
  writer_.sync();
  io::sync_folder(folder_);
}

LORA_INLINE void TensorBoardLog::write(const StepMetrics& metrics) {
  std::vector<std::pair<std::string, double>> shares;  // outlive the scalars
  for (const auto& [label, share] : metrics.mix) shares.emplace_back("curriculum/" + label, share);
  for (const auto& [name, share] : metrics.datasets) shares.emplace_back("datasets/" + name, share);
  std::vector<io::TensorBoardWriter::Scalar> scalars = {{"train/loss", metrics.loss},
                                                        {"train/mean_loss", metrics.mean_loss},
                                                        {"train/learning_rate", metrics.learning_rate},
                                                        {"train/grad_norm", metrics.grad_norm},
                                                        {"train/epoch", metrics.epoch},
                                                        {"train/tokens_per_second", metrics.tokens_per_second},
                                                        {"train/peak_memory_gib", metrics.peak_memory_gib}};
  if (metrics.loss_scale) scalars.push_back({"train/loss_scale", *metrics.loss_scale});
  for (const auto& [name, share] : shares) scalars.push_back({name, share});
  writer_.write(metrics.step, scalars);
}

LORA_INLINE void TensorBoardLog::write(const model::Evaluation& evaluation) {
  std::vector<io::TensorBoardWriter::Scalar> scalars = {{"eval/loss", evaluation.loss()},
                                                        {"eval/perplexity", evaluation.perplexity()},
                                                        {"eval/token_accuracy", evaluation.token_accuracy()}};
  if (evaluation.exact_match) scalars.push_back({"eval/exact_match", *evaluation.exact_match});
  if (evaluation.rouge_l) scalars.push_back({"eval/rouge_l", *evaluation.rouge_l});
  writer_.write(evaluation.step, scalars);
}

}  // namespace lora::run
