#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "lora/core/config.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/cpu/runtime/processors.hpp"
#include "lora/cpu/runtime/quota.hpp"

namespace lora::cpu {

LORA_INLINE Processors own_processors(const std::string& root) {
  Processors own;
  if (sched_getaffinity(0, sizeof own.mask, &own.mask) != 0 || CPU_COUNT(&own.mask) == 0) {
    CPU_ZERO(&own.mask);
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) CPU_SET(i, &own.mask);
  }
  for (const std::string& folder : detail::control_groups(root, "cpu")) {
    struct stat about {};
    const auto quota = detail::quota_of(folder);
    if (!quota || own.quotas == Processors::most_quotas || ::stat(folder.c_str(), &about) != 0) continue;
    // A container sees the path of its group from its own root; the folder is the same one for all who see it.
    own.quota[own.quotas++] = {about.st_ino, *quota};
  }
  return own;
}

LORA_INLINE SharedThreads share_threads(std::span<const Processors> processes) {
  const auto quotas_of = [](const Processors& one) {  // which may have come over a network
    return std::span(one.quota, std::min(one.quotas, Processors::most_quotas));
  };
  cpu_set_t all;
  CPU_ZERO(&all);
  int counted = 0;
  std::map<std::uint64_t, int> members;
  for (const Processors& one : processes) {
    counted += CPU_COUNT(&one.mask);
    CPU_OR(&all, &all, &one.mask);
    std::set<std::uint64_t> groups;
    for (const CpuQuota& quota : quotas_of(one))
      if (groups.insert(quota.group).second) ++members[quota.group];
  }
  const int united = CPU_COUNT(&all);
  const bool bound = counted == united;
  SharedThreads result;
  double allowed = 0;  // by the quotas
  for (const Processors& one : processes) {
    int threads = bound ? CPU_COUNT(&one.mask) : united / static_cast<int>(processes.size());
    double part = united;
    for (const CpuQuota& quota : quotas_of(one)) {
      const int count = members[quota.group];
      threads = std::min(threads, detail::whole_processors(quota.processors) / count);
      part = std::min(part, quota.processors / count);
    }
    allowed += part;
    result.each.push_back(std::max(1, threads));
  }
  result.processors = std::min(united, detail::whole_processors(allowed));
  return result;
}

}  // namespace lora::cpu
