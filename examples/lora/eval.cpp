#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "lora/data/answer_scores.hpp"
#include "lora/inputs/records.hpp"
#include "lora/io/atomic_folder.hpp"
#include "lora/io/json.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/answers.hpp"
#include "lora/train/evaluate.hpp"
#include "open_model.hpp"
#include "outputs.hpp"
#include "preview.hpp"
#include "prompt_of.hpp"

namespace {

using namespace lora;

struct Predictions {
  data::AnswerScores scores;
  std::string lines = {};  // JSON lines, one per record

  void add(const data::Sample& sample, const std::string& answer, const tokenizer::Tokenizer& tokenizer) {
    io::Json line = {{"prompt", prompt_of(sample, tokenizer)}, {"predict", answer}};
    if (!sample.answer().empty()) {
      const auto [exact, rouge_l] = scores.add(sample, answer);
      line["label"] = std::string(sample.answer());
      line["exact_match"] = exact;
      line["rouge_l"] = rouge_l;
    }
    lines += io::to_text(line, -1) + "\n";
  }
};

io::Json results_of(const settings::Config& config, const train::EvaluationTotals& totals,
                    const std::optional<Predictions>& predictions, double seconds) {
  io::Json json = {{"loss", totals.loss()},
                   {"perplexity", totals.perplexity()},
                   {"labelled_tokens", totals.labelled},
                   {"token_accuracy", totals.token_accuracy()},
                   {"records", totals.records},
                   {"tokens", totals.tokens},
                   {"seconds", seconds},
                   {"model_name_or_path", config.model_name_or_path},
                   {"adapter_name_or_path", nullptr},
                   {"dataset", config.dataset}};
  if (!config.adapter_name_or_path.empty()) json["adapter_name_or_path"] = config.adapter_name_or_path;
  if (predictions) {
    json["exact_match"] = predictions->scores.exact_match();
    json["rouge_l"] = predictions->scores.rouge_l();
    json["exact_matches"] = predictions->scores.exact();
    json["answers"] = predictions->scores.answers();
  }
  return json;
}

/// The results as Markdown.
std::string report_of(const settings::Config& config, const io::Json& results) {
  std::string text = "# Evaluation\n\n";
  text += concat("- model: ", config.model_name_or_path, "\n");
  if (!config.adapter_name_or_path.empty()) text += concat("- adapter: ", config.adapter_name_or_path, "\n");
  for (const std::string& file : config.dataset) text += concat("- data: ", file, "\n");
  text += "\n| measure | value |\n|---|---|\n";
  for (const char* name :
       {"loss", "perplexity", "token_accuracy", "exact_match", "rouge_l", "labelled_tokens", "records"})
    if (const io::Json* value = io::json_find(results, name))
      text += concat("| ", std::string_view(name), " | ", io::to_text(*value, -1), " |\n");
  text += concat("\nLoss and perplexity are over all labelled tokens; records longer than ", config.cutoff_len,
                 " tokens are read in windows of that length, each half a window on.\n");
  return text;
}

/// Loss and answers of the records, in the precision from the settings.
struct Evaluation {
  train::EvaluationTotals totals{};
  std::optional<Predictions> predictions{};
};

template <AnyDevice D>
Evaluation evaluate(D& dev, const model::Source& source, const settings::Config& config, const inputs::Records& records,
                    const inputs::TextFiles& text) {
  Evaluation result;
  with_decoder(dev, source, config, [&](auto& decoder) {
    run::CountProgress progress("evaluating", "records", records.size());
    const auto& totals = result.totals = train::evaluate(
        dev, decoder, records.size(), [&](Index i) { return records[i]; }, config.per_device_eval_batch_size,
        config.cutoff_len, [&](const train::EvaluationTotals& sums) { progress.reached(sums.records, sums.tokens); });
    progress.clear();
    if (!std::isfinite(totals.perplexity()))
      fail<NonFiniteError>("the loss is ", totals.loss(), " and the perplexity ", totals.perplexity());
    if (!config.predict) return;
    std::vector<data::Sample> samples;
    for (Index i = 0; i < records.size(); ++i) samples.push_back(records.dataset()[i]);
    model::GenerateOptions generate;
    generate.max_new_tokens = config.max_new_tokens;
    generate.stop_ids = inputs::stop_ids(source, *text.tokenizer, text.chat_template);
    result.predictions.emplace(Predictions{data::AnswerScores(text.chat_template && text.chat_template->thinks())});
    run::CountProgress answering("answering", "records", records.size());
    train::answer_all(dev, decoder, *text.tokenizer, records.encoder(), samples, generate, {}, answering,
                      [&](const data::Sample& sample, const std::string& answer) {
                        result.predictions->add(sample, answer, *text.tokenizer);
                      });
  });
  return result;
}

/// Checks the records before anything is written.
template <AnyDevice D>
void check(D& dev, const settings::Config& config, const inputs::Records& records, const inputs::TextFiles& text,
           const model::Config& model) {
  std::vector<Index> all(static_cast<std::size_t>(records.size()));
  std::iota(all.begin(), all.end(), Index{0});
  const data::EncodeSummary found = records.survey(*inputs::HostThreads(dev, config), all);
  inputs::warn_of_length(model, std::min(found.length_at(1), config.cutoff_len), "the longest window has");
  if (found.labelled() == 0)
    fail<FormatError>(records.where(0), ": nothing to evaluate: none of ", records.size(),
                      " records has a labelled token");
  if (!config.predict) return;
  if (!text.tokenizer)
    fail<ConfigError>("key predict: given true, allowed: false where the model has no tokenizer files");
  if (std::none_of(all.begin(), all.end(), [&](Index i) { return !records.dataset()[i].answer().empty(); }))
    fail<FormatError>(records.where(0), ": predict needs records with an answer; there is none");
}

/// The files of an evaluation in its output_dir. The first identifies the others as an evaluation's.
constexpr const char* result_files[] = {"evaluation_results.json", "evaluation_report.md", "predictions.jsonl"};

bool is_evaluation(const io::Path& folder) {
  const io::Path file = folder / result_files[0];
  if (!io::is_file(file)) return false;
  try {
    const io::Json json = io::read_json(file);
    return json.is_object() && json.contains("loss") && json.contains("perplexity") && json.contains("labelled_tokens");
  } catch (const FormatError&) {
    return false;
  }
}

/// Throws   ConfigError if a file in output_dir with one of these names is an input, or not an evaluation's
void expect_own_files(const Request& request, const io::Path& model) {
  const io::Path output = request.config.output_dir;
  for (const char* name : result_files) {
    const io::Path path = output / name;
    if (!io::is_there(path)) continue;
    expect_no_input("output_dir", path, request, model);
    if (!io::is_file(path) || !is_evaluation(output))
      fail<ConfigError>("key output_dir: given ", output.native(), ", where ", path.native(),
                        " is in the way, which no evaluation wrote; allowed: another folder, or this one without it");
  }
}

/// Writes the results; those of an earlier evaluation stay until these are complete.
void write_results(const settings::Config& config, const io::Json& results,
                   const std::optional<Predictions>& predictions) {
  const io::Path output = config.output_dir;
  std::vector<io::AtomicFile> files;
  const auto add = [&](const char* name, const std::string& text) {
    files.emplace_back(output / name);
    files.back().write(std::string_view(text));
    files.back().settle();
  };
  add(result_files[0], io::to_text(results) + "\n");
  add(result_files[1], report_of(config, results));
  if (predictions) add(result_files[2], predictions->lines);
  for (io::AtomicFile& file : files) file.publish();
  if (!predictions) io::remove_file(output / result_files[2]);  // of an earlier evaluation
  io::sync_folder(output);
}

}  // namespace

int run_eval(Request& request) {
  const settings::Config& config = request.config;
  const auto start = std::chrono::steady_clock::now();
  const auto source = inputs::open_source(config);
  if (config.preview > 0) {
    print_preview(config, source);
    return 0;
  }
  auto dataset = inputs::open_dataset(config, config.dataset, config.max_samples);
  const auto text = inputs::text_files(config, source.path(), dataset.kinds());
  const auto records = inputs::encoded_records(config, std::move(dataset), text, source.config().vocab_size, false);
  std::optional<io::Lock> lock;
  const auto [totals, predictions] = inputs::with_device(config, [&](auto& dev) {
    check(dev, config, records, text, source.config());
    io::create_folders(config.output_dir);
    lock.emplace(config.output_dir);
    io::clear_unfinished(config.output_dir, io::place_among([](const std::string& name) {
                           return std::find(std::begin(result_files), std::end(result_files), name) !=
                                  std::end(result_files);
                         }));
    expect_own_files(request, source.path());
    return evaluate(dev, source, config, records, text);
  });

  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const io::Json results = results_of(config, totals, predictions, seconds);
  write_results(config, results, predictions);
  std::printf("%s\n", io::to_text(results).c_str());
  return 0;
}
