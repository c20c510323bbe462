#pragma once

#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/cpu/runtime/machine.hpp"

namespace lora::run {

namespace detail {

/// The value ("12345 kB") of a field of /proc/self/status, in GiB; 0 if there is none.
double status_gib(std::string_view field);

}  // namespace detail

/// Peak and current resident memory of this process.
inline double peak_memory_gib() { return detail::status_gib("VmHWM:"); }
inline double resident_memory_gib() { return detail::status_gib("VmRSS:"); }

/// The command line, quoted for a shell.
std::string quoted_command(std::span<const char* const> words);

/// Version, instruction sets and compiler of this build.
std::string describe_build();

/// "2025-12-31 23:59 UTC": now.
std::string time_text();

/// The build and the machine, one fact per line, for environment_info.txt.
std::string describe_environment(int threads);

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/environment.ipp"
#endif
