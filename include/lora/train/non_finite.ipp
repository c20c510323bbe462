#pragma once

#include "lora/core/config.hpp"
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

}  // namespace lora::train
