#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/model/weights.hpp"

namespace lora::model {

/// How a model's makers would have its answers drawn, as far as its generation_config.json says; nothing for null.
struct SamplingAdvice {
  std::optional<double> temperature{};
  std::optional<double> top_p{};
  std::optional<Index> top_k{};
  std::optional<double> min_p{};
  std::optional<double> repetition_penalty{};
};

/// Nothing of a GGUF file, or of a folder without generation_config.json.
/// Throws   FormatError for numbers with which nothing can be drawn
SamplingAdvice sampling_advice(const Source& source);

/// The names of what else in that file would change answers, which nothing here follows.
std::vector<std::string> unfollowed_advice(const Source& source);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/generation_config.ipp"
#endif
