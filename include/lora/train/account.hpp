#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/run_state.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/plan.hpp"
#include "lora/train/step.hpp"

// What a step that was done adds to the state of its run, and what is logged of it.

namespace lora::train {

/// `applied`: the step's gradient was applied, which made `updates` in all. An overflow makes the loss scale smaller.
void add_step(run::RunState& state, const StepResult& result, bool applied, Index updates, const Plan& plan);

namespace detail {

/// Adds the records of all ranks' micro-batches to `counts`, each to the number that `place_of(record)` names, if any.
template <class PlaceOf>
void add_records(std::vector<std::pair<std::string, Index>>& counts, comm::Ranks& ranks,
                 std::span<const std::vector<data::Batch>> units, const PlaceOf& place_of) {
  std::vector<double> own(counts.size(), 0.0);
  for (const auto& unit : units)
    for (const data::Batch& batch : unit)
      for (const Index record : batch.records)
        if (const std::optional<std::size_t> place = place_of(record)) ++own[*place];
  const auto all = ranks.all_gather(own);
  for (std::size_t i = 0; i < all.size(); ++i) counts[i % counts.size()].second += static_cast<Index>(all[i]);
}

}  // namespace detail

/// Adds the classes of a step's records that were learned from, in part `part` of a curriculum. `units`: this rank's.
/// `label_of(record)`: its class.
template <class LabelOf>
void add_drawn(run::RunState& state, const Plan::CurriculumPart& part, comm::Ranks& ranks,
               std::span<const std::vector<data::Batch>> units, const LabelOf& label_of) {
  if (state.drawn.empty() || state.drawn.back().from_step != part.begin) {
    state.drawn.push_back({part.begin, part.begin});
    for (const std::string& label : part.labels) state.drawn.back().counts.emplace_back(label, 0);
  }
  run::DrawnClasses& drawn = state.drawn.back();
  drawn.to_step = state.step;
  detail::add_records(drawn.counts, ranks, units, [&](Index record) -> std::optional<std::size_t> {
    const std::string& own = label_of(record);
    const auto at = std::lower_bound(drawn.counts.begin(), drawn.counts.end(), own,
                                     [](const auto& count, const std::string& text) { return count.first < text; });
    if (at == drawn.counts.end() || at->first != own) return std::nullopt;
    return static_cast<std::size_t>(at - drawn.counts.begin());
  });
}

/// Adds the files of a step's records that were learned from; `names` is empty where they are not counted. `units`:
/// this rank's. `file_of(record)`: the number of its file.
template <class FileOf>
void add_files(run::RunState& state, std::span<const std::string> names, comm::Ranks& ranks,
               std::span<const std::vector<data::Batch>> units, const FileOf& file_of) {
  state.learned_of_files.resize(names.size());  // of an earlier version's checkpoint: counted from there on
  for (std::size_t i = 0; i < names.size(); ++i) state.learned_of_files[i].first = names[i];
  if (names.empty()) return;
  detail::add_records(state.learned_of_files, ranks, units,
                      [&](Index record) { return std::optional(static_cast<std::size_t>(file_of(record))); });
}

/// Each count as a share of all.
std::vector<std::pair<std::string, double>> shares_of(const std::vector<std::pair<std::string, Index>>& counts);

/// Of the step that was added last and took `seconds`.
run::StepMetrics metrics_of(const run::RunState& state, const StepResult& result, bool applied, double learning_rate,
                            double seconds, const Plan& plan);

/// What metric_for_best_model names, so that less is better.
double cost_of(const model::Evaluation& evaluation, std::string_view name);

/// Whether an evaluation is the best so far that can be loaded. `config`: by which metric, and what is an improvement.
/// Patience is that of a stage, which compares with its own evaluations alone; `stage`: the one whose step was done
/// last.
/// Source   transformers, EarlyStoppingCallback
bool add_evaluation(run::RunState& state, const model::Evaluation& evaluation, const settings::Config& config,
                    Index stage = 0);

/// Whether evaluations have not improved for as long as the settings allow.
bool is_out_of_patience(const run::RunState& state, const settings::Config& config);

/// Whether a run has ended early, for these settings too: a larger patience, or none, lets it go on.
bool stays_ended(const run::RunState& state, const settings::Config& config);

/// What a state says of its run: only values that are the same in two runs with the same bits.
run::RunMetrics lasting_metrics(const run::RunState& state, const Plan& plan, const std::string& absent_class_field);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/account.ipp"
#endif
