#include "launch.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "lora/core/environment.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/machine.hpp"
#include "lora/run/environment.hpp"
#if defined(LORA_WITH_MPI)
#  include "lora/comm/mpi.hpp"
#endif

namespace {

using namespace lora;
using Words = std::vector<std::string>;

/// The command that starts `processes` of `command`.
Words launcher([[maybe_unused]] int processes) {
#if defined(LORA_WITH_MPI)
  Words words{"mpirun", "-n", concat(processes)};
#  if defined(OPEN_MPI)
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  if (processes > cpu::available_threads()) words.emplace_back("--oversubscribe");
  // The processes share the processors out themselves; and containers forbid one to read another's memory.
  for (const char* word : {"--bind-to", "none", "--mca", "btl_vader_single_copy_mechanism", "none"})
    words.emplace_back(word);
#  endif
  return words;
#else
  fail<ConfigError>("this program was built without MPI, which starts several processes on processors; install it ",
                    "(Debian: libopenmpi-dev openmpi-bin) and build again");
#endif
}

[[noreturn]] void become(const Words& words) {
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  log::info(run::quoted_command(arguments));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], const_cast<char* const*>(arguments.data()));
  const int error = errno;
  fail<Error>(words[0], " can't be started: ", std::generic_category().message(error),
              error == ENOENT ? "; it comes with MPI (Debian: openmpi-bin)" : "");
}

}  // namespace

std::optional<std::string> launch(int argc, const char* const* argv) {
  const bool asks_for_help = argc == 3 && std::string_view(argv[1]) == "help" && std::string_view(argv[2]) == "launch";
  if (!asks_for_help && (argc < 2 || std::string_view(argv[1]) != "launch")) return std::nullopt;
  CLI::App page(launch_does, "lora launch");
  page.set_help_flag("-h,--help", "Prints this page");
  page.footer(
      "\nSeveral hosts: mpirun -n 8 --host one:4,two:4 lora train ..., or srun. docs/processes.md has more.\n\n"
      "  lora launch --nproc_per_node 4 train --model_name_or_path MODEL --dataset train.json --output_dir OUT");
  page.prefix_command();
  int processes = 0, hosts = 1;
  page.add_option("--nproc_per_node", processes, "Processes on this machine")->type_name("INT");
  page.add_option("--nnodes", hosts, "Machines; 1 is all that this command starts on processors")->type_name("INT");
  if (asks_for_help) return page.help();
  Words words(argv + 2, argv + argc);
  try {
    page.parse(Words(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return page.help();
  } catch (const CLI::ParseError& error) {
    fail<ConfigError>("lora launch: ", std::string_view(error.what()));
  }
  const Words command = page.remaining();
  if (processes < 1)
    fail<ConfigError>("lora launch: --nproc_per_node: ",
                      page.count("--nproc_per_node") == 0 ? "given nothing" : concat("given ", processes),
                      ", allowed: a number of processes, at least 1");
  if (hosts != 1)
    fail<ConfigError>("lora launch: --nnodes: given ", hosts, ", allowed: 1; on several machines mpirun or srun start ",
                      "processes that train on processors: mpirun -n 8 --host one:4,two:4 lora train ...");
  if (command.empty() || command.front() != "train")
    fail<ConfigError>("lora launch: given ", command.empty() ? "no command" : concat("'", command.front(), "'"),
                      ", allowed: train with its keys, behind the options of launch");
  Words all = processes == 1 ? Words{} : launcher(processes);
  all.push_back(std::filesystem::read_symlink("/proc/self/exe").native());
  all.insert(all.end(), command.begin(), command.end());
  become(all);
}
