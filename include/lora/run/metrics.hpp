#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/io/file.hpp"
#include "lora/io/json_view.hpp"
#include "lora/io/tensorboard.hpp"
#include "lora/run/run_state.hpp"

namespace lora::run {

/// What one step did. The loss, tokens and speed are this step's own.
struct StepMetrics {
  Index step = 0;        // 1 is the first
  Index stage = 0;       // of a run of several, from 1; else 0
  bool skipped = false;  // nothing changed: no labelled token, or a gradient that is not finite
  double epoch = 0;
  double loss = 0;       // NaN without labelled tokens
  double mean_loss = 0;  // since the previous line of the log, including this step; NaN if all were skipped
  double learning_rate = 0;
  double grad_norm = 0;                // before clipping
  std::optional<double> loss_scale{};  // of a run in float16
  Index tokens = 0;
  Index labelled_tokens = 0;  // after the shift
  double tokens_per_second = 0;
  double elapsed_seconds = 0;  // of the whole run, including before a resume
  double peak_memory_gib = 0;
  std::vector<std::pair<std::string, double>> mix{};  ///< shares of the classes in this part of a curriculum, so far
  std::vector<std::pair<std::string, double>> datasets{};  ///< and of the files in the run so far
};

struct EvalMetrics {
  Index step = 0;
  double loss = 0;
  double token_accuracy = 0;            ///< share of the labels that are the most likely token
  std::optional<double> exact_match{};  ///< of generated answers
  std::optional<double> rouge_l{};

