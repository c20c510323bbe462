#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lora::cpu {

/// What a control group lets its processes have together.
struct CpuQuota {
  std::uint64_t group = 0;  ///< a number that no other group of this machine has
  double processors = 0;
};

/// The processors that a process may use, as a value of fixed size that processes can exchange.
struct Processors {
  static constexpr std::size_t most_quotas = 8;

  cpu_set_t mask{};
  std::size_t quotas = 0;  ///< so many, innermost first; of more than these the inner ones
  CpuQuota quota[most_quotas]{};
};

/// This process's. `root` is where /proc and /sys are found.
Processors own_processors(const std::string& root = "");

/// Threads for each of the processes that run together on one machine, and the processors that all of them may use.
struct SharedThreads {
  std::vector<int> each{};
  int processors = 0;
};

/// Processors are shared out evenly, and so is the quota of a control group among those that are in it, whose parts are
/// whole ones: they wait for each other, and one that the quota stops keeps all. Where a launcher has bound each
/// process to processors of its own, it has shared them out already. Each gets one at least.
SharedThreads share_threads(std::span<const Processors> processes);

}  // namespace lora::cpu

#ifndef LORA_COMPILED
#  include "lora/cpu/runtime/processors.ipp"
#endif
