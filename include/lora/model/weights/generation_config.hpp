#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/model/weights/weights.hpp"

namespace lora::model {

/// How a model's makers would have its answers drawn, as far as its generation_config.json says; nothing for null.
struct SamplingAdvice {
  std::optional<double> temperature{};
  std::optional<double> top_p{};
  std::optional<Index> top_k{};
  std::optional<double> min_p{};
  std::optional<double> repetition_penalty{};
};

/// Where a model's generation_config.json is; nothing of a GGUF file, or of a folder without one.
std::optional<io::Path> generation_config_of(const Source& source);

/// Throws   FormatError for numbers with which nothing can be drawn
SamplingAdvice sampling_advice(const io::JsonView& generation_config);

/// The names of what else in that file would change answers, which nothing here follows.
std::vector<std::string> unfollowed_advice(const io::JsonView& generation_config);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/weights/generation_config.ipp"
#endif
