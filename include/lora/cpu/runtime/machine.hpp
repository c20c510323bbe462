#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"

namespace lora::cpu {

namespace detail {

/// The control groups of this process for one resource, innermost first, each a folder of files; of version 2 and of
/// version 1. A container often sees its own group at the mount's root, hence every prefix of the path is tried.
std::vector<std::string> control_groups(const std::string& root, std::string_view controller);

/// The first word of a file as a number; nothing where there is no file or the word is "max".
std::optional<double> first_number(const std::string& path);

/// The number behind `key` in a file of "key value" lines.
std::optional<double> number_after(const std::string& path, std::string_view key);

struct MemoryLimit {
  double limit = std::numeric_limits<double>::infinity();      ///< the tightest limit above this process
  double available = std::numeric_limits<double>::infinity();  ///< the least that is left below a limit
};

MemoryLimit group_memory(const std::string& root);

double group_cpus(const std::string& root);

}  // namespace detail

/// Threads that can run at once: the CPUs of this process's affinity mask, no more than its control groups' quota,
/// rounded up. `root` is where /proc and /sys are found.
int available_threads(const std::string& root = "");

/// Bytes that this process can have at most: physical memory or a control group's limit.
std::size_t total_memory(const std::string& root = "");

/// Bytes that this process can still allocate: what the machine has available, within its control groups' limits.
std::size_t available_memory(const std::string& root = "");

/// The size of the system's large pages, whether it gives them or not; 0 where it has none.
inline std::size_t large_page_bytes(const std::string& root = "") {
  return static_cast<std::size_t>(
      detail::first_number(root + "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").value_or(0));
}

/// The processor's name, or nothing where the system doesn't say.
std::string processor_name(const std::string& root = "");

}  // namespace lora::cpu

#ifndef LORA_COMPILED
#  include "lora/cpu/runtime/machine.ipp"
#endif
