// The command launch: its page, what its options may be, the launcher that it starts, and ranks of several machines.

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/temp_folder.hpp"

namespace launch_test {

using namespace lora;

namespace {

using Words = std::vector<std::string>;

/// What launch says to these words, and nothing else.
std::string refused(Words words) {
  words.insert(words.begin(), "launch");
  const auto outcome = test::run_program(LORA_PROGRAM, words);
  CHECK(outcome.status == 2);
  CHECK(outcome.output.empty());
  return outcome.errors;
}

#if defined(LORA_WITH_MPI)
/// In its folder an mpirun that prints its words, a line each, or does otherwise.
struct FakeLauncher {
  test::TempFolder temp;

  explicit FakeLauncher(std::string_view does = "printf '%s\\n' \"$@\"") {
    io::write_file(temp / "mpirun", concat("#!/bin/sh\n", does, "\n"));
    std::filesystem::permissions(temp / "mpirun", std::filesystem::perms::owner_all);
  }
  test::Outcome run(Words words) const {
    words.insert(words.begin(), "launch");
    return test::run_program("PATH=" + test::shell_word(temp.path().native()) + ":\"$PATH\" " LORA_PROGRAM, words);
  }
};

/// One that writes down which signals come, and does with them what the shell's words say.
struct SignaledLauncher : FakeLauncher {
  test::Environment path{"PATH", concat(temp.path().native(), ":", std::getenv("PATH"))};
  test::Environment folder{"FAKE_FOLDER", temp.path().native()};
  test::Process launch{LORA_PROGRAM, Words{"launch", "--nproc_per_node=2", "train"}, {}};

  explicit SignaledLauncher(std::string_view at_usr1, std::string_view at_int = "exit 1")
      : FakeLauncher(concat(
            "cd \"$FAKE_FOLDER\"\ntrap 'echo USR1 >>signals; ", at_usr1, "' USR1\ntrap 'echo INT >>signals; ", at_int,
            "' INT\n[ $(ps -o pgid= -p $$) = $$ ] && echo alone >signals\n", "while :; do sleep 0.05; done")) {
    until("alone\n");
  }

