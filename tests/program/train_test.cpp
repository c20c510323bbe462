// The command train as a process: what ends it from outside, and what it leaves then.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../examples/lora/signals.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/run/checkpoint.hpp"
#include "support/effort.hpp"
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
    if (signal != SIGINT && signal != SIGXCPU && !test::effort(true, false, "program: four of six signals to train"))
      continue;
    const Workshop shop;
    test::Process process = shop.start("0");
    REQUIRE(comes(process, [&] { return shop.logged_steps() >= 3; }));
    process.send(signal);
    const std::string errors = process.errors();
    CHECK(test::holds(errors, "stopping after this step; Ctrl-C (SIGINT) quits at once\n"));
    CHECK(test::holds(errors, "stopped after step "));
    CHECK(process.wait() == 128 + signal);
    const auto checkpoint = run::Checkpoints(shop.run).newest();
    REQUIRE(checkpoint);
    CHECK(checkpoint->state.step == shop.logged_steps());
    CHECK_FALSE(std::filesystem::exists(shop.run / "final_model"));
    CHECK(shop.can_go_on());
  }
}

TEST_CASE("program: Ctrl-C behind another signal ends training at once, and the checkpoint before stays") {
  const Workshop shop;
  REQUIRE(test::run_program(LORA_PROGRAM, shop.words("0", "2")).status == 0);
  // It waits for somebody to take its first words, so that no step can end between the signals. The model is opened
  // after the handlers are there and before it says a word.
  test::Process process = shop.start("0", {.is_deaf = true});
  REQUIRE(comes(process, [&] { return process.maps(shop.temp / "model" / "model.safetensors"); }));
  // A limit of processor time is told every second, and a batch system's end comes behind its warning.
  for (const int signal : {SIGXCPU, SIGXCPU, SIGTERM, SIGTERM, SIGUSR1, SIGINT}) {
    REQUIRE(process.running());
    process.send(signal);
    (void)comes(process, [&] { return !process.awaits(signal); });
  }
  CHECK(process.wait() == 128 + SIGINT);
  CHECK(run::Checkpoints(shop.run).newest()->state.step == 2);
  CHECK(shop.can_go_on());
}

TEST_CASE("program: a second Ctrl-C ends training at once, and SIGTERM twice, as launchers send it, after the step") {
  const Workshop shop;
  for (const int signal : {SIGINT, SIGTERM}) {
    CAPTURE(signal);
    test::Process process = shop.start("0", {.is_deaf = true});
    REQUIRE(comes(process, [&] { return process.maps(shop.temp / "model" / "model.safetensors"); }));
    process.send(signal);
    REQUIRE(comes(process, [&] { return !process.awaits(signal); }));
    process.send(signal);
    if (signal == SIGTERM) {
      REQUIRE(comes(process, [&] { return !process.awaits(signal); }));
      CHECK(test::holds(process.errors(), "stopped after step "));  // once its words are taken
    }
    CHECK(process.wait() == 128 + signal);
    CHECK(std::filesystem::exists(shop.run) == (signal == SIGTERM));
  }
  CHECK(shop.can_go_on());
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

TEST_CASE("program: a fault in memory that is no file of the program's ends it by its signal") {
  const test::TempFolder temp;
  const io::Path path = temp / "other";
  io::write_file(path, std::string(1 << 16, 'x'));
  const test::Ending end = test::run_apart([&](int out) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(out, STDERR_FILENO);
    handle_signals();
    const int file = ::open(path.c_str(), O_RDONLY);
    void* const memory = ::mmap(nullptr, 1 << 16, PROT_READ, MAP_PRIVATE, file, 0);
    std::filesystem::resize_file(path, 0);
    volatile char first = *static_cast<const char*>(memory);
    (void)first;
  });
  CHECK(end.text.empty());
  CHECK(WIFSIGNALED(end.status));
  CHECK(WTERMSIG(end.status) == SIGBUS);
}

