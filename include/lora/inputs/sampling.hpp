#pragma once

#include "lora/decode/sampling.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/settings/config.hpp"

namespace lora::inputs {

/// How a run's answers are drawn: as its keys say and, with the key sample, where they are not given as the model's
/// generation_config.json has it, else as transformers' defaults. A line tells what was taken from where, and a warning
/// what of that file is not followed: without sample of where answers end alone.
/// Throws   FormatError
decode::Sampling sampling_of(const settings::Config& config, const model::Source& source);

/// Warns where the model's generation_config.json ends answers in a way that is not followed: for answers that are
/// always greedy.
/// Throws   FormatError
void warn_of_ends(const model::Source& source);

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/sampling.ipp"
#endif
