#pragma once

#include <algorithm>

#include "lora/ascend/runtime/device.hpp"
#include "lora/kernel/buffers.hpp"

namespace lora::kernel {

/// What attention takes to put parts together where sequences have rows in common, and GELU beside its output. What
/// operators take is known only when each is asked, with its operands, and is no part of forecasts. Of training steps
/// of large models all of it was below 3 % of the workspace (tests/ascend/check_steps.py).
template <>
struct Buffers<ascend::Device> {
  static BufferSettings settings(ascend::Device&) { return {}; }
  template <class T>
  static double most(const BufferSettings&, const PassExtents& extents) {
    constexpr auto size = static_cast<double>(sizeof(T));
    const double gelu = 2 * static_cast<double>(extents.rows * extents.gelu) * size;
    if (!extents.trees) return gelu;
    const auto rows = static_cast<double>(extents.rows), width = static_cast<double>(extents.head_dim),
               heads = static_cast<double>(extents.heads), kv_heads = static_cast<double>(extents.kv_heads);
    // Forward a part and what comes of it with their statistics, and those that are not kept; backward sums in float32
    // and a part of the gradients.
    return std::max(gelu,
                    rows * std::max(heads * (2 * width * size + 192), (heads + 2 * kv_heads) * width * (size + 4)));
  }
};

}  // namespace lora::kernel