  /// Waits until it has written this down.
  void until(const std::string& expected) const {
    const auto now = [&] { return io::is_there(temp / "signals") ? io::read_file(temp / "signals") : ""; };
    for (int i = 0; i < 6000 && !now().starts_with(expected); ++i) ::usleep(10000);
    CHECK(now().starts_with(expected));
  }
};
#endif

}  // namespace

TEST_CASE("launch: its page has each option with its type, its default and what it is, and how to use them") {
  const char* page =
      "Starts several processes of train, by mpirun or one for each NPU: its options, then train with its keys.\n"
      "Usage: lora launch [OPTIONS]\n"
      "\n"
      "Options:\n"
      "  -h,--help                   Prints this page\n"
      "  --nproc_per_node INT        Processes on this machine; of NPUs, one for each\n"
      "  --nnodes INT                Machines; above 1 for NPUs alone (default: 1)\n"
      "  --node_rank INT             Which of them this is, from 0 on (default: NODE_RANK, or 0)\n"
      "  --master_addr TEXT          Of the first machine, where all meet (default: MASTER_ADDR; for one machine its "
      "own)\n"
      "  --master_port INT           A free port there (default: MASTER_PORT, or 29500)\n"
      "\n"
      "\n"
      "On one machine it starts mpirun, where it was built with MPI and no address is given; processors of several: "
      "mpirun -n 8 --host one:4,two:4 lora train ..., or srun.\n"
      "Of several machines with NPUs each has its launch, with a number of its own:\n"
      "\n"
      "  lora launch --nproc_per_node 4 train --model_name_or_path MODEL --dataset train.json --output_dir OUT\n"
      "  lora launch --nproc_per_node 8 --nnodes 2 --node_rank 0 --master_addr 192.168.1.10 train --device ascend "
      "...\n";
  for (const Words& words :
       {Words{"launch", "--help"}, Words{"launch", "-h"}, Words{"help", "launch"}, Words{"help", "launch", "train"}}) {
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CHECK(outcome.status == 0);
    CHECK(outcome.errors.empty());
    CHECK(outcome.output == page);
  }
}

TEST_CASE("launch: an option at the edge of what it may be is taken, and past it refused with what was given") {
  // What is taken comes as far as the command.
  const std::string taken =
      "error: lora launch: given 'eval', allowed: train with its keys, behind the options of launch\n";
  const Words two = {"--nproc_per_node=2"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), two.begin(), two.end());
    more.emplace_back("eval");
    return refused(more);
  };
  CHECK(with({}) == taken);
  CHECK(refused({"--nproc_per_node=32768", "--nnodes=2", "--master_addr=a", "eval"}) == taken);
  CHECK(with({"--nnodes=32768", "--master_addr=a", "--node_rank=32767"}) == taken);
  CHECK(refused({"--nproc_per_node=32769", "eval"}) ==
        "error: lora launch: given 32769 processes on 1 machines, allowed: at most 32768 of each\n");
  CHECK(with({"--nnodes=32769"}) ==
        "error: lora launch: given 2 processes on 32769 machines, allowed: at most 32768 of each\n");
  CHECK(refused({"--nproc_per_node=-3", "eval"}) ==
        "error: lora launch: --nproc_per_node: given -3, allowed: a number of processes, at least 1\n");
  for (const char* port : {"1", "65535"}) CHECK(with({concat("--master_port=", port)}) == taken);
  for (const char* port : {"0", "-1", "65536"})
    CHECK(with({concat("--master_port=", port)}) ==
          concat("error: lora launch: --master_port: given ", port, ", allowed: a port from 1 to 65535\n"));
  CHECK(with({"--node_rank=1"}) ==
        "error: lora launch: --node_rank, or NODE_RANK: given 1, allowed: a number from 0 to 0\n");
  CHECK(with({"--nnodes=3", "--node_rank=3"}) ==
        "error: lora launch: --node_rank, or NODE_RANK: given 3, allowed: a number from 0 to 2\n");
  CHECK(with({"--nnodes=3", "--node_rank=2"}) ==
        "error: lora launch: --master_addr, or MASTER_ADDR: given nothing, expected the address of the first of 3 "
        "machines\n");
  CHECK(refused({"--nproc_per_node=two", "eval"}) ==
        "error: lora launch: --nproc_per_node: given two, allowed: a whole number, at most 2147483647\n");
  CHECK(refused({"--nproc_per_node=1.5", "eval"}) ==
        "error: lora launch: --nproc_per_node: given 1.5, allowed: a whole number, at most 2147483647\n");
  CHECK(refused({"--nnodes"}) ==
        "error: lora launch: --nnodes: given nothing, allowed: a whole number, at most 2147483647\n");
  CHECK(refused({"--master_addr"}) == "error: lora launch: --master_addr: given nothing, allowed: an address\n");
  CHECK(with({"--nproc_per_node=3"}) == "error: lora launch: --nproc_per_node: given more than once, allowed: once\n");
}

TEST_CASE("launch: its options stand before the command, and what is none of them is named") {
  const auto behind = [](const char* name) {
    return concat("error: lora launch: ", name,
                  " stands behind train, allowed: before it, as an option of launch: lora "
                  "launch ",
                  name, " ... train ...\n");
  };
  CHECK(refused({"train", "--nproc_per_node", "2"}) == behind("--nproc_per_node"));
  CHECK(refused({"--nproc_per_node=2", "train", "--seed=1", "--nnodes=2"}) == behind("--nnodes"));
  CHECK(refused({"--nproc=2", "train"}) ==
        "error: lora launch: given '--nproc', allowed: --nproc_per_node, --nnodes, --node_rank, --master_addr, "
        "--master_port, and behind them train with its keys\n");
}

TEST_CASE("launch: the environment's numbers are held against the same as the options, and named") {
  const Words words = {"--nproc_per_node=2", "--nnodes=2", "eval"};
  const auto with = [&](const char* name, const char* value) {
    const test::Environment set(name, value), address("MASTER_ADDR", "a");
    return refused(words);
  };
  const std::string taken =
      "error: lora launch: given 'eval', allowed: train with its keys, behind the options of launch\n";
  for (const char* port : {"1", "65535"}) CHECK(with("MASTER_PORT", port) == taken);
  for (const char* port : {"0", "65536", "x"})
    CHECK(with("MASTER_PORT", port) ==
          concat("error: the environment's MASTER_PORT is '", port, "'; expected a port from 1 to 65535\n"));
  for (const char* node : {"0", "1"}) CHECK(with("NODE_RANK", node) == taken);
  for (const char* node : {"-1", "x"})
    CHECK(with("NODE_RANK", node) ==
          concat("error: the environment's NODE_RANK is '", node, "'; expected a number from 0 on\n"));
  CHECK(with("NODE_RANK", "2") ==
        "error: lora launch: --node_rank, or NODE_RANK: given 2, allowed: a number from 0 to 1\n");
}

