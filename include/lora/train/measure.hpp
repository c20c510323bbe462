#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/data/answer_scores.hpp"
#include "lora/inputs/run_data.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/status_line.hpp"
#include "lora/train/answers.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/prepared.hpp"

// The evaluations that a run makes on its way.

namespace lora::train {

/// How the answers that a run generates score beside those of its evaluation data; nothing if it was stopped.
template <AnyDevice D, class T>
std::optional<data::AnswerScores> score_answers(D& dev, model::Decoder<D, T>& decoder, const Prepared& run) {
  const inputs::TextFiles& text = run.data.text();
  const std::vector<data::Sample> samples = run.data.answered();
  run::CountProgress progress("answering", "records", std::ssize(samples), 30, draws_bar(run.options));
  decode::GenerateOptions generate;
  generate.max_new_tokens = run.config.max_new_tokens;
  const inputs::Taught taught = inputs::taught_by(run.data.train().dataset().kinds(), text);
  generate.stop_ids = inputs::stop_ids(run.source, *text.tokenizer, text.chat_template, taught.files);
  data::AnswerScores scores(text.chat_template);
  const bool whole = answer_all(
      dev, decoder, *text.tokenizer, run.data.eval().encoder(), std::span<const data::Sample>(samples), generate, {},
      progress, [&](const data::Sample& sample, const std::string& answer) { scores.add(sample, answer); },
      run.options.stop);
  return whole ? std::optional(scores) : std::nullopt;
}

/// The evaluation after step `step`; nothing if it was stopped.
template <AnyDevice D, class T>
std::optional<run::EvalMetrics> measure(D& dev, model::Decoder<D, T>& decoder, const Prepared& run, Index step) {
  const auto& order = run.data.eval_order();
  const auto example_of = [&](Index i) { return run.data.eval()[order[i]]; };
  const Index count = order.size();
  run::CountProgress progress("evaluating", "records", count, 30, draws_bar(run.options));
  const auto totals = evaluate(
      dev, decoder, count, example_of, run.config.per_device_eval_batch_size, settings::longest_cutoff(run.config),
      [&](const EvaluationTotals& sums) { progress.reached(sums.records, sums.tokens); }, run.options.stop);
  progress.clear();
  if (totals.stopped) return std::nullopt;
  run::EvalMetrics metrics{step, totals.loss(), totals.token_accuracy(), {}, {}};
  if (run.config.eval_predict) {
    const auto scores = score_answers(dev, decoder, run);
    if (!scores) return std::nullopt;
    metrics.exact_match = scores->exact_match();
    metrics.rouge_l = scores->rouge_l();
  }
  return metrics;
}

/// Logs an evaluation.
inline void say_evaluation(const run::EvalMetrics& metrics) {
  log::info("step ", metrics.step, ": evaluation loss ", fixed(metrics.loss, 4), ", perplexity ",
            significant(metrics.perplexity(), 4), ", token accuracy ", fixed(100 * metrics.token_accuracy, 1), " %",
            metrics.exact_match ? concat(", exact match ", fixed(100 * *metrics.exact_match, 1), " %, ROUGE-L ",
                                         fixed(100 * *metrics.rouge_l, 1), " %")
                                : "");
}

}  // namespace lora::train
