#include "launch.hpp"

#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lora/core/environment.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/run/environment.hpp"
#include "signals.hpp"
#if defined(LORA_WITH_MPI)
#  include "lora/comm/mpi.hpp"
#endif

namespace {

using namespace lora;
using Words = std::vector<std::string>;

constexpr std::string_view mpirun = "mpirun";

#if defined(LORA_WITH_MPI)
/// The command that starts `processes` of another.
Words launcher(int processes) {
  Words words{std::string(mpirun), "-n", concat(processes)};
#  if defined(OPEN_MPI)
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  if (processes > cpu::available_threads()) words.emplace_back("--oversubscribe");
  // The processes share the processors out themselves; and containers forbid one to read another's memory.
  for (const char* word : {"--bind-to", "none", "--mca", "btl_vader_single_copy_mechanism", "none"})
    words.emplace_back(word);
#  endif
  return words;
}
#endif

/// What launch becomes, or starts and waits for.
struct Program {
  std::string name;  // by which it is told of
  Words words;
  std::vector<std::pair<const char*, std::string>> environment{};  // beside its own
};

/// Returns   only where that fails, why
int execute(const Program& program) {
  for (const auto& [name, value] : program.environment) ::setenv(name, value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : program.words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return errno;
}

[[noreturn]] void fail_to_start(const Program& program, int error) {
  fail<Error>(program.name, " can't be started: ", std::generic_category().message(error),
              error == ENOENT && program.name == mpirun ? "; hint: it comes with MPI (Debian: openmpi-bin)" : "");
}

void say_command(const Words& words) {
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  log::info(run::quoted_command(arguments));
}

/// The processes of one of several hosts, which meet at an address, as torchrun names it all.
struct Host {
  int processes = 0;
  int hosts = 1, number = 0;
  std::string address = "127.0.0.1";
  int port = 29500;
};

std::vector<Program> ranks_of(const Host& host, const Words& words) {
  std::vector<Program> ranks;
  for (int local = 0; local < host.processes; ++local) {
    const std::string rank = concat(host.number * host.processes + local);
    ranks.push_back({"rank " + rank,
                     words,
                     {{"RANK", rank},
                      {"WORLD_SIZE", concat(host.hosts * host.processes)},
                      {"LOCAL_RANK", concat(local)},
                      {"LOCAL_WORLD_SIZE", concat(host.processes)},
                      {"MASTER_ADDR", host.address},
                      {"MASTER_PORT", concat(host.port)},
                      {"TORCHELASTIC_USE_AGENT_STORE", ""}}});  // nobody else listens there
  }
  return ranks;
}

/// Starts a process, which has begun to be that program when this returns: until then a signal to it would be lost.
/// `at_end`: the signal that it gets when this process ends, however that comes.
/// Returns   the process; negative where there is none, and then `error` says why
pid_t start(const Program& program, int at_end, int& error) {
  int told[2] = {-1, -1};  // why it can't be that program; closed where it is
  if (::pipe2(told, O_CLOEXEC) != 0) return error = errno, -1;
  const pid_t launcher = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, at_end);
    if (::getppid() != launcher) ::_exit(128 + at_end);  // it had ended before
    ::setpgid(0, 0);                                     // what a terminal sends comes by the launcher, once
    const int problem = execute(program);
    ::_exit(::write(told[1], &problem, sizeof problem) == sizeof problem ? 127 : 126);
  }
  error = errno;
  ::close(told[1]);
  ssize_t got = 0;
  if (process > 0)
    while ((got = ::read(told[0], &error, sizeof error)) < 0 && errno == EINTR) continue;
  ::close(told[0]);
  if (got <= 0) return process;
  ::waitpid(process, nullptr, 0);
  return -1;
}

volatile std::sig_atomic_t signal_to_pass_on = 0;

/// How processes that were started are told to stop.
enum class Stop {
  as_it_comes,  ///< ranks of this program get the signal that launch got
  by_mpi        ///< a launcher of MPI, which passes SIGUSR1 on; by SIGINT, SIGTERM or SIGHUP it kills its ranks soon
};

