#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/data/chat/answer_scores.hpp"
#include "lora/evaluation/results.hpp"
#include "lora/inputs/records.hpp"
#include "lora/inputs/sampling.hpp"
#include "lora/io/files/atomic_folder.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/tensorboard.hpp"
#include "lora/report/evaluation_report.hpp"
#include "lora/run/metrics.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/answers.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/offload.hpp"
#include "open_model.hpp"
#include "outputs.hpp"
#include "preview.hpp"

namespace {

using namespace lora;
using evaluation::EvaluatedSet;

struct Predictions {
  data::AnswerScores scores;
  std::string lines = {};  // JSON lines, one per record

  /// `set`: the record's, of several.
  void add(const data::Sample& sample, const std::string& answer, const tokenizer::Tokenizer& tokenizer,
           const std::string& set) {
    io::Json line = {{"prompt", data::prompt_of(sample, tokenizer)}, {"predict", answer}};
    if (!set.empty()) line["dataset"] = set;
    if (!sample.answer().empty()) {
      const auto [exact, rouge_l] = scores.add(sample, answer);
      line["label"] = scores.expected(sample);
      line["exact_match"] = exact;
      line["rouge_l"] = rouge_l;
    }
    lines += io::to_text(line, -1) + "\n";
  }
};

std::string of_several(const EvaluatedSet& set, const std::vector<EvaluatedSet>& sets) {
  return sets.size() > 1 ? " " + set.name : "";
}

template <AnyDevice D, class T>
model::Evaluation totals_of(D& dev, model::Decoder<D, T>& decoder, const EvaluatedSet& set,
                            const settings::Config& config, const std::string& doing,
                            std::vector<train::RecordLoss>* each) {
  run::CountProgress progress(doing, "records", set.records.size());
  const auto totals =
      train::evaluate(dev, decoder, set.records.size(), [&](Index i) { return set.records[i]; },
                      {.batch = config.per_device_eval_batch_size,
                       .window = config.cutoff_len,
                       .shares = config.shares_prefixes(),
                       .see = [&](const model::Evaluation& sums) { progress.reached(sums.records, sums.tokens); },
                       .each = each});
  progress.clear();
  if (!std::isfinite(totals.perplexity()))
    fail<NonFiniteError>(set.path, ": the loss is ", totals.loss(), " and the perplexity ", totals.perplexity());
  return totals;
}

/// The totals of every set without the adapter.
template <AnyDevice D>
void evaluate_base(D& dev, const model::Source& source, settings::Config config, std::vector<EvaluatedSet>& sets) {
  config.adapter_name_or_path.clear();
  with_decoder(dev, source, config, [&](auto& decoder) {
    for (EvaluatedSet& set : sets) set.base = totals_of(dev, decoder, set, config, "evaluating the base", nullptr);
  });
}

/// Loss and answers of the records of every set, in the precision from the settings.
template <AnyDevice D>
std::optional<Predictions> evaluate(D& dev, const model::Source& source, const settings::Config& config,
                                    std::vector<EvaluatedSet>& sets, const inputs::TextFiles& text) {
  std::optional<Predictions> predictions;
  with_decoder(dev, source, config, [&](auto& decoder) {
    for (EvaluatedSet& set : sets) set.totals = totals_of(dev, decoder, set, config, "evaluating", &set.each);
    if (!config.predict) return;
    train::CutAnswers cut;
    const data::AnswerScores none(text.chat_template);
    predictions.emplace(Predictions{none});
    decode::GenerateOptions generate;
    generate.max_new_tokens = config.answer_tokens();
    generate.shares = config.shares_prefixes();
    generate.stop_ids = inputs::stop_ids(source, *text.tokenizer, text.chat_template, text.adapter);
    for (EvaluatedSet& set : sets) {
      set.scores = none;
      std::vector<data::Sample> samples;
      for (Index i = 0; i < set.records.size(); ++i) samples.push_back(set.records.dataset()[i]);
      run::CountProgress answering("answering" + of_several(set, sets), "records", set.records.size());
      train::answer_all(dev, decoder, *text.tokenizer, set.records.encoder(), samples, generate, {}, answering,
                        [&](const data::Sample& sample, const train::Answer& answer) {
                          cut.add(sample, answer);
                          predictions->add(sample, answer.text, *text.tokenizer, sets.size() > 1 ? set.name : "");
                          if (!sample.answer().empty()) set.scores->add(sample, answer.text);
                        });
    }
    cut.warn_once(source.config());
  });
  return predictions;
}

/// Checks the records before anything is written.
template <AnyDevice D>
void check(D& dev, const settings::Config& config, const std::vector<EvaluatedSet>& sets, const inputs::TextFiles& text,
           const model::Config& model) {
  bool answers = false;
  for (const EvaluatedSet& set : sets) {
    std::vector<Index> all(static_cast<std::size_t>(set.records.size()));
    std::iota(all.begin(), all.end(), Index{0});
    const data::EncodeSummary found = set.records.survey(*inputs::HostThreads(dev, config), all);
    inputs::expect_supported_records(model, set.records, found, config.cutoff_len);
    inputs::warn_of_length(model, std::min(found.length_at(1), config.cutoff_len), "the longest window has");
    if (found.labeled() == 0)
      fail<FormatError>(set.records.where(0), ": nothing to evaluate: none of ", set.records.size(),
                        " records has a labeled token");
    answers = answers || (config.predict && std::any_of(all.begin(), all.end(), [&](Index i) {
                            return !set.records.dataset()[i].answer().empty();
                          }));
  }
  if (!config.predict) return;
  if (!text.tokenizer)
    fail<ConfigError>("key predict: given true, allowed: false where the model has no tokenizer files");
  if (!answers) fail<FormatError>(sets[0].records.where(0), ": predict needs records with an answer; there is none");
  if (!inputs::limits_length(model)) return;
  for (const EvaluatedSet& set : sets)
    for (Index i = 0; i < set.records.size(); ++i)
      (void)inputs::supported_prompt(model, set.records.encoder(), set.records.dataset()[i]);
}

/// Opens the files of the key dataset, each a set of its own, and what their records need.
/// Throws   ConfigError for a file that is given twice; FormatError, IoError
std::vector<EvaluatedSet> open_sets(const settings::Config& config, const model::Source& source,
                                    inputs::TextFiles& text) {
  std::vector<data::Dataset> files;
  std::vector<data::Sample::Kind> kinds;
  for (std::size_t i = 0; i < config.dataset.size(); ++i) {
    const auto own = config.dataset.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(config.dataset.begin(), own,
                    [&](const auto& file) { return file.path == own->path && file.split == own->split; }))
      fail<ConfigError>("key dataset: given ", own->path, " twice; allowed: each file, or split of one, once");
    files.push_back(inputs::open_dataset(config, {own, own + 1}, config.max_samples));
    const auto& found = files.back().kinds();
    kinds.insert(kinds.end(), found.begin(), found.end());
  }
  text = inputs::text_files(config, source.path(), kinds);
  std::vector<EvaluatedSet> sets;
  const std::vector<std::string> names = data::names_of(config.dataset);
  for (std::size_t i = 0; i < files.size(); ++i)
    sets.push_back({names[i], config.dataset[i].path,
                    inputs::encoded_records(config, std::move(files[i]), text, source.config().vocab_size, false)});
  return sets;
}