TEST_CASE("launch: processes of one of several machines have ranks behind those of the machines before it") {
  Words words = {"launch", "--nproc_per_node=3", "--nnodes=2", "--node_rank=1"};
  const Words more = {
      "--master_addr=127.0.0.1", "--master_port=4321",       "train", "--device=cpu", "--model_name_or_path=m",
      "--dataset=d.jsonl",       "--output_dir=/no/such/out"};
  words.insert(words.end(), more.begin(), more.end());
  // On processors they find each other by MPI alone, and each says so.
  const std::string refusal =
      "error: the environment's WORLD_SIZE is 6, as a launcher sets it that starts several processes, but those of "
      "'lora train' on processors find each other by MPI: start them with mpirun or srun, or unset WORLD_SIZE for a "
      "single one\n";
  auto outcome = test::run_program(LORA_PROGRAM, words);
  CHECK(outcome.status == 2);
  CHECK(outcome.errors == "ranks 3 to 5 of 6 meet the others at 127.0.0.1:4321\n" + refusal + refusal + refusal);
  // A port and a number that nothing says.
  words = {"launch", "--nproc_per_node=2", "--nnodes=3"};
  words.insert(words.end(), more.begin(), more.end());
  std::erase(words, "--master_port=4321");
  outcome = test::run_program(LORA_PROGRAM, words);
  CHECK(outcome.status == 2);
  CHECK(outcome.errors == "ranks 0 to 1 of 6 meet the others at 127.0.0.1:29500\n" + refusal + refusal);
}

TEST_CASE("launch: a rank to which another does not come says which, and how long it has waited") {
  const test::Environment store("TORCHELASTIC_USE_AGENT_STORE", "True");  // of a launcher that has started this one
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN), npus("STAND_IN_DEVICES", "8");
  const std::string place = concat("127.0.0.1:", 20000 + ::getpid() % 10000);
  const auto outcome = test::run_program(
      LORA_PROGRAM, {"launch", "--nproc_per_node=1", "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1",
                     "--master_port=" + place.substr(place.find(':') + 1), "train", "--device=ascend",
                     "--ddp_timeout=0.25", "--model_name_or_path=m", "--dataset=d.jsonl", "--output_dir=/no/such/out"});
  CHECK(outcome.status == 1);
  CHECK(outcome.errors == "rank 0 of 2 meets the others at " + place + "\nwaiting for 1 other rank at " + place +
                              "\nerror: ranks 1 of 2 did not come to " + place + " within 0.25 s\n");
}

#if defined(LORA_WITH_MPI)

