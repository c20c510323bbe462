#pragma once

#include "lora/core/config.hpp"
#include "lora/core/log.hpp"
#include "lora/train/non_finite.hpp"

namespace lora::train {

LORA_INLINE std::string describe_non_finite(Index step, const StepResult& result,
                                            std::span<const std::vector<data::Batch>> units,
                                            const inputs::Records& records) {
  std::string places;
  for (const auto& unit : units)
    for (const auto& batch : unit)
      for (const Index record : batch.records) places += (places.empty() ? "" : ", ") + records.where(record);
  return concat("step ", step, ": loss ", result.loss, ", gradient norm ", result.grad_norm, "; its records: ", places);
}

LORA_INLINE StepOutcome outcome_of(const StepResult& result, std::span<const std::vector<data::Batch>> units,
                                   const Prepared& run, run::RunState& state,
                                   const std::function<std::string()>& spoiled) {
  const std::string name = concat("step ", state.step + 1);
  if (!result.has_labels()) {
    log::warn(name, " has no labeled token and is skipped");
    return {};
  }
  if (result.finite()) return {true};
  if (state.loss_scale && result.overflows() && state.loss_scale->can_shrink()) {
    log::info(name, ": the gradient overflows at loss scale ", result.loss_scale,
              "; the step is skipped, and the scale halves");
    ++state.overflows;
    return {};
  }
  std::string what = describe_non_finite(state.step + 1, result, units, run.data.train());
  if (state.loss_scale) what += "; float16 ends at 65504, dtype bfloat16 and float32 don't";
  if (run.config.on_non_finite != "skip") return {false, what};
  log::warn(what, state.skipped == 0 ? spoiled() : "", "; the step is skipped");
  ++state.skipped;
  return {};
}

}  // namespace lora::train
