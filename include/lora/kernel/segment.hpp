#pragma once

#include "lora/core/scalar.hpp"

namespace lora::kernel {

/// Rows [begin, end) of one sequence.
struct Segment {
  Index begin = 0;
  Index end = 0;
  Index size() const { return end - begin; }
};

}  // namespace lora::kernel