/// Starts programs, passes signals on to them, and ends all once one has failed.
/// Returns   0, or how the first that failed did; 128 + the signal that launch got where that has ended them
int run_all(const std::vector<Program>& programs, Stop stop) {
  ::signal(SIGCHLD, SIG_DFL);  // ignored, as it may come, processes that end would not be told of
  handle_ends([](int number) { signal_to_pass_on = number; });
  std::map<pid_t, std::string> running;  // and their names
  int sent = 0;
  const auto send = [&](int number) {
    sent = number;
    for (const auto& [process, name] : running) ::kill(process, number);
  };
  for (const Program& program : programs) {
    int error = 0;
    const pid_t process = start(program, stop == Stop::by_mpi ? SIGUSR1 : SIGTERM, error);
    if (process < 0) {
      send(SIGKILL);
      fail_to_start(program, error);
    }
    running[process] = program.name;
  }
  using Clock = std::chrono::steady_clock;
  int first = 0, asked = 0;  // how the first has failed; the first signal that came
  bool at_once = false;
  auto until = Clock::time_point::max();  // then those that are left are killed
  auto again = until;                     // then a launcher of MPI is asked to stop
  std::chrono::seconds pause{1};
  while (!running.empty()) {
    const auto now = Clock::now();
    if (const int number = std::exchange(signal_to_pass_on, 0); number != 0) {
      if (asked != 0 && number == SIGINT) {
        at_once = true;
        until = std::min(until, now + std::chrono::seconds(10));
      }
      asked = asked == 0 ? number : asked;
      if (stop == Stop::as_it_comes || at_once)
        send(number);
      else
        again = now;
    }
    if (!at_once && now >= again) {  // again, since a launcher whose ranks are not started yet passes nothing on
      send(SIGUSR1);
      again = now + std::exchange(pause, 2 * pause);
    }
    int killed = 0, failed = 0;  // of those that have ended since the last look, which may be several
    int status = 0;
    for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = running.find(process);
      if (found == running.end()) continue;  // somebody else's, who has become this program
      const std::string name = found->second;
      running.erase(found);
      if (WIFSIGNALED(status) && first == 0 && killed == 0) {  // else it has said itself why
        killed = 128 + WTERMSIG(status);
        if (WTERMSIG(status) != sent)
          log::warn(name, " was ended by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
      } else if (WIFEXITED(status) && failed == 0) {
        failed = WEXITSTATUS(status);
      }
    }
    // Those of one that was killed fail for want of it.
    if (const int end = killed != 0 ? killed : failed; end != 0 && first == 0) {
      first = end;
      until = std::min(until, now + std::chrono::seconds(10));  // the others most often end by themselves, and say why
    }
    if (now >= until) {
      send(SIGKILL);
      until = Clock::time_point::max();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (at_once) return 128 + SIGINT;
  return stop == Stop::by_mpi && asked != 0 && first == 128 + SIGUSR1 ? 128 + asked : first;
}

/// What CLI11 says of an option's value: "Could not convert: --nnodes = x", "--nnodes: 1 required INT missing" or
/// "--nnodes: At Most 1 required but received 2".
[[noreturn]] void refuse_value(std::string_view said) {
  const std::string allowed = concat("a whole number, at most ", std::numeric_limits<int>::max());
  const std::size_t equals = said.find(" = "), begin = said.find("--");
  if (equals != said.npos)
    fail<ConfigError>("lora launch: ", said.substr(begin, equals - begin), ": given ", said.substr(equals + 3),
                      ", allowed: ", allowed);
  const std::string_view name = said.substr(0, said.find(':'));
  const bool missing = said.ends_with("missing");
  fail<ConfigError>("lora launch: ", name, ": given ", missing ? "nothing" : "more than once",
                    ", allowed: ", missing ? name == "--master_addr" ? "an address" : allowed : "once");
}

/// The name of an option that a word gives: --nnodes of --nnodes=2.
std::string_view option_in(std::string_view word) {
  return word.starts_with('-') ? word.substr(0, word.find('=')) : std::string_view();
}

/// Refuses options of launch that stand behind its command, and words before the command that are none.
void expect_order(const CLI::App& page, const Words& command) {
  if (command.empty()) return;
  std::string options;
  for (const CLI::Option* option : page.get_options())
    if (option->get_name() != "--help") options += concat(options.empty() ? "" : ", ", option->get_name());
  if (command.front().starts_with('-'))
    fail<ConfigError>("lora launch: given '", option_in(command.front()), "', allowed: ", options,
                      ", and behind them train with its keys");
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string_view name = option_in(command[i]);
    if (name.empty() || name == "-h" || name == "--help" || page.get_option_no_throw(std::string(name)) == nullptr)
      continue;
    fail<ConfigError>("lora launch: ", name, " stands behind ", std::string_view(command.front()),
                      ", allowed: before it, as an option of launch: lora launch ", name, " ... ",
                      std::string_view(command.front()), " ...");
  }
}

/// The number that an option gives, else the environment's.
int number_of(int given, const char* variable, int least, int most, std::string_view expected, int otherwise) {
  if (given >= 0) return given;
  return environment_number(variable, least, most, expected).value_or(otherwise);
}

}  // namespace

