#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/model/description/module_pattern.hpp"
#include "lora/model/description/tensors.hpp"

namespace lora::model {

/// The names of a model's own tensors that train: those in which one of the regular expressions is found, or all
/// without any.
/// Throws   ConfigError for an expression that is not understood, or that is found in no name
std::set<std::string, std::less<>> trainable_tensors(const Config& config, const std::vector<std::string>& expressions);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/decoder/trainable.ipp"
#endif
