#include "processes.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lora/comm/meeting.hpp"
#include "lora/core/environment.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/runtime/processors.hpp"
#include "lora/run/environment.hpp"
#include "lora/settings/device_name.hpp"
#include "lora/train/same_on_ranks.hpp"
#if defined(LORA_WITH_MPI)
#  include "lora/comm/mpi.hpp"
#endif

namespace {

using namespace lora;

std::string failed_name;  // of this process among several, while these work together

}  // namespace

Processes::Processes(const settings::Config& config) {
  const Launched launch = launched();
  if (launch.processes == 1) {
    (void)comm::meeting_place();  // where only a part of it is said
    return;
  }
  if (launch.by_mpi) {
    meet_by_mpi(launch);
  } else {
    const auto name = settings::parse_device(config.device).value_or(settings::DeviceName{});
    bool has_npus = name.kind != settings::DeviceName::Kind::cpu;
#if !defined(LORA_WITH_ASCEND)
    has_npus = false;
#endif
    if (!has_npus)
      fail<ConfigError>("the environment's ", launch.variable, " is ", launch.processes,
                        ", as a launcher sets it that starts several processes, but those of 'lora train' on ",
                        "processors find each other by MPI: start them with mpirun or srun, or unset ", launch.variable,
                        " for a single one");
    ranks_ = std::make_unique<comm::Meeting>(*comm::meeting_place(), run::describe_build(),
                                             std::chrono::duration<double>(config.ddp_timeout), comm::Socket{},
                                             train::facts_of_settings(config));
  }
  failed_name = concat("rank ", ranks_->rank(), " on ", std::string_view(ranks_->host()), ": ");
}

void Processes::share_threads(settings::Config& config) {
  if (ranks_ == nullptr) return;
  struct Place {
    char host[256];
    cpu::Processors processors;
    Index threads;  // 0: those that it is given here
  };
  std::vector<Place> places(static_cast<std::size_t>(ranks_->size()));
  Place& own = places[static_cast<std::size_t>(ranks_->rank())];
  std::strncpy(own.host, ranks_->host_and_boot().c_str(), sizeof own.host - 1);
  own.processors = cpu::own_processors();
  own.threads = config.threads.value_or(0);
  std::vector<Index> begins{0};
  while (std::ssize(begins) <= ranks_->size()) begins.push_back(begins.back() + static_cast<Index>(sizeof(Place)));
  ranks_->gather_on_host(std::as_writable_bytes(std::span(places)), begins);
  std::vector<const Place*> here;
  std::vector<cpu::Processors> processors_here;
  std::set<std::string> hosts;
  for (const Place& place : places) {
    hosts.emplace(place.host, ::strnlen(place.host, sizeof place.host));
    if (std::strncmp(place.host, own.host, sizeof own.host) != 0) continue;
    here.push_back(&place);
    processors_here.push_back(place.processors);
  }
  hosts_ = static_cast<int>(hosts.size());
  const cpu::SharedThreads shared = cpu::share_threads(processors_here);
  Index threads = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const Index given = here[i]->threads > 0 ? here[i]->threads : shared.each[i];
    if (here[i] == &own) config.threads = given;
    threads += given;
  }
  const int processors = shared.processors;
  if (threads <= processors || here.front() != &own) return;
  const bool alone = here.size() == 1;
  log::warn("the ", alone ? "rank" : concat(std::ssize(here), " ranks"), " on ", std::string_view(ranks_->host()),
            alone ? " has " : " have ", threads, " threads and may use ", processors,
            processors == 1 ? " processor" : " processors", " of it, which slows ", alone ? "it" : "them all",
            " down; hint: fewer ", alone ? "threads" : "ranks, or fewer threads of each", " (key threads)");
}

std::string Processes::describe(const settings::Config& config) const {
  if (ranks_ == nullptr) return {};
  const int size = ranks_->size();
  return concat(size, " ranks on ", hosts_, hosts_ == 1 ? " host, " : " hosts, ", config.threads.value_or(1),
                config.threads.value_or(1) == 1 ? " thread each: " : " threads each: ", text_of_step(size, config));
}

std::string text_of_step(Index processes, const settings::Config& config) {
  const Index batch = config.train_batch_size(), steps = config.gradient_accumulation_steps;
  return concat(processes, " x ", batch, " x ", steps, " = ", processes * batch * steps, " sequences a step",
                config.zero_stage > 0 ? concat(", zero_stage ", config.zero_stage) : "");
}

#if defined(LORA_WITH_MPI)

doctor::Finding mpi_finding() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, version = 0, subversion = 0;
  // These may be called before MPI begins, which doctor, being one process, has no need for.
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS || MPI_Get_version(&version, &subversion) != MPI_SUCCESS)
    return {"MPI", doctor::Finding::State::note, "does not tell its version", "install another one and build again"};
  std::string library(text, static_cast<std::size_t>(length));
  library.erase(std::min(library.find_first_of(",\n"), library.size()));  // then follow its package or its date
  std::replace(library.begin(), library.end(), '\t', ' ');
  return {"MPI", doctor::Finding::State::ok,
          concat(std::string_view(library), ", interface ", version, ".", subversion,
                 ", begun beside threads as MPI_THREAD_FUNNELED")};
}

void Processes::meet_by_mpi(const Launched& launch) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_FUNNELED)
    fail<Error>("MPI does not begin, or not beside threads");
  ranks_ = std::make_unique<comm::Mpi>(MPI_COMM_WORLD);
  by_mpi_ = true;
  if (ranks_->size() == 1)
    fail<ConfigError>("the environment's ", launch.variable, " is ", launch.processes,
                      ", but MPI knows one process: ", "this program was built with another MPI than the launcher's");
  if (const auto rank = launcher_number("RANK"); rank && *rank != ranks_->rank())
    fail<ConfigError>("the environment's RANK is ", *rank, ", but MPI's is ", ranks_->rank(),
                      ": two launchers disagree; unset RANK");
}

Processes::~Processes() {
  if (ranks_ == nullptr) return;
  if (std::uncaught_exceptions() > 0) {  // others may wait for this one, and are ended once the error is told
    if (by_mpi_) (void)ranks_.release();
    return;
  }
  ranks_.reset();
  failed_name.clear();
  if (by_mpi_) MPI_Finalize();
}

void end_all_processes(int status) {
  int begun = 0;
  if (!failed_name.empty() && MPI_Initialized(&begun) == MPI_SUCCESS && begun != 0) MPI_Abort(MPI_COMM_WORLD, status);
}

#else

doctor::Finding mpi_finding() {
  return {"MPI", doctor::Finding::State::note, "built without MPI: several processes train together on NPUs alone",
          "install Open MPI or MPICH (Debian: libopenmpi-dev, openmpi-bin) and build again"};
}

void Processes::meet_by_mpi(const Launched& launch) {
  fail<ConfigError>("the environment's ", launch.variable, " is ", launch.processes,
                    ", as a launcher of MPI sets it that starts several processes, but this program was built without ",
                    "MPI; unset ", launch.variable, " for a single one");
}
Processes::~Processes() {
  if (std::uncaught_exceptions() == 0) failed_name.clear();
}
void end_all_processes(int) {}  // whose connections end with this one

#endif

std::string name_of_failed_process() {
  if (!failed_name.empty() && !failed_name.starts_with("rank 0 ")) std::this_thread::sleep_for(std::chrono::seconds(2));
  return failed_name;
}