/// The files of an evaluation in its output_dir. The first identifies the others as an evaluation's.
constexpr const char* result_files[] = {"evaluation_results.json", "evaluation_report.md", "predictions.jsonl"};
/// Beside those of training runs, which TensorBoard shows as another run.
constexpr const char* events_folder = "tensorboard/evaluation";

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
  std::vector<io::Path> names(std::begin(result_files), std::end(result_files));
  names.push_back(io::Path(events_folder) / io::TensorBoardWriter::file_name);
  for (const io::Path& name : names) {
    const io::Path path = output / name;
    if (!io::is_there(path)) continue;
    expect_no_input("output_dir", path, request, model);
    if (!io::is_file(path) || !is_evaluation(output))
      fail<ConfigError>("key output_dir: given ", output.native(), ", where ", path.native(),
                        " is in the way, which no evaluation wrote; hint: give another folder, or move that away");
  }
}

/// The training step of what is evaluated: of the adapter or model of a checkpoint or final_model, else 0.
Index step_of(const settings::Config& config, const io::Path& model) {
  const io::Path folder =
      config.adapter_name_or_path.empty() ? model : inputs::find_adapter(config.adapter_name_or_path);
  if (io::is_file(folder / "trainer_state.json")) {
    try {
      return std::max<Index>(0, io::JsonFile(folder / "trainer_state.json")->get<Index>("step").value_or(0));
    } catch (const Error&) {
      return 0;
    }
  }
  io::Path whole = std::filesystem::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // it was given with a slash at its end
  return whole.filename() == "final_model" ? std::max<Index>(0, run::steps_of_metrics(whole.parent_path()).value_or(0))
                                           : 0;
}

