// The command train as a process: what ends it from outside, and what it leaves then.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../examples/lora/signals.hpp"
#include "lora/io/mapped_file.hpp"
#include "lora/run/checkpoint.hpp"
#include "support/message_of.hpp"
#include "support/process.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"

namespace train_test {

using namespace lora;

namespace {

/// A tiny model and data, and runs on them that are long enough to be met on their way.
struct Workshop {
  test::TempFolder temp;
  io::Path run = temp / "run";

  Workshop() {
    test::write_random_model(temp / "model", {});
    test::write_tokens(temp / "train.jsonl", 22, 1);
  }

  std::vector<std::string> words(const std::string& save_steps, const std::string& max_steps = "20000") const {
    return {"train",
            "--model_name_or_path=" + (temp / "model").native(),
            "--dataset=" + (temp / "train.jsonl").native(),
            "--output_dir=" + run.native(),
            "--resume_from_checkpoint=auto",
            "--lora_rank=2",
            "--logging_steps=1",
            "--threads=1",
            "--save_total_limit=2",
            "--save_steps=" + save_steps,
            "--max_steps=" + max_steps};
  }

  test::Process start(const std::string& save_steps, test::Process::Setup setup = {}) const {
    return {LORA_PROGRAM, words(save_steps), setup};
  }

  /// Whether the run, left alone, comes to its end two steps further.
  bool can_go_on() const {
    const Index steps = run::Checkpoints(run).newest()->state.step + 2;
    return test::run_program(LORA_PROGRAM, words("0", concat(steps))).status == 0 &&
           run::Checkpoints(run).newest()->state.step == steps;
  }

  Index logged_steps() const {
    const io::Path log = run / "trainer_log.jsonl";
    if (!std::filesystem::exists(log)) return 0;
    const std::string text = io::read_file(log);
    return std::count(text.begin(), text.end(), '\n');
  }
};

/// Waits for something that a process will do. False where it ended first, or a minute was not enough.
bool comes(test::Process& process, const std::function<bool()>& happened) {
  for (int i = 0; i < 60'000 && process.running(); ++i) {
    if (happened()) return true;
    usleep(1000);
  }
  return false;
}

}  // namespace

TEST_CASE("program: a signal ends training after the step, with a checkpoint and the signal's exit status") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    CAPTURE(signal);
    const Workshop shop;
    test::Process process = shop.start("0");
    REQUIRE(comes(process, [&] { return shop.logged_steps() >= 3; }));
    process.send(signal);
    const std::string errors = process.errors();
    CHECK(test::holds(errors, "stopping after this step; again to quit at once\n"));
    CHECK(test::holds(errors, "stopped after step "));
    CHECK(process.wait() == 128 + signal);
    const auto checkpoint = run::Checkpoints(shop.run).newest();
    REQUIRE(checkpoint);
    CHECK(checkpoint->state.step == shop.logged_steps());
    CHECK_FALSE(std::filesystem::exists(shop.run / "final_model"));
    CHECK(shop.can_go_on());
  }
}

TEST_CASE("program: a second signal ends training at once, and the checkpoint before stays") {
  const Workshop shop;
  REQUIRE(test::run_program(LORA_PROGRAM, shop.words("0", "2")).status == 0);
  // It waits for somebody to take its first words, so that no step can end between the signals. The model is opened
  // after the handlers are there and before it says a word.
  test::Process process = shop.start("0", {.is_deaf = true});
  REQUIRE(comes(process, [&] { return process.maps(shop.temp / "model" / "model.safetensors"); }));
  // A limit of processor time is told every second; only another signal is a second one.
  for (const int signal : {SIGXCPU, SIGXCPU, SIGTERM}) {
    REQUIRE(process.running());
    process.send(signal);
    (void)comes(process, [&] { return !process.awaits(signal); });
  }
  CHECK(process.wait() == 128 + SIGTERM);
  CHECK(run::Checkpoints(shop.run).newest()->state.step == 2);
  CHECK(shop.can_go_on());
}

