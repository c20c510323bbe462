#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/model/decoder/evaluation.hpp"
#include "lora/run/run_state.hpp"

namespace lora::run {

/// What one step did. The loss, tokens and speed are this step's own.
struct StepMetrics {
  Index step = 0;        // 1 is the first
  Index stage = 0;       // of a run of several, from 1; else 0
  bool skipped = false;  // nothing changed: no labeled token, or a gradient that is not finite
  double epoch = 0;
  double loss = 0;       // NaN without labeled tokens
  double mean_loss = 0;  // since the previous line of the log, including this step; NaN if all were skipped
  double learning_rate = 0;
  double grad_norm = 0;                // before clipping
  std::optional<double> loss_scale{};  // of a run in float16
  Index tokens = 0;
  std::optional<Index> computed_tokens{};  // where they are fewer: sequences have beginnings in common
  Index labeled_tokens = 0;                // after the shift
  double tokens_per_second = 0;
  double elapsed_seconds = 0;  // of the whole run, including before a resume
  double peak_memory_gib = 0;
  std::vector<std::pair<std::string, double>> mix{};  ///< shares of the classes in this part of a curriculum, so far
  std::vector<std::pair<std::string, double>> datasets{};  ///< and of the files in the run so far
};

/// A value that is not finite is kept here and written as null.
io::Json to_json(const StepMetrics& metrics);

/// What to_json made of a step.
/// Throws   FormatError
StepMetrics step_metrics_from(const io::JsonView& json);

/// The line of the log.
io::Json to_json(const model::Evaluation& evaluation);

/// The speed of a run. The first two steps, which touch memory and files for the first time, are left out if there are
/// more.
class Throughput {
 public:
  void add(Index tokens, double seconds);

  double tokens_per_second() const;

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

/// What one of several ranks did.
struct RankMetrics {
  int rank = 0;
  std::string host{}, device{};
  Index threads = 1;
  double peak_memory_gib = 0;
  double communication_seconds = 0;  ///< in which it waited for others
  double hidden_seconds = 0;         ///< of communication beside which it computed
  double sent_bytes = 0, received_bytes = 0;
};

io::Json to_json(const RankMetrics& metrics);
/// Throws   FormatError
RankMetrics rank_metrics_from(const io::JsonView& json);

/// The results of a run: training_metrics.json.
struct RunMetrics {
  bool finished = false;       // final_model is in place, and of this step
  double train_loss = 0;       // of the last step that changed anything; NaN where none has
  double mean_train_loss = 0;  // of all of them, including those before a resume
  Index steps = 0;
  Index total_tokens = 0;
  std::optional<Index> computed_tokens{};  // where they are fewer
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
  std::vector<RankMetrics> ranks;  // of several
  std::vector<std::pair<std::string, Index>> files;  // records learned from, by file
};

io::Json to_json(const std::vector<StageSteps>& stages);
constexpr std::string_view metrics_file = "training_metrics.json";

void write_training_metrics(const io::Path& output_dir, const RunMetrics& metrics);

/// "steps" of training_metrics.json; nothing if there is no such file. `of_finished`: nor if the run was stopped.
std::optional<Index> steps_of_metrics(const io::Path& output_dir, bool of_finished = false);

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/metrics.ipp"
#endif