void LaunchOptions::describe(CLI::App& page) {
  page.set_help_flag("-h,--help", "Prints this page");
  page.footer(
      "\nOn one machine it starts mpirun, where it was built with MPI and no address is given; processors of several: "
      "mpirun -n 8 --host one:4,two:4 lora train ..., or srun.\nOf several machines with NPUs each has its launch, "
      "with "
      "a number of its own:\n\n"
      "  lora launch --nproc_per_node 4 train --model_name_or_path MODEL --dataset train.json --output_dir OUT\n"
      "  lora launch --nproc_per_node 8 --nnodes 2 --node_rank 0 --master_addr 192.168.1.10 train --device ascend ...");
  page.prefix_command();
  page.add_option("--nproc_per_node", processes, "Processes on this machine; of NPUs, one for each")->type_name("INT");
  page.add_option("--nnodes", hosts, "Machines; above 1 for NPUs alone (default: 1)")->type_name("INT");
  page.add_option("--node_rank", node, "Which of them this is, from 0 on (default: NODE_RANK, or 0)")->type_name("INT");
  page.add_option("--master_addr", address,
                  "Of the first machine, where all meet (default: MASTER_ADDR; for one machine its own)")
      ->type_name("TEXT");
  page.add_option("--master_port", port, "A free port there (default: MASTER_PORT, or 29500)")->type_name("INT");
}

std::optional<std::string> launch(int argc, const char* const* argv) {
  const bool asks_for_help = argc >= 3 && std::string_view(argv[1]) == "help" && std::string_view(argv[2]) == "launch";
  if (!asks_for_help && (argc < 2 || std::string_view(argv[1]) != "launch")) return std::nullopt;
  CLI::App page(launch_does, "lora launch");
  LaunchOptions given;
  given.describe(page);
  if (asks_for_help) return page.help();
  Words words(argv + 2, argv + argc);
  try {
    page.parse(Words(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return page.help();
  } catch (const CLI::ConversionError& error) {
    refuse_value(error.what());
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_value(error.what());
  } catch (const CLI::ParseError& error) {
    fail<ConfigError>("lora launch: ", std::string_view(error.what()));
  }
  const Words command = page.remaining();
  expect_order(page, command);
  Host host;
  host.processes = given.processes;
  host.hosts = given.hosts;
  int node = given.node;
  const int port = given.port;
  std::string address = given.address;
  if (host.processes < 1)
    fail<ConfigError>("lora launch: --nproc_per_node: ",
                      page.count("--nproc_per_node") == 0 ? "given nothing" : concat("given ", host.processes),
                      ", allowed: a number of processes, at least 1");
  if (host.hosts < 1)
    fail<ConfigError>("lora launch: --nnodes: given ", host.hosts, ", allowed: a number of machines, at least 1");
  if (constexpr int most = 1 << 15; host.processes > most || host.hosts > most)
    fail<ConfigError>("lora launch: given ", host.processes, " processes on ", host.hosts,
                      " machines, allowed: at most ", most, " of each");
  if (page.count("--node_rank") > 0 && node < 0) node = host.hosts;  // refused below
  host.number = number_of(node, "NODE_RANK", 0, std::numeric_limits<int>::max(), "a number from 0 on", 0);
  if (host.number >= host.hosts)
    fail<ConfigError>("lora launch: --node_rank, or NODE_RANK: given ", host.number, ", allowed: a number from 0 to ",
                      host.hosts - 1);
  if (page.count("--master_port") > 0 && (port < 1 || port > 65535))
    fail<ConfigError>("lora launch: --master_port: given ", port, ", allowed: a port from 1 to 65535");
  host.port = number_of(port, "MASTER_PORT", 1, 65535, "a port from 1 to 65535", host.port);
  const char* const named = std::getenv("MASTER_ADDR");
  if (address.empty() && named != nullptr) address = named;
  if (address.empty() && host.hosts > 1)
    fail<ConfigError>(
        "lora launch: --master_addr, or MASTER_ADDR: given nothing, expected the address of the first of ", host.hosts,
        " machines");
  if (!address.empty()) host.address = address;
  if (command.empty() || command.front() != "train")
    fail<ConfigError>("lora launch: given ", command.empty() ? "no command" : concat("'", command.front(), "'"),
                      ", allowed: train with its keys, behind the options of launch");
  Words own{std::filesystem::read_symlink("/proc/self/exe").native()};
  own.insert(own.end(), command.begin(), command.end());
  if (host.processes * host.hosts == 1) {
    say_command(own);
    const Program single{own.front(), own};
    fail_to_start(single, execute(single));
  }
#if defined(LORA_WITH_MPI)
  if (host.hosts == 1 && address.empty()) {
    Words all = launcher(host.processes);
    all.insert(all.end(), own.begin(), own.end());
    say_command(all);
    std::exit(run_all({{all.front(), all}}, Stop::by_mpi));
  }
#endif
  const int first = host.number * host.processes, last = first + host.processes - 1;
  log::info(first == last ? concat("rank ", first) : concat("ranks ", first, " to ", last), " of ",
            host.hosts * host.processes, first == last ? " meets" : " meet", " the others at ",
            std::string_view(host.address), ":", host.port);
  std::exit(run_all(ranks_of(host, own), Stop::as_it_comes));
}
