#pragma once

#include <cstdlib>

#include "lora/core/config.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/cpu/runtime/quota.hpp"

namespace lora::cpu {

namespace detail {

LORA_INLINE std::vector<std::string> control_groups(const std::string& root, std::string_view controller) {
  std::vector<std::string> folders;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = concat(',', line.substr(first + 1, second - first - 1), ',');
    const bool unified = names == ",,";
    if (!unified && names.find(concat(',', controller, ',')) == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string mount = concat(root, "/sys/fs/cgroup", unified ? "" : "/", unified ? "" : controller);
    while (true) {
      folders.push_back(mount + path);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return folders;
}

LORA_INLINE std::optional<double> first_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

LORA_INLINE std::optional<double> number_after(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const char* digits = line.c_str() + key.size();
    char* end = nullptr;
    const double value = std::strtod(digits, &end);
    if (end != digits) return value;
  }
  return std::nullopt;
}

LORA_INLINE MemoryLimit group_memory(const std::string& root) {
  MemoryLimit result;
  for (const std::string& folder : control_groups(root, "memory")) {
    auto limit = first_number(folder + "/memory.max");
    auto used = first_number(folder + "/memory.current");
    auto cache = number_after(folder + "/memory.stat", "inactive_file ");
    if (!limit) {
      limit = first_number(folder + "/memory.limit_in_bytes");
      used = first_number(folder + "/memory.usage_in_bytes");
      cache = number_after(folder + "/memory.stat", "total_inactive_file ");
    }
    if (!limit) continue;
    result.limit = std::min(result.limit, *limit);
    // Cached file pages count as used, but the kernel drops them before it refuses memory.
    const double held = std::max(0.0, used.value_or(0) - cache.value_or(0));
    result.available = std::min(result.available, std::max(0.0, *limit - held));
  }
  return result;
}

LORA_INLINE double group_cpus(const std::string& root) {
  double cpus = std::numeric_limits<double>::infinity();
  for (const std::string& folder : control_groups(root, "cpu")) cpus = std::min(cpus, quota_of(folder).value_or(cpus));
  return cpus;
}

}  // namespace detail

LORA_INLINE int available_threads(const std::string& root) {
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_COUNT(&mask) > 0) threads = CPU_COUNT(&mask);
  const double quota = detail::group_cpus(root);
  if (quota < threads) threads = detail::whole_processors(quota);
  return threads;
}

LORA_INLINE std::size_t total_memory(const std::string& root) {
  double bytes = detail::group_memory(root).limit;
  if (const auto total = detail::number_after(root + "/proc/meminfo", "MemTotal:"))
    bytes = std::min(bytes, *total * 1024);
  const double physical = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return static_cast<std::size_t>(std::min(bytes, physical));
}

LORA_INLINE std::size_t available_memory(const std::string& root) {
  double bytes = detail::group_memory(root).available;
  if (const auto free = detail::number_after(root + "/proc/meminfo", "MemAvailable:"))
    bytes = std::min(bytes, *free * 1024);
  return static_cast<std::size_t>(std::min(bytes, static_cast<double>(total_memory(root))));
}

LORA_INLINE std::string processor_name(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 10, "model name") != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace lora::cpu
