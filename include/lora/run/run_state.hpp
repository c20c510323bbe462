#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/optim/loss_scale.hpp"

namespace lora::run {

/// A running mean of losses, as sum and count, so that a resumed run has the same bits.
struct LossMean {
  double sum = 0;
  Index steps = 0;

  void add(double loss);
  /// NaN without steps.
  double mean() const { return sum / static_cast<double>(steps); }
};

/// What was drawn of each class in a part of a curriculum: records that were learned from.
struct DrawnClasses {
  Index from_step = 0;  ///< steps done before it
  Index to_step = 0;    ///< and after its last so far
  std::vector<std::pair<std::string, Index>> counts{};
};

/// The state of a run. Together with the settings it determines the rest of the run: the order of the data and all
/// random numbers are functions of the seed and the number of the sample or step.
struct RunState {
  Index step = 0;           ///< steps done, including skipped ones
  Index updates = 0;        ///< steps that changed the adapter
  Index next_sample = 0;    ///< global index of the first sample not seen
  Index total_tokens = 0;   ///< tokens seen
  Index shared_tokens = 0;  ///< of them: not computed, since other sequences have them in common
  double last_loss = 0;
  LossMean losses{};             ///< of all steps that changed the adapter
  LossMean losses_since_line{};  ///< of those after the last line of the log
  std::optional<double> last_eval_loss{};
  std::optional<double> last_exact_match{};  ///< of generated answers
  std::optional<double> last_rouge_l{};
  std::optional<double> best_eval_loss{};  ///< of the best evaluation, by metric_for_best_model
  std::optional<double> best_metric{};     ///< that metric then
  Index best_step = 0;
  /// What early stopping compares with, of the stage that was evaluated last: its best metric and the step of that.
  std::optional<std::pair<double, Index>> to_beat{};
  Index step_to_beat() const { return to_beat ? to_beat->second : best_step; }
  Index evaluations_without_improvement = 0;  ///< in a row and in a stage, by early_stopping_threshold
  Index evaluated_stage = 0;                  ///< the one that was evaluated last
  std::string evaluated_records{};            ///< their count and checksum; empty if none, or of an earlier version
  Index threads = 0;                          ///< of the first process in the last step; 0 on NPUs, or unknown
  Index stage = 0;                            ///< of the next step
  std::vector<Index> ended_stages{};          ///< steps done when a stage but the last ended before its end
  std::vector<DrawnClasses> drawn{};          ///< by parts of a curriculum
  /// Records learned from, by the name of their file; empty for a single one.
  std::vector<std::pair<std::string, Index>> learned_of_files{};
  std::optional<optim::LossScale> loss_scale{};  ///< of a run in float16
  Index skipped = 0;                             ///< steps whose loss or gradient was not finite
  Index overflows = 0;                           ///< and those that a smaller loss scale may have helped
  bool ended_early = false;                      ///< nothing is left to do, though the plan has more steps
  bool out_of_patience = false;                  ///< by early_stopping_patience: with a larger one the run goes on
  bool evaluation_due = false;                   ///< the run was stopped while it evaluated this step
  io::Json unlogged{};                           ///< then, this step's line of the log, unless it has been written
  io::Json settings = io::Json::object();        ///< those that must not change on resume
};

/// Notes the records that the steps to come are evaluated on. Where those until now were others, forgets the best
/// evaluation and what early stopping compares with and counts. Checkpoints of earlier versions don't say which they
/// were. Returns  what is to be said of that, or nothing
std::string note_evaluated_records(RunState& state, const std::string& records);

/// Notes on how many threads of the first process the steps to come run.
/// Returns  what is to be said where those until now ran on another number, or nothing
std::string note_threads(RunState& state, Index threads);

io::Json to_json(const std::vector<DrawnClasses>& parts);

/// Counts by the name of a file, each with its share of all.
io::Json to_json(const std::vector<std::pair<std::string, Index>>& files);

namespace detail {

io::Json to_json(const LossMean& losses);

io::Json to_json(const RunState& state);

RunState parse_state(const io::JsonView& json);

}  // namespace detail

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/run_state.ipp"
#endif
