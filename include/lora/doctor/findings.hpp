#pragma once

#include <sys/statvfs.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/cpu/kernels/gemm.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/io/files/scratch_file.hpp"
#include "lora/run/environment.hpp"

namespace lora::doctor {

/// What was found of a part of the machine or of this build.
struct Finding {
  enum class State {
    ok,
    note,    ///< works, and could be better or be missed
    missing  ///< runs that need it can't work
  };

  std::string part;
  State state = State::ok;
  std::string found{};
  std::string advice{};  ///< what to do about it; empty: nothing
};

constexpr std::string_view name_of(Finding::State state) {
  constexpr std::string_view names[] = {"ok", "note", "missing"};
  return names[static_cast<std::size_t>(state)];
}

namespace detail {

inline std::string gib_text(double bytes) { return concat(fixed(bytes / 0x1p30, 1), " GiB"); }

}  // namespace detail

/// What a run on the CPU would find. `root` is where /proc and /sys are found.
std::vector<Finding> examine(cpu::Device& dev, const std::string& root = "");

}  // namespace lora::doctor

#ifndef LORA_COMPILED
#  include "lora/doctor/findings.ipp"
#endif
