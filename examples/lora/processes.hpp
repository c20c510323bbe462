#pragma once

#include <memory>
#include <string>

#include "lora/comm/on_host.hpp"
#include "lora/core/environment.hpp"
#include "lora/doctor/findings.hpp"
#include "lora/settings/config.hpp"

/// The processes that a launcher has started together, this one among them. Where it has started only this one, there
/// are none. From its begin to its end a program that an error ends ends the others too.
class Processes {
 public:
  /// By MPI, or for devices with links of their own where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say.
  /// Throws   ConfigError where several were started and this program can't have them work together
  explicit Processes(const lora::settings::Config& config);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  /// Null for a single one.
  lora::comm::HostRanks* ranks() { return ranks_.get(); }
  bool speaks() { return ranks() == nullptr || ranks()->rank() == 0; }
  /// Threads for this one, where the settings leave them open: the processors of its host are shared out. The first of
  /// a host warns where its ranks have more threads than processors.
  void share_threads(lora::settings::Config& config);
  /// A line about them.
  std::string describe(const lora::settings::Config& config) const;

 private:
  void meet_by_mpi(const lora::Launched& launch);

  std::unique_ptr<lora::comm::HostRanks> ranks_;
  [[maybe_unused]] bool by_mpi_ = false;  // without MPI it says nothing
  int hosts_ = 1;
};

/// Which MPI the program was built with, for doctor.
lora::doctor::Finding mpi_finding();

/// "4 x 2 x 8 = 64 sequences a step, zero_stage 2": what a step of so many processes has, and what they share out.
std::string text_of_step(lora::Index processes, const lora::settings::Config& config);

/// What an error of this process is introduced by where there are several: "rank 3 on host: ". A rank behind the first
/// waits, for the first, which most often has the same error, is to say it.
std::string name_of_failed_process();
/// Ends all processes, if there are several.
void end_all_processes(int status);
