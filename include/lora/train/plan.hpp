#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/sum_tree.hpp"
#include "lora/data/batches/batch.hpp"
#include "lora/data/sampling/curriculum.hpp"
#include "lora/data/sampling/order.hpp"
#include "lora/inputs/records.hpp"
#include "lora/optim/schedule.hpp"
#include "lora/settings/stage_lists.hpp"

namespace lora::train {

/// A part of a run with one batch size, one schedule and one set of tensors that train.
struct Stage {
  Index sequences_per_step = 1;
  inputs::MicroBatchLimit limit{};
  double learning_rate = 0;                        ///< the highest
  optim::Schedule schedule{};                      ///< over the stage's own steps
  std::function<bool(std::string_view)> trains{};  ///< by the name of a tensor; empty: all that can
  std::optional<data::Curriculum> curriculum{};    ///< which sequences; else all of them, epoch by epoch
  inputs::Sharing shared{};                        ///< as far as its first steps show
};

/// Everything that decides what a step does, apart from the state that earlier steps have left.
struct PlannedStep {
  Index step = 0;                           ///< the first is 0
  Index stage = 0;                          ///< the first is 0
  std::vector<std::vector<Index>> units{};  ///< the sequences of each unit, in order
  inputs::MicroBatchLimit limit{};
  double learning_rate = 0;  ///< groups of parameters have factors of it (optim::AdamWGroup)
};

/// What each step of a run does: a function of the settings, the seed and the step's number. A stage begins with a new
/// epoch.
class Plan {
 public:
  /// `units`: how many a step is dealt into, before anything else. `stages`: one at least, of one step at least each.
  Plan(data::Order order, Index units, std::vector<Stage> stages);

  /// Makes stages end early, each after this many steps of the run. The next one begins there, and is as long as it
  /// was planned.
  /// Throws   FormatError unless they ascend, each before the planned end of another stage but the last
  void end_stages(const std::vector<Index>& steps) { lay_out(steps); }

  /// Makes room in micro-batches for what sequences usually have in common (inputs::with_room_for), and notes how many
  /// rows are left and how dense labels are in them. Both by the first steps of each stage and part of a curriculum.
  void fit_to(const inputs::Records& records);

  /// Steps.
  Index total() const { return total_; }
  const std::vector<Stage>& stages() const { return stages_; }
  /// Of the stage of the first step.
  Index steps_per_epoch() const { return parts_.front().steps.steps_per_epoch(); }

  /// Steps of the run that are done when a stage begins, and when it ends.
  Index begin_of(std::size_t stage) const { return parts_[stage].begin; }
  Index end_of(std::size_t stage) const { return stage + 1 < parts_.size() ? parts_[stage + 1].begin : total_; }

  /// Of an epoch.
  Index sequences() const { return order_.size(); }
  /// Epochs that begin in a stage of this many steps.
  static Index epochs_begun(Index total, const data::StepPlan& epoch);

  /// The stage of a step; the last one's for those past the end.
  Index stage_of(Index step) const;

  /// A part of a curriculum, in steps of the run, and the labels that it may draw.
  struct CurriculumPart {
    Index begin;
    Index end;
    std::vector<std::string> labels;
  };
  /// The one that a step belongs to; nothing where there is no curriculum.
  std::optional<CurriculumPart> curriculum_part(Index step) const;

  /// Keeps the order of one epoch: it belongs to the thread that uses it.
  PlannedStep at(Index step);

  /// The first sample that is not seen before this step; samples are counted over the whole run.
  Index samples_before(Index step) const { return samples_of(step).begin; }

  /// Epochs after `done` steps, as logged.
  double epoch_after(Index done) const;

 private:
  struct Part {
    Index begin;        // step
    Index first_epoch;  // of the run
    data::StepPlan steps;
  };

  void lay_out(const std::vector<Index>& ended);

  Index samples_before_stage(Index stage) const;
  const Part& part_of(Index step) const { return parts_[static_cast<std::size_t>(stage_of(step))]; }

  data::StepPlan::Range samples_of(Index step) const;

  data::Order order_;
  Index units_;
  std::vector<Stage> stages_;
  std::vector<Part> parts_;  // of each stage
  Index total_ = 0;
};

/// The micro-batches of each of a step's units that are `own`. A sequence's place in the step is the same whoever forms
/// it.
std::vector<std::vector<data::Batch>> batches_of(const inputs::Records& records, const PlannedStep& step,
                                                 const comm::OwnUnits& own);

/// Texts are cut into blocks once, for all stages.
/// Throws   ConfigError if a stage would cut blocks, or texts, off
void expect_whole_blocks(const settings::Config& config, const Plan& plan, const inputs::Records& records);

/// A stage with these settings of its own, of `steps` steps.
Stage stage_of(const settings::Config& config, Index steps);

/// The plan of a run of these sequences. `trains`: by stage; empty: all that can, in every stage. `classes`: of the
/// sequences, for a curriculum; null: there is none. `mixture`: of files that are interleaved, in place of `sequences`.
/// Throws   ConfigError where a stage would have no step
Plan plan_of(const settings::Config& config, const data::Sequences& sequences,
             const std::vector<std::function<bool(std::string_view)>>& trains = {},
             const data::SequenceClasses* classes = nullptr, const data::Mixture& mixture = {});

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/plan.ipp"
#endif
