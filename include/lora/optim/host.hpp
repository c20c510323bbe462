#pragma once

#include <cstddef>
#include <optional>

#include "lora/cpu/kernels/elementwise.hpp"
#include "lora/cpu/kernels/optimizer.hpp"
#include "lora/cpu/runtime/device.hpp"

namespace lora::optim {

/// The host beside a device, where an optimizer's state may lie and its step be made.
using Host = cpu::Device;

/// Where the optimizer's state lies.
struct StatePlace {
  bool on_host = false;                 ///< of a device that can't read the host's memory
  int threads = 0;                      ///< of the host, to make the step; 0: what the machine allows
  std::optional<std::size_t> memory{};  ///< available to this process on the host; what the machine says
  std::optional<Index> piece{};         ///< AdamW's elements that travel together; its own
};

}  // namespace lora::optim
