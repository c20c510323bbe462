#pragma once

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace lora::cpu::detail {

/// The processors that a control group's folder says it may use, by version 2 or 1; nothing where there is no quota.
inline std::optional<double> quota_of(const std::string& folder) {
  double quota = -1, period = 0;
  if (!(std::ifstream(folder + "/cpu.max") >> quota >> period)) {
    quota = -1, period = 0;
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  if (quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

/// A part of a processor counts as a whole one, unless it is less than a thousandth.
inline int whole_processors(double quota) {
  if (!(quota > 0)) return 1;  // no number either
  return static_cast<int>(std::clamp(quota + 0.999, 1.0, static_cast<double>(CPU_SETSIZE)));
}

}  // namespace lora::cpu::detail
