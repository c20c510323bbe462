#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lora/data/batches/batch.hpp"
#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/inputs/records.hpp"
#include "lora/model/decoder/finite.hpp"
#include "lora/run/run_state.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/step.hpp"

// What is said of a step whose loss or gradient is NaN or infinite.

namespace lora::train {

/// The step's result and the records that it was formed from.
std::string describe_non_finite(Index step, const StepResult& result, std::span<const std::vector<data::Batch>> units,
                                const inputs::Records& records);

/// The weight that may be the cause, as the end of a sentence: one that is not finite or, before the first update, the
/// largest. Reads all weights. Empty of a model that training from scratch began with.
template <AnyDevice D>
std::string spoiled_weight(D& dev, const settings::Config& config, const model::Source& source, Index updates) {
  if (source.is_initial()) return {};
  std::optional<model::AdapterFiles> start;
  if (!config.adapter_name_or_path.empty())
    start.emplace(model::open_adapter(inputs::find_adapter(config.adapter_name_or_path)));
  const auto extreme = model::extreme_number(dev, source, start ? &*start : nullptr);
  return !extreme.finite() || updates == 0 ? "; " + model::describe(extreme) : "";
}

/// What becomes of a step's gradient.
struct StepOutcome {
  bool applies = false;
  std::string failure{};  ///< why the run ends, if it does
};

/// It is applied if it is finite. If it overflows at a loss scale, the step is skipped; if it is not finite otherwise,
/// the run ends or the step is skipped, as on_non_finite says. Counts what is skipped. `spoiled`: see spoiled_weight.
StepOutcome outcome_of(const StepResult& result, std::span<const std::vector<data::Batch>> units, const Prepared& run,
                       run::RunState& state, const std::function<std::string()>& spoiled);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/non_finite.ipp"
#endif