TEST_CASE("launch: on one machine it starts mpirun, with all that its processes need, and says that command") {
  const FakeLauncher fake;
  const bool open_mpi = test::holds(test::run_program("mpirun", {"--version"}).output, "Open MPI");
  for (const int processes : {2, 32768}) {
    CAPTURE(processes);
    const auto outcome = fake.run({concat("--nproc_per_node=", processes), "train", "--seed", "a b"});
    CHECK(outcome.status == 0);
    Words words = {"-n", concat(processes)};
    if (open_mpi && ::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    if (open_mpi && processes > cpu::available_threads()) words.emplace_back("--oversubscribe");
    if (open_mpi)
      for (const char* word : {"--bind-to", "none", "--mca", "btl_vader_single_copy_mechanism", "none"})
        words.emplace_back(word);
    for (const char* word : {LORA_PROGRAM, "train", "--seed"}) words.emplace_back(word);
    std::string printed, said = "mpirun";
    for (const std::string& word : words) {
      printed += word + "\n";
      said += " " + word;
    }
    CHECK(outcome.output == printed + "a b\n");
    CHECK(outcome.errors == said + " 'a b'\n");
  }
  // A single one needs no launcher, and an address none either.
  const auto one = fake.run({"--nproc_per_node=1", "train", "--help"});
  CHECK(one.status == 0);
  CHECK(one.errors == LORA_PROGRAM " train --help\n");
  CHECK(one.output == test::run_program(LORA_PROGRAM, {"train", "--help"}).output);
  CHECK(fake.run({"--nproc_per_node=1", "--master_addr=127.0.0.1", "train", "--help"}).output == one.output);
  CHECK(fake.run({"--nproc_per_node=2", "--master_addr=127.0.0.1", "train", "--help"}).errors ==
        "ranks 0 to 1 of 2 meet the others at 127.0.0.1:29500\n");
}

TEST_CASE(
    "launch: any signal to stop comes to mpirun as the one that it passes on, and the exit code is the signal's") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    CAPTURE(number);
    SignaledLauncher fake("exit 138");
    fake.launch.send(number);
    CHECK(fake.launch.wait() == 128 + number);
    fake.until("alone\nUSR1\n");
    CHECK_FALSE(test::holds(fake.launch.errors(), "Warning"));
  }
  // What all have done by then is done; and what failed meanwhile has failed.
  for (const int status : {0, 3}) {
    SignaledLauncher fake(concat("exit ", status));
    fake.launch.send(SIGTERM);
    CHECK(fake.launch.wait() == status);
  }
  // One that has not started its ranks yet passes nothing on, and is asked again.
  SignaledLauncher slow("[ $(grep -c USR1 signals) = 2 ] && exit 138");
  slow.launch.send(SIGTERM);
  CHECK(slow.launch.wait() == 143);
  slow.until("alone\nUSR1\nUSR1\n");
}

TEST_CASE("launch: a second Ctrl-C ends mpirun at once, and no other signal does") {
  SignaledLauncher fake(":");
  fake.launch.send(SIGTERM);
  fake.until("alone\nUSR1\n");
  fake.launch.send(SIGTERM);
  fake.until("alone\nUSR1\nUSR1\n");
  fake.launch.send(SIGINT);
  CHECK(fake.launch.wait() == 130);
  CHECK(io::read_file(fake.temp / "signals").ends_with("USR1\nINT\n"));
}

TEST_CASE("launch: an mpirun whose launch was killed is asked to stop, and one that was killed is told of") {
  SignaledLauncher fake("exit 138");
  fake.launch.send(SIGKILL);
  CHECK(fake.launch.wait() == 137);
  fake.until("alone\nUSR1\n");
  const auto outcome = FakeLauncher("kill -SEGV $$").run({"--nproc_per_node=2", "train"});
  CHECK(outcome.status == 139);
  CHECK(outcome.errors.ends_with("\nWarning: mpirun was ended by signal 11 (Segmentation fault)\n"));
}

TEST_CASE("launch: where there is no mpirun it says what brings it") {
  const test::TempFolder empty;
  const auto outcome = test::run_program("PATH=" + test::shell_word(empty.path().native()) + " " LORA_PROGRAM,
                                         {"launch", "--nproc_per_node=2", "train"});
  CHECK(outcome.status == 1);
  CHECK(outcome.output.empty());
  CHECK(outcome.errors.starts_with("mpirun -n 2 "));
  CHECK(outcome.errors.ends_with(
      "\nerror: mpirun can't be started: No such file or directory; hint: it comes with MPI (Debian: openmpi-bin)\n"));
}

TEST_CASE("launch: processes whose number or rank MPI knows otherwise are refused") {
  const Words words = {"train", "--model_name_or_path=m", "--dataset=d.jsonl", "--output_dir=/no/such/out"};
  const auto alone = test::run_program("OMPI_COMM_WORLD_SIZE=2 " LORA_PROGRAM, words);
  CHECK(alone.status == 2);
  CHECK(alone.errors ==
        "error: the environment's OMPI_COMM_WORLD_SIZE is 2, but MPI knows one process: this program was built with "
        "another MPI than the launcher's\n");
  const auto turned = test::run_program(
      "RANK=5 WORLD_SIZE=2 mpirun --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none -n 2 "
      "-x RANK -x WORLD_SIZE " LORA_PROGRAM,
      words);
  CHECK(turned.status == 2);
  // Of two that end at once the second may be ended before it has said so.
  bool said = false;
  for (const int rank : {0, 1})
    said = said || test::holds(turned.errors, concat("error: the environment's RANK is 5, but MPI's is ", rank,
                                                     ": two launchers disagree; unset RANK\n"));
  CHECK(said);
}

#endif

}  // namespace launch_test
