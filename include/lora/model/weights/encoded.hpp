#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"

namespace lora::model {

/// Float32 values as they are stored: rounded to nearest, ties to even; in Q8_0, of which they are whole blocks, by
/// GGML's reference: d = max |x| / 127 in half precision, and each x / d rounded half away from zero.
/// `name`: the tensor, in errors. Throws   NonFiniteError where what would be stored is no finite number
std::vector<std::byte> encoded(std::span<const float> values, DType dtype, const std::string& name);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/weights/encoded.ipp"
#endif
