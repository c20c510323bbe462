#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/scalar.hpp"

namespace lora::train {

namespace detail {

/// Names of as many parts that stand between dots; of each part, the texts that come there.
using NameGroup = std::vector<std::vector<std::string>>;

bool is_number(const std::string& text);

std::string text_of(const NameGroup& group, std::size_t without = std::string::npos);

}  // namespace detail

/// The names of tensors, in short: "model.norm.weight, model.layers.0..27.self_attn.{q_proj,k_proj}.weight".
std::string tensor_names(const std::vector<std::string>& names);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/tensor_names.ipp"
#endif