TEST_CASE("program: each signal to stop ends a program that is no training at once, with its number in the status") {
  const test::TempFolder temp;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    for (const bool ignored : {false, true}) {
      CAPTURE(signal);
      CAPTURE(ignored);
      const test::Ending end = test::run_apart([&](int) {
        for (const int other : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) std::signal(other, SIG_DFL);
        if (ignored) std::signal(signal, SIG_IGN);
        handle_signals();
        std::raise(signal);
      });
      // What nohup has ignored stays so, and no other signal does.
      CHECK(end.status == (ignored && signal == SIGHUP ? 0 : (128 + signal) << 8));
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

TEST_CASE("program: where the system starts no more threads, one line says so and which key may help") {
  const Workshop shop;
  // A thread's stack is as large as the first one's may become: for this one there is no room.
  const std::string crowded = "sh -c 'ulimit -s 137438953472; exec \"$0\" \"$@\"' " + test::shell_word(LORA_PROGRAM);
  if (test::run_program(crowded, {"--version"}).status != 0) {
    test::skipped("a program that can start no thread: an emulator, or a limit to the stack, keeps it from beginning");
    return;
  }
  const auto outcome = test::run_program(crowded, shop.words("0", "2"));
  CHECK(outcome.status == 1);
  CAPTURE(outcome.errors);
  CHECK(outcome.errors.ends_with("\nerror: the system starts no more threads; fewer of them (key threads) may do\n"));
  CHECK(shop.logged_steps() == 0);
}

TEST_CASE("program: examples/two_stage.json trains what is around and above the layers that stay, then everything") {
  const test::TempFolder temp;
  test::RandomModel shape;
  shape.family = "qwen2";
  shape.layers = 24;
  test::write_random_model(temp / "model", shape);
  test::write_tokens(temp / "train.jsonl", 22, 1);
  const std::string examples = (io::Path(LORA_FIXTURES).parent_path().parent_path() / "examples").native();
  const std::string model = (temp / "model").native(), data = (temp / "train.jsonl").native(),
                    run = (temp / "run").native();
  const auto outcome = test::run_program(
      LORA_PROGRAM, {"train", "--config=" + examples + "/two_stage.json", "--model_name_or_path=" + model,
                     "--dataset=" + data, "--output_dir=" + run, "--eval_steps=2", "--threads=1"});
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  // 21 records, one is kept back: 3 steps an epoch. Of 291 tensors 51 are of layers 20 to 23, embedding, norm and head.
  CHECK(test::holds(outcome.errors,
                    "stage 1 (pretrained layers frozen): steps 1 to 3: 3 of 8 sequences, 3 an epoch; "
                    "learning rate 1e-04; 51 of 291 tensors train"));
  CHECK(test::holds(outcome.errors,
                    "stage 2 (everything): steps 4 to 9: 6 of 8 sequences, 3 an epoch; learning rate "
                    "3e-05; 291 of 291"));
  io::Json rotates = io::Json::array();
  for (int layer = 0; layer < 24; ++layer) rotates.push_back(layer < 20 ? 1 : 0);
  const io::Path final_model = temp / "run" / "final_model";
  CHECK(io::read_json(final_model / "config.json").at("no_rope_layers") == rotates);
  CHECK(test::holds(io::read_file(final_model / "README.md"),
                    "These layers run without rotary embedding: 20, 21, 22, 23.\n"));
  const io::Json config = io::read_json(temp / "run" / "run_config.json");
  CHECK(config.at("early_stopping_patience") == 3);
  CHECK(config.at("stages")[1].at("gradient_checkpointing") == true);
  const std::string log = io::read_file(temp / "run" / "trainer_log.jsonl");
  CHECK(std::count(log.begin(), log.end(), '\n') > 3);
  CHECK(test::holds(log, "eval_loss"));
  CHECK_FALSE(io::entries_of(temp / "run" / "tensorboard").empty());
  // The run's folder is a model of which the next command takes all that.
  const auto loss = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"eval", "--dataset=" + data, "--threads=1", "--model_name_or_path=" + name,
                                      "--output_dir=" + (temp / "eval").native()};
    words.insert(words.end(), more.begin(), more.end());
    const auto evaluated = test::run_program(LORA_PROGRAM, words);
    CAPTURE(evaluated.errors);
    REQUIRE(evaluated.status == 0);
    return io::read_json(temp / "eval" / "evaluation_results.json").at("loss").get<double>();
  };
  CHECK(loss(run, {}) == loss(final_model.native(), {}));
  io::Json forgetful = io::read_json(final_model / "config.json");
  forgetful.erase("no_rope_layers");
  const double right = loss(run, {});
  io::write_json(final_model / "config.json", forgetful);
  CHECK(loss(run, {}) != right);
  CHECK(loss(run, {"--no_rope_layers=20..23"}) == right);
}

}  // namespace train_test
