#pragma once

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/io/file.hpp"

namespace lora::train {

namespace detail {

/// The content of a small file of the system; empty where it does not exist.
inline std::string system_text(const io::Path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  try {
    return io::read_file(path);
  } catch (const IoError&) {
    return {};  // hidden by a sandbox: the same as absent
  }
}

/// The value after "name:" in a file of lines; empty where there is none.
inline std::string_view field_of(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(name)) {
      const std::size_t colon = line.find(':', name.size());
      const std::size_t value = line.find_first_not_of(" \t", colon == line.npos ? line.size() : colon + 1);
      return value == line.npos ? std::string_view() : line.substr(value);
    }
    at = end + 1;
  }
  return {};
}

inline std::optional<double> leading_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

}  // namespace detail

/// Memory of this process in GiB, as /proc/self/status names it: VmHWM the peak, VmRSS now; 0 where it is not known.
inline double memory_gib(std::string_view field) {
  const std::string status = detail::system_text("/proc/self/status");
  return detail::leading_number(detail::field_of(status, field)).value_or(0) / 0x1p20;  // the file says kB
}

inline double peak_memory_gib() { return memory_gib("VmHWM"); }

/// The machine's memory in GiB; 0 where it is not known.
inline double machine_memory_gib() {
  const std::string memory = detail::system_text("/proc/meminfo");
  return detail::leading_number(detail::field_of(memory, "MemTotal")).value_or(0) / 0x1p20;
}

namespace detail {

/// Calls `visit` with the folder of this process's cgroup and with every folder above it.
template <class Visit>
void for_each_cgroup(std::string_view controller, const Visit& visit) {
  const std::string groups = system_text("/proc/self/cgroup");
  for (std::size_t at = 0; at < groups.size();) {
    const std::size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string_view line = std::string_view(groups).substr(at, end - at);
    at = end + 1;
    const std::size_t first = line.find(':'), second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && (concat(",", controllers, ",").find(concat(",", controller, ",")) == std::string::npos)) continue;
    const io::Path root = unified ? io::Path("/sys/fs/cgroup") : io::Path("/sys/fs/cgroup") / controllers;
    io::Path group = io::Path(line.substr(second + 1)).relative_path();
    for (;;) {
      visit(group.empty() ? root : root / group);
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
}

}  // namespace detail

/// The memory that this process may use, by its cgroups, in GiB; nothing where there is no limit.
inline std::optional<double> memory_limit_gib() {
  std::optional<double> limit;
  detail::for_each_cgroup("memory", [&](const io::Path& group) {
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      const auto bytes = detail::leading_number(detail::system_text(group / name));
      if (bytes && *bytes < 0x1p60) limit = std::min(limit.value_or(*bytes), *bytes);
    }
  });
  if (limit) *limit /= 0x1p30;
  return limit;
}

/// As many threads as the affinity mask and the cgroups' processor quota allow.
inline int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int threads =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const auto apply = [&](std::optional<double> quota, std::optional<double> period) {
    if (quota && period && *quota > 0 && *period > 0)
      threads = std::min(threads, std::max(1, static_cast<int>(std::ceil(*quota / *period))));
  };
  detail::for_each_cgroup("cpu", [&](const io::Path& group) {
    const std::string both = detail::system_text(group / "cpu.max");  // "max 100000" or "150000 100000"
    const std::size_t space = both.find(' ');
    if (space != both.npos)
      apply(detail::leading_number(both), detail::leading_number(std::string_view(both).substr(space + 1)));
    apply(detail::leading_number(detail::system_text(group / "cpu.cfs_quota_us")),
          detail::leading_number(detail::system_text(group / "cpu.cfs_period_us")));
  });
  return std::max(1, threads);
}

/// The command line as a shell reads it back.
inline std::string quoted_command(std::span<const char* const> words) {
  std::string line;
  for (const std::string_view word : words) {
    if (!line.empty()) line += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) ||
             std::string_view("_-./=,:+@%").find(c) != std::string_view::npos;
    });
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) c == '\'' ? line += "'\\''" : line += c;
    line += '\'';
  }
  return line;
}

/// What this program was compiled for and with.
inline std::string describe_build() {
  std::string features;
  const auto add = [&](std::string_view name) { features += concat(features.empty() ? "" : " ", name); };
#if defined(__x86_64__)
  add("x86-64");
#elif defined(__aarch64__)
  add("aarch64");
#endif
#ifdef __SSE4_2__
  add("sse4.2");
#endif
#ifdef __AVX2__
  add("avx2");
#endif
#ifdef __FMA__
  add("fma");
#endif
#ifdef __AVX512F__
  add("avx512f");
#endif
#ifdef __AVX512BF16__
  add("avx512bf16");
#endif
#ifdef __AMX_BF16__
  add("amx-bf16");
#endif
#ifdef __ARM_FEATURE_BF16
  add("bf16");
#endif
#ifdef __clang__
  return concat("lora ", LORA_VERSION, " for ", features, ", clang ", __clang_version__);
#else
  return concat("lora ", LORA_VERSION, " for ", features, ", gcc ", __VERSION__);
#endif
}

/// The machine and the build, a fact per line: environment_info.txt.
inline std::string describe_environment(int threads) {
  utsname system{};
  uname(&system);
  const std::string cpu = detail::system_text("/proc/cpuinfo");
  const auto limit = memory_limit_gib();
  std::string text = concat("build: ", describe_build(), "\n");
  text += concat("system: ", std::string_view(system.sysname), " ", std::string_view(system.release), " ",
                 std::string_view(system.machine), "\n");
  const std::string_view model = detail::field_of(cpu, "model name");
  if (!model.empty()) text += concat("processor: ", model, "\n");
  text += concat("threads: ", threads, " (available ", available_threads(), ")\n");
  text += concat("memory: ", std::round(machine_memory_gib() * 10) / 10, " GiB",
                 limit ? concat(", limited to ", std::round(*limit * 10) / 10, " GiB") : "", "\n");
  return text;
}

}  // namespace lora::train
