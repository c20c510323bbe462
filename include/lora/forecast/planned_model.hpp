#pragma once

#include <optional>

#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/model_files.hpp"

namespace lora::forecast {

/// A model that may lack its weights.
struct PlannedModel {
  model::Source source;
  std::optional<DType> declared{};  ///< that its config.json says of weights that are not there

  /// The type of its layers' matrices.
  DType stored_dtype() const { return declared ? *declared : source.stored_dtype(); }
};

/// The model that settings name: a shape by model_preset, a folder or file with weights, or a folder with config.json
/// alone.
/// Throws   ConfigError, FormatError, IoError
PlannedModel planned_model(const settings::Config& config);

/// What of a model a run trains. `declared`: as above. The source outlives it.
model::Blueprint blueprint_of(const settings::Config& config, const model::Source& source,
                              const std::optional<DType>& declared);

}  // namespace lora::forecast

#ifndef LORA_COMPILED
#  include "lora/forecast/planned_model.ipp"
#endif