  double perplexity() const { return std::exp(loss); }
};

/// A value that is not finite becomes null.
inline io::Json to_json(const StepMetrics& metrics) {
  io::Json json = io::json_object({{"step", metrics.step},
                                   {"epoch", metrics.epoch},
                                   {"loss", metrics.loss},
                                   {"mean_loss", metrics.mean_loss},
                                   {"learning_rate", metrics.learning_rate},
                                   {"grad_norm", metrics.grad_norm},
                                   {"tokens", metrics.tokens},
                                   {"labelled_tokens", metrics.labelled_tokens},
                                   {"tokens_per_second", metrics.tokens_per_second},
                                   {"elapsed_seconds", metrics.elapsed_seconds},
                                   {"peak_memory_gib", metrics.peak_memory_gib}});
  if (metrics.stage > 0) json["stage"] = metrics.stage;
  if (metrics.skipped) json["skipped"] = true;
  if (metrics.loss_scale) json["loss_scale"] = *metrics.loss_scale;
  for (const auto& [label, share] : metrics.mix) json["mix"][label] = share;
  for (const auto& [name, share] : metrics.datasets) json["datasets"][name] = share;
  return json;
}

/// What to_json made of a step.
/// Throws   FormatError
inline StepMetrics step_metrics_from(const io::JsonView& json) {
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
  metrics.labelled_tokens = json.at<Index>("labelled_tokens");
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

inline io::Json to_json(const EvalMetrics& metrics) {
  io::Json json = io::json_object({{"step", metrics.step},
                                   {"eval_loss", metrics.loss},
                                   {"eval_perplexity", metrics.perplexity()},
                                   {"eval_token_accuracy", metrics.token_accuracy}});
  if (metrics.exact_match) json["eval_exact_match"] = *metrics.exact_match;
  if (metrics.rouge_l) json["eval_rouge_l"] = *metrics.rouge_l;
  return json;
}

/// Logs metrics to trainer_log.jsonl, one line each and unbuffered, and as TensorBoard events. A resumed run appends to
/// both; entries after its checkpoint's step are removed.
class MetricsLog {
 public:
  /// What stays of an earlier log.
  struct Kept {
    std::uint64_t bytes = 0;  ///< of trainer_log.jsonl
    double elapsed = 0;       ///< time up to its last line there
    io::TensorBoardWriter::Kept events{};
  };
  /// What leads up to a step and was not cut by a kill. Nothing is changed. `piece_bytes`: how much is read at once,
  /// for a log may be of any size. Throws   IoError if it can't be read
  static Kept kept_through(const io::Path& output_dir, Index step, std::size_t piece_bytes = std::size_t{1} << 16) {
    constexpr std::size_t longest_line = std::size_t{1} << 24;
    Kept kept{0, 0, io::TensorBoardWriter::kept_through(output_dir / "tensorboard", step, piece_bytes)};
    const io::Path path = output_dir / file_name;
    if (!io::is_there(path)) return kept;
    io::FileWindow file(path, piece_bytes);
    while (const auto line = file.line(longest_line)) {
      const auto place = place_of_line(*line);
      if (!place || place->step > step) break;
      kept.elapsed = std::max(kept.elapsed, place->elapsed);
      file.pass(line->size());
    }
    kept.bytes = file.offset();
    return kept;
  }

  /// Starts new files, or continues after `resumed_step`.
  explicit MetricsLog(const io::Path& output_dir, std::optional<Index> resumed_step = std::nullopt)
      : MetricsLog(output_dir,
                   resumed_step ? std::optional(kept_through(output_dir, *resumed_step)) : std::optional<Kept>()) {}
  /// The same once it is known what is kept.
  MetricsLog(const io::Path& output_dir, const std::optional<Kept>& kept)
      : elapsed_(kept ? kept->elapsed : 0),
        lines_(prepare(output_dir, kept), io::FileWriter::Mode::append),
        tensorboard_(output_dir / "tensorboard", kept ? std::optional(kept->events) : std::nullopt) {}

  /// Elapsed time up to the last line that was kept; 0 for a new run.
  double elapsed_seconds() const { return elapsed_; }

  void write(const StepMetrics& metrics) {
    write_line(to_json(metrics));
    std::vector<std::pair<std::string, double>> mix;  // outlives the scalars
    for (const auto& [label, share] : metrics.mix) mix.emplace_back("curriculum/" + label, share);
    for (const auto& [name, share] : metrics.datasets) mix.emplace_back("datasets/" + name, share);
    std::vector<io::TensorBoardWriter::Scalar> scalars = {{"train/loss", metrics.loss},
                                                          {"train/mean_loss", metrics.mean_loss},
                                                          {"train/learning_rate", metrics.learning_rate},
                                                          {"train/grad_norm", metrics.grad_norm},
                                                          {"train/epoch", metrics.epoch},
                                                          {"train/tokens_per_second", metrics.tokens_per_second},
                                                          {"train/peak_memory_gib", metrics.peak_memory_gib}};
    if (metrics.loss_scale) scalars.push_back({"train/loss_scale", *metrics.loss_scale});
    for (const auto& [name, share] : mix) scalars.push_back({name, share});
    tensorboard_.write(metrics.step, scalars);
  }

  void write(const EvalMetrics& metrics) {
    write_line(to_json(metrics));
    std::vector<io::TensorBoardWriter::Scalar> scalars = {{"eval/loss", metrics.loss},
                                                          {"eval/perplexity", metrics.perplexity()},
                                                          {"eval/token_accuracy", metrics.token_accuracy}};
    if (metrics.exact_match) scalars.push_back({"eval/exact_match", *metrics.exact_match});
    if (metrics.rouge_l) scalars.push_back({"eval/rouge_l", *metrics.rouge_l});
    tensorboard_.write(metrics.step, scalars);
  }

  /// Call before a checkpoint is renamed into place: the log must be durable before the checkpoint.
  void sync() {
    lines_.sync();
    tensorboard_.sync();
  }

 private:
  void write_line(const io::Json& json) { lines_.write(io::to_text(json, -1) + "\n"); }

  static constexpr const char* file_name = "trainer_log.jsonl";

  static io::Path prepare(const io::Path& output_dir, const std::optional<Kept>& kept) {
    io::create_folders(output_dir);
    const io::Path path = output_dir / file_name;
    if (kept)
      io::keep_begin(path, kept->bytes);
    else
      io::remove_file(path);
    return path;
  }

  struct Place {
    Index step;
    double elapsed;  // 0 for an evaluation's line
  };
  static std::optional<Place> place_of_line(std::string_view line) {
    const std::string where = file_name;
    try {
      const io::Json json = io::parse_json(line, where);
      const io::JsonView view(json, where);
      return Place{view.at<Index>("step"), view.get<double>("elapsed_seconds").value_or(0)};
    } catch (const std::exception&) {
      return std::nullopt;  // not a line of this log, so nothing after it can be trusted
    }
  }

  double elapsed_;
  io::FileWriter lines_;
  io::TensorBoardWriter tensorboard_;
};

/// The speed of a run. The first two steps, which touch memory and files for the first time, are left out if there are
/// more.
class Throughput {
 public:
  void add(Index tokens, double seconds) {
    ++steps_;
    Sum& sum = steps_ <= 2 ? first_ : later_;
    sum.tokens += tokens;
    sum.seconds += seconds;
  }

  double tokens_per_second() const {
    const Sum& sum = steps_ <= 2 ? first_ : later_;
    return sum.seconds > 0 ? static_cast<double>(sum.tokens) / sum.seconds : 0;
  }

 private:
  struct Sum {
    Index tokens = 0;
    double seconds = 0;
  };
  Index steps_ = 0;
  Sum first_, later_;
};

/// The steps of a stage that has begun: those after from_step up to to_step.
struct StageSteps {
  Index from_step = 0;
  Index to_step = 0;
  bool ended_early = false;  ///< by early_stopping_patience
};

/// The results of a run: training_metrics.json.
struct RunMetrics {
  bool finished = false;       // final_model is in place, and of this step
  double train_loss = 0;       // of the last step that changed anything; NaN where none has
  double mean_train_loss = 0;  // of all of them, including those before a resume
  Index steps = 0;
  Index total_tokens = 0;
  double tokens_per_second = 0;
  double peak_memory_gib = 0;
  double seconds = 0;
  Index resumed_from_step = 0;
  std::optional<double> eval_loss;  // of the last evaluation
  std::optional<double> eval_exact_match, eval_rouge_l;
  std::optional<double> best_eval_loss;
  std::optional<Index> best_step;
  std::string ended_early;            // what ended the run before its last step; empty: nothing
  std::vector<StageSteps> stages;     // of a run of several
  std::optional<Index> weights_step;  // whose weights final_model has; nothing: it was not written
  std::vector<DrawnClasses> curriculum;
  std::string absent_class_field;  // that a curriculum needs and no record has, so that there is none; else empty
  std::vector<std::pair<std::string, Index>> files;  // records learnt from, by file
};

inline io::Json to_json(const std::vector<StageSteps>& stages) {
  io::Json list = io::Json::array();
  for (const StageSteps& stage : stages)
    list.push_back(io::json_object(
        {{"from_step", stage.from_step}, {"to_step", stage.to_step}, {"ended_early", stage.ended_early}}));
  return list;
}
constexpr std::string_view metrics_file = "training_metrics.json";

inline void write_training_metrics(const io::Path& output_dir, const RunMetrics& metrics) {
  io::Json json = io::json_object({{"finished", metrics.finished},
                                   {"train_loss", metrics.train_loss},
                                   {"mean_train_loss", metrics.mean_train_loss},
                                   {"steps", metrics.steps},
                                   {"total_tokens", metrics.total_tokens},
                                   {"tokens_per_second", metrics.tokens_per_second},
                                   {"peak_memory_gib", metrics.peak_memory_gib},
                                   {"seconds", metrics.seconds},
                                   {"resumed_from_step", metrics.resumed_from_step}});
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
  io::write_json(output_dir / metrics_file, json);
}

/// "steps" of training_metrics.json; nothing if there is no such file. `of_finished`: nor if the run was stopped.
inline std::optional<Index> steps_of_metrics(const io::Path& output_dir, bool of_finished = false) {
  try {
    const io::JsonFile file(output_dir / metrics_file);
    if (of_finished && !file->get<bool>("finished").value_or(true)) return std::nullopt;  // earlier versions: not said
    return file->get<Index>("steps");
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace lora::run
