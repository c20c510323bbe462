#pragma once

#include "lora/ascend/device.hpp"
#include "lora/kernel/buffers.hpp"

namespace lora::kernel {

/// What operators take is known only when each is asked, with its operands, and is no part of forecasts. Of training
/// steps of large models all of it was below 3 % of the workspace (tests/ascend/check_steps.py).
template <>
struct Buffers<ascend::Device> {
  static BufferSettings settings(ascend::Device&) { return {}; }
  template <class T>
  static double most(const BufferSettings&, const PassExtents&) {
    return 0;
  }
};

}  // namespace lora::kernel
