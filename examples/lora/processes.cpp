#include "processes.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "lora/core/environment.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#if defined(LORA_WITH_MPI)
#  include "lora/comm/mpi.hpp"
#endif

namespace {

using namespace lora;

std::string failed_name;  // of this process among several, while these work together

/// Several processes were started, and this program can't have them work together.
[[noreturn]] void refuse(const Launched& launch) {
  fail<ConfigError>("the environment's ", launch.variable, " is ", launch.processes,
                    ", as a launcher sets it that starts several processes; those of 'lora train' on processors find ",
                    "each other by MPI",
#if defined(LORA_WITH_MPI)
                    ": start them with mpirun or srun",
#else
                    ", which this program was built without",
#endif
                    ", or unset ", launch.variable, " for a single one");
}

}  // namespace

#if defined(LORA_WITH_MPI)

struct Processes::Mpi {
  comm::Mpi ranks{MPI_COMM_WORLD};
};

Processes::Processes() {
  const Launched launch = launched();
  if (launch.processes == 1) return;
  if (!launch.by_mpi) refuse(launch);
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_FUNNELED)
    fail<Error>("MPI does not begin, or not beside threads");
  mpi_ = std::make_unique<Mpi>();
  if (mpi_->ranks.size() == 1)
    fail<ConfigError>("the environment's ", launch.variable, " is ", launch.processes,
                      ", but MPI knows one process: ", "this program was built with another MPI than the launcher's");
  failed_name = concat("rank ", mpi_->ranks.rank(), " on ", std::string_view(mpi_->ranks.host()), ": ");
}

Processes::~Processes() {
  if (mpi_ == nullptr) return;
  if (std::uncaught_exceptions() > 0) {  // others may wait for this one, and are ended once the error is told
    (void)mpi_.release();
    return;
  }
  mpi_.reset();
  failed_name.clear();
  MPI_Finalize();
}

lora::comm::HostRanks* Processes::ranks() { return mpi_ == nullptr ? nullptr : &mpi_->ranks; }

void Processes::share_threads(settings::Config& config) {
  if (mpi_ == nullptr || config.threads) return;
  struct Place {
    char host[128];
    cpu_set_t processors;
  };
  comm::Mpi& ranks = mpi_->ranks;
  std::vector<Place> places(static_cast<std::size_t>(ranks.size()));
  Place& own = places[static_cast<std::size_t>(ranks.rank())];
  std::strncpy(own.host, ranks.host().c_str(), sizeof own.host - 1);
  if (sched_getaffinity(0, sizeof own.processors, &own.processors) != 0) CPU_SET(0, &own.processors);
  std::vector<Index> begins{0};
  while (std::ssize(begins) <= ranks.size()) begins.push_back(begins.back() + static_cast<Index>(sizeof(Place)));
  ranks.gather_on_host(std::as_writable_bytes(std::span(places)), begins);
  cpu_set_t all;
  CPU_ZERO(&all);
  Index here = 0, counted = 0;
  for (const Place& place : places) {
    if (std::strncmp(place.host, own.host, sizeof own.host) != 0) continue;
    ++here;
    counted += CPU_COUNT(&place.processors);
    CPU_OR(&all, &all, &place.processors);
  }
  // Where a launcher has bound each rank to processors of its own, it has shared them out already.
  const bool bound = counted == CPU_COUNT(&all);
  config.threads = std::max<Index>(1, bound ? CPU_COUNT(&own.processors) : CPU_COUNT(&all) / here);
}

std::string Processes::describe(const settings::Config& config) const {
  if (mpi_ == nullptr) return {};
  const comm::Mpi& ranks = mpi_->ranks;
  return concat(ranks.size(), " ranks on ", ranks.hosts(), ranks.hosts() == 1 ? " host, " : " hosts, ",
                config.threads.value_or(1),
                config.threads.value_or(1) == 1 ? " thread each: " : " threads each: ", ranks.size(), " x ",
                config.train_batch_size(), " x ", config.gradient_accumulation_steps, " = ",
                ranks.size() * config.train_batch_size() * config.gradient_accumulation_steps, " sequences a step");
}

void end_all_processes(int status) {
  if (!failed_name.empty()) MPI_Abort(MPI_COMM_WORLD, status);
}

#else

struct Processes::Mpi {};

Processes::Processes() {
  if (const Launched launch = launched(); launch.processes > 1) refuse(launch);
}
Processes::~Processes() = default;
lora::comm::HostRanks* Processes::ranks() { return nullptr; }
void Processes::share_threads(settings::Config&) {}
std::string Processes::describe(const settings::Config&) const { return {}; }
void end_all_processes(int) {}

#endif

std::string name_of_failed_process() {
  if (!failed_name.empty() && !failed_name.starts_with("rank 0 ")) std::this_thread::sleep_for(std::chrono::seconds(2));
  return failed_name;
}