/// Adds the results to those of earlier evaluations.
void write_events(const settings::Config& config, const io::Path& model, const std::vector<EvaluatedSet>& sets,
                  const std::optional<data::AnswerScores>& scores) {
  const Index step = step_of(config, model);
  const io::Path folder = io::Path(config.output_dir) / events_folder;
  io::create_folders(folder);
  std::vector<std::pair<std::string, double>> values;
  const auto add = [&](const std::string& name, const model::Evaluation& totals,
                       const std::optional<data::AnswerScores>& of) {
    values.emplace_back(name + "/loss", totals.loss());
    values.emplace_back(name + "/perplexity", totals.perplexity());
    values.emplace_back(name + "/token_accuracy", totals.token_accuracy());
    if (!of || of->answers() == 0) return;
    values.emplace_back(name + "/exact_match", of->exact_match());
    values.emplace_back(name + "/rouge_l", of->rouge_l());
  };
  add("eval", evaluation::sum_of(sets, false), scores);
  for (const EvaluatedSet& set : sets)
    if (sets.size() > 1) add("eval/" + set.name, set.totals, set.scores);
  std::vector<io::TensorBoardWriter::Scalar> scalars;
  for (const auto& [name, value] : values) scalars.push_back({name, value});
  io::TensorBoardWriter writer(folder, std::numeric_limits<Index>::max());
  writer.write(step, scalars);
  writer.sync();
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
  add(result_files[1], report::evaluation_report(results));
  if (predictions) add(result_files[2], predictions->lines);
  for (io::AtomicFile& file : files) file.publish();
  if (!predictions) io::remove_file(output / result_files[2]);  // of an earlier evaluation
  io::sync_folder(output);
}

}  // namespace

int run_eval(Request& request) {
  settings::Config& config = request.config;
  const auto start = std::chrono::steady_clock::now();
  const auto source = inputs::open_source(config);
  if (config.preview > 0) {
    print_preview(config, source);
    return 0;
  }
  const std::vector<evaluation::EarlierEvaluation> earlier = evaluation::read_all_earlier(config.compare_with);
  inputs::TextFiles text;
  std::vector<EvaluatedSet> sets = open_sets(config, source, text);
  std::optional<io::Lock> lock;
  evaluation::Circumstances with;
  const auto predictions = inputs::with_device(config, [&](auto& dev) {
    train::settle_prefixes(dev, config, source.config());
    with.device = dev.describe();
    with.dtype = name_of(inputs::precision_of(dev, config, source));
    check(dev, config, sets, text, source.config());
    if (config.predict) inputs::warn_of_ends(source);
    io::create_folders(config.output_dir);
    lock.emplace(config.output_dir);
    io::clear_unfinished(config.output_dir, io::place_among([](const std::string& name) {
                           return std::find(std::begin(result_files), std::end(result_files), name) !=
                                  std::end(result_files);
                         }));
    expect_own_files(request, source.path());
    if (config.compare_base) evaluate_base(dev, source, config, sets);
    return evaluate(dev, source, config, sets, text);
  });

  const model::Evaluation totals = evaluation::sum_of(sets, false);
  if (config.share_prefixes.value_or(false) && totals.computed_tokens >= totals.tokens)
    log::warn("share_prefixes: no records that are evaluated together had anything in common; ",
              "per_device_eval_batch_size decides how many are");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto scores = predictions ? std::optional(predictions->scores) : std::nullopt;
  const io::Json results = evaluation::results_of(config, with, sets, scores, earlier, text, seconds);
  write_results(config, results, predictions);
  write_events(config, source.path(), sets, scores);
  std::printf("%s\n", io::to_text(results).c_str());
  return 0;
}
