#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/comm/agreed_stop.hpp"
#include "lora/comm/facts.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/core/printable.hpp"
#include "lora/data/chat/answer_scores.hpp"
#include "lora/inputs/run_data.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/status_line.hpp"
#include "lora/train/answers.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/prepared.hpp"

// The evaluations that a run makes on its way.

namespace lora::train {

/// The answers that the model gives to `samples`, which ranks share out in turn; nothing if one of them was stopped.
template <AnyDevice D, class T>
std::optional<std::vector<Answer>> answers_to(const std::vector<data::Sample>& samples, D& dev,
                                              model::Decoder<D, T>& decoder, const Prepared& run, comm::Ranks& ranks) {
  const inputs::TextFiles& text = run.data.text();
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<data::Sample> own;
  for (auto i = static_cast<std::size_t>(ranks.rank()); i < samples.size(); i += size) own.push_back(samples[i]);
  decode::GenerateOptions generate;
  generate.max_new_tokens = run.config.answer_tokens();
  generate.shares = run.config.shares_prefixes();
  const inputs::Taught taught = inputs::taught_by(run.data.train().dataset().kinds(), text);
  generate.stop_ids = inputs::stop_ids(run.source, *text.tokenizer, text.chat_template, taught.files);
  // To ask is to wait for the slowest rank: over more answers ranks differ less.
  comm::AgreedStop stop(ranks, std::ssize(samples) / ranks.size(), 4 * answered_together,
                        [&] { return run.options.stop_flag() != 0; });
  generate.stopped = [&] { return stop.stopped(); };
  run::CountProgress progress("answering", "records", std::ssize(own), 30, draws_bar(run.options));
  io::Json given = io::Json::array();
  answer_all(dev, decoder, *text.tokenizer, run.data.eval().encoder(), std::span<const data::Sample>(own), generate, {},
             progress, [&](const data::Sample&, const Answer& answer) {
               given.push_back({answer.text, answer.cut});
               stop.did_one();
             });
  if (stop.ends_stopped()) return std::nullopt;
  std::vector<Answer> answers(samples.size());
  for (std::size_t rank = 0; rank < size; ++rank) {
    const std::string where = concat("answers of rank ", rank);
    const std::string list = comm::text_of(ranks, static_cast<int>(rank), io::to_text(given, -1));
    const auto theirs = io::parse_json(list, where).template get<std::vector<std::pair<std::string, bool>>>();
    for (std::size_t i = rank; i < samples.size(); i += size)
      answers[i] = {theirs.at(i / size).first, theirs.at(i / size).second};
  }
  return answers;
}

/// Adds how the answers that a run generates score beside those of its evaluation data, with the first few of them.
/// `cut`: those of the run. False if it was stopped.
template <AnyDevice D, class T>
bool score_answers(D& dev, model::Decoder<D, T>& decoder, const Prepared& run, comm::Ranks& ranks,
                   model::Evaluation& evaluation, CutAnswers& cut) {
  constexpr std::size_t samples_shown = 3, sample_bytes = 2000;
  const std::vector<data::Sample> samples = run.data.answered();
  const auto answers = answers_to(samples, dev, decoder, run, ranks);
  if (!answers) return false;
  data::AnswerScores scores(run.data.text().chat_template);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Answer& answer = (*answers)[i];
    cut.add(samples[i], answer);
    scores.add(samples[i], answer.text);
    if (i < samples_shown)
      evaluation.samples.push_back({shortened(samples[i].prompt(), sample_bytes),
                                    shortened(scores.expected(samples[i]), sample_bytes),
                                    shortened(answer.text, sample_bytes)});
  }
  cut.warn_once(decoder.config());
  evaluation.exact_match = scores.exact_match();
  evaluation.rouge_l = scores.rouge_l();
  return true;
}

/// The evaluation after step `step`, shared out by the ranks; nothing if it was stopped. `cut`: answers of the run.
template <AnyDevice D, class T>
std::optional<model::Evaluation> measure(D& dev, model::Decoder<D, T>& decoder, const Prepared& run, Index step,
                                         comm::Ranks& ranks, CutAnswers& cut) {
  const auto& order = run.data.eval_order();
  const auto example_of = [&](Index i) { return run.data.eval()[order[i]]; };
  const Index count = order.size();
  run::CountProgress progress("evaluating", "records", count, 30, draws_bar(run.options));
  auto evaluation =
      evaluate(dev, decoder, count, example_of,
               {.batch = run.config.per_device_eval_batch_size,
                .window = settings::longest_cutoff(run.config),
                .shares = run.config.shares_prefixes(),
                .see = [&](const model::Evaluation& sums) { progress.reached(sums.records, sums.tokens); },
                .stop = run.options.stop,
                .ranks = &ranks});
  progress.clear();
  if (evaluation.stopped) return std::nullopt;
  evaluation.step = step;
  if (run.config.eval_predict && !score_answers(dev, decoder, run, ranks, evaluation, cut)) return std::nullopt;
  return evaluation;
}

/// Logs an evaluation.
inline void say_evaluation(const model::Evaluation& evaluation) {
  log::info("step ", evaluation.step, ": evaluation loss ", fixed(evaluation.loss(), 4), ", perplexity ",
            significant(evaluation.perplexity(), 4), ", token accuracy ", fixed(100 * evaluation.token_accuracy(), 1),
            " %",
            evaluation.exact_match ? concat(", exact match ", fixed(100 * *evaluation.exact_match, 1), " %, ROUGE-L ",
                                            fixed(100 * *evaluation.rouge_l, 1), " %")
                                   : "");
}

}  // namespace lora::train
