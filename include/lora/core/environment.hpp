#pragma once

#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "lora/core/error.hpp"

namespace lora {

/// A number from `least` to `most` that the environment sets; nothing where it does not.
/// Throws   ConfigError for anything else, and says what was `expected`
inline std::optional<int> environment_number(const char* name, int least, int most, std::string_view expected) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view digits(text);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most)
    fail<ConfigError>("the environment's ", name, " is '", digits, "'; expected ", expected);
  return value;
}

/// A number that a launcher of processes has set, such as LOCAL_RANK; nothing where it has not.
/// Throws   ConfigError for what is no number from 0 on
inline std::optional<int> launcher_number(const char* name) {
  return environment_number(name, 0, std::numeric_limits<int>::max(), "a number from 0 on, as launchers set it");
}

/// A run is one process so far.
/// Throws   ConfigError where a launcher (torchrun, mpirun, srun) has started this program several times: each would
///          train alone
inline void expect_one_process() {
  // SLURM_NTASKS, which a batch script has too where it starts the program once, says nothing; srun's own variable
  // does, but in a terminal that srun has opened, where the user starts programs.
  const bool in_terminal = std::getenv("SLURM_PTY_PORT") != nullptr;
  for (const char* const name :
       {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (in_terminal && std::string_view(name).starts_with("SLURM")) continue;
    if (const auto count = launcher_number(name); count && *count > 1)
      fail<ConfigError>("the environment's ", name, " is ", *count,
                        ", as a launcher sets it that starts several processes, but a run is one process; start one, ",
                        "or unset ", name);
  }
}

}  // namespace lora
