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
std::optional<int> environment_number(const char* name, int least, int most, std::string_view expected);

/// A number that a launcher of processes has set, such as LOCAL_RANK; nothing where it has not.
/// Throws   ConfigError for what is no number from 0 on
inline std::optional<int> launcher_number(const char* name) {
  return environment_number(name, 0, std::numeric_limits<int>::max(), "a number from 0 on, as launchers set it");
}

/// Which of its host's processes this is, as the launcher (torchrun, mpirun, srun) says by some variable.
struct LocalRank {
  const char* variable;
  int number;
};
/// Nothing where no launcher has set one.
/// Throws   ConfigError for what is no number from 0 on
std::optional<LocalRank> local_rank();

/// A variable by which a launcher (torchrun, mpirun, srun) says how many processes it has started, of this program too.
struct Launched {
  const char* variable = nullptr;
  int processes = 1;
  bool by_mpi = false;  ///< its processes find each other by MPI
};
/// Throws   ConfigError for what is no number from 0 on
Launched launched();

/// Throws   ConfigError where a launcher has started this program several times: each would work alone
void expect_one_process();

}  // namespace lora

#ifndef LORA_COMPILED
#  include "lora/core/environment.ipp"
#endif