TEST_CASE("program: a signal that comes again is a second one") {
  const Workshop shop;
  for (const int signal : {SIGINT, SIGUSR1}) {
    CAPTURE(signal);
    test::Process process = shop.start("0", {.is_deaf = true});
    REQUIRE(comes(process, [&] { return process.maps(shop.temp / "model" / "model.safetensors"); }));
    process.send(signal);
    REQUIRE(comes(process, [&] { return !process.awaits(signal); }));
    process.send(signal);
    CHECK(process.wait() == 128 + signal);
    CHECK_FALSE(std::filesystem::exists(shop.run));
  }
}

TEST_CASE("program: training goes on although nobody reads its words") {
  const Workshop shop;
  test::Process process = shop.start("0", {.is_unheard = true});
  REQUIRE(comes(process, [&] { return shop.logged_steps() >= 3; }));
  process.send(SIGPIPE);
  const Index steps = shop.logged_steps();
  REQUIRE(comes(process, [&] { return shop.logged_steps() >= steps + 3; }));
  process.send(SIGTERM);
  CHECK(process.wait() == 128 + SIGTERM);
  CHECK(run::Checkpoints(shop.run).newest()->state.step == shop.logged_steps());
}

TEST_CASE("program: a file that becomes shorter while it is used is one line that names it, and exit 1") {
  const Workshop shop;
  const io::Path weights = shop.temp / "model" / "model.safetensors";
  test::Process process = shop.start("0");
  REQUIRE(comes(process, [&] { return shop.logged_steps() >= 3; }));
  std::filesystem::resize_file(weights, 0);
  const std::string errors = process.errors();
  CHECK(process.wait() == 1);
  CAPTURE(errors);
  CHECK(errors.ends_with("error: " + weights.native() +
                         ": the file became shorter, or could not be read, while it was in use\n"));
  CHECK_FALSE(std::filesystem::exists(shop.run / "final_model"));
}

TEST_CASE("program: threads that touch a shortened file at once have one of them say so") {
  const test::TempFolder temp;
  const io::Path path = temp / "weights";
  for (int round = 0; round < 20; ++round) {
    io::write_file(path, std::string(1 << 16, 'x'));
    const test::Ending end = test::run_apart([&](int out) {
      dup2(out, STDERR_FILENO);
      handle_signals();
      const io::MappedFile file(path);
      std::filesystem::resize_file(path, 0);
      std::atomic<int> waiting = 8;
      std::vector<std::jthread> threads;
      for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
          --waiting;
          while (waiting > 0) {}
          volatile std::byte first = file.bytes()[0];
          (void)first;
        });
    });
    CHECK(end.status == 1 << 8);
    CHECK(end.text ==
          "error: " + path.native() + ": the file became shorter, or could not be read, while it was in use\n");
  }
}

TEST_CASE("program: a file that may not grow is one line and exit 1, not the end by a signal") {
  const Workshop shop;
  test::Process process = shop.start("10", {.longest_file = 20'000});
  const std::string errors = process.errors();
  CHECK(process.wait() == 1);
  const auto line = errors.rfind("error: ");
  CAPTURE(errors.substr(line == errors.npos ? 0 : line));
  REQUIRE(line != errors.npos);
  CHECK(errors.find("error: ") == line);
  CHECK(errors.find('\n', line) == errors.size() - 1);
  CHECK(test::holds(errors.substr(line), "cannot write " + shop.run.native()));
  CHECK(test::holds(errors.substr(line), "File too large"));
  const auto checkpoint = run::Checkpoints(shop.run).newest();
  REQUIRE(checkpoint);
  CHECK(checkpoint->state.step % 10 == 0);
  CHECK(checkpoint->state.step >= shop.logged_steps() - 10);
  CHECK(shop.can_go_on());
}

}  // namespace train_test
