#pragma once

#include "lora/core/config.hpp"
#include "lora/core/environment.hpp"

namespace lora {

LORA_INLINE std::optional<int> environment_number(const char* name, int least, int most, std::string_view expected) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view digits(text);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most)
    fail<ConfigError>("the environment's ", name, " is '", digits, "'; expected ", expected);
  return value;
}

// In a terminal that srun has opened the user starts programs, and srun's variables say nothing of these.
LORA_INLINE bool in_terminal_of_srun() { return std::getenv("SLURM_PTY_PORT") != nullptr; }

LORA_INLINE std::optional<LocalRank> local_rank() {
  for (const char* const name :
       {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    if (in_terminal_of_srun() && std::string_view(name).starts_with("SLURM")) continue;
    if (const auto rank = launcher_number(name)) return LocalRank{name, *rank};
  }
  return std::nullopt;
}

LORA_INLINE Launched launched() {
  const auto several = [](const char* name) {
    const auto count = launcher_number(name);
    return count && *count > 1 ? *count : 1;
  };
  const int all = several("WORLD_SIZE");
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    const int count = several(name);
    if (count == 1) continue;
    if (all > 1 && all != count)
      fail<ConfigError>("the environment's WORLD_SIZE is ", all, ", but its ", name, " is ", count,
                        ": two launchers disagree; unset the variables of one");
    return {name, count, true};
  }
  // torchrun's processes on several nodes are often started by srun, once a node.
  if (all > 1) return {"WORLD_SIZE", all, false};
  // SLURM_NTASKS, which a batch script has too where it starts the program once, says nothing; srun's own variable
  // does.
  const int tasks = in_terminal_of_srun() ? 1 : several("SLURM_STEP_NUM_TASKS");
  if (tasks > 1) return {"SLURM_STEP_NUM_TASKS", tasks, true};
  return {};
}

LORA_INLINE void expect_one_process() {
  const Launched launch = launched();
  if (launch.processes > 1)
    fail<ConfigError>("the environment's ", launch.variable, " is ", launch.processes,
                      ", as a launcher sets it that starts several processes, but this is one process; start one, ",
                      "or unset ", launch.variable);
}

}  // namespace lora
