#include "lora/run/progress.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "support/file_faults.hpp"
#include "support/process.hpp"
#include "support/temp_folder.hpp"

namespace progress_test {

using namespace lora;
using namespace lora::run;

namespace {

StepMetrics metrics_of(Index step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.epoch = 0.5;
  metrics.loss = 1.23456;
  metrics.learning_rate = 2e-4;
  metrics.grad_norm = 0.75;
  metrics.tokens_per_second = 1234.5;
  metrics.peak_memory_gib = 1.5;
  return metrics;
}

/// Collects what is said for the length of a test.
struct Listener {
  std::vector<std::string> lines;
  log::Sink former = log::set_sink([this](log::Level, std::string_view text) { lines.emplace_back(text); });
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { log::set_sink(std::move(former)); }
};

}  // namespace

TEST_CASE("progress: a line says all that it should") {
  CHECK(to_text(progress_facts(metrics_of(10), 300, 3725)) ==
        "step 10/300  loss 1.2346  1:02:05 left  1234 tokens/s  epoch 0.50  lr 0.0002  grad norm 0.75  1.50 GiB");
  CHECK(duration_text(59.6) == "1:00");
  CHECK(duration_text(-1) == "0:00");
}

TEST_CASE("progress: the time left is that of the steps to come, at the pace of those since the run went on") {
  CHECK(seconds_left(0, 0, 100, 5) == 0);
  CHECK(seconds_left(0, 25, 100, 50) == 150);
  CHECK(seconds_left(80, 80, 100, 5) == 0);
  CHECK(seconds_left(80, 84, 100, 8) == 32);
  CHECK(seconds_left(80, 100, 100, 8) == 0);
}

TEST_CASE("progress: without a terminal each logged step is a line, and all that is said stands in training.log") {
  const test::TempFolder folder;
  Listener listener;
  {
    Progress progress(folder / "training.log", false, 20, 0, false);
    progress.take(StepEvent{metrics_of(1)});
    progress.take(StepEvent{metrics_of(1), true, false});  // skipped: a warning tells
    progress.take(StepEvent{metrics_of(1), true});
    progress.take(StepEvent{metrics_of(2), true, true});
    log::warn("look here");
    progress.take(StageEvent{1, 7});
    progress.take(StepEvent{metrics_of(3), true, true});
  }
  log::info("not in the file");
  REQUIRE(listener.lines.size() == 4);
  CHECK(listener.lines[0].starts_with("step 2/20"));
  CHECK(listener.lines[2].starts_with("step 3/7"));
  const std::string text = io::read_file(folder / "training.log");
  CHECK(text.find(" step 2/20") != std::string::npos);
  CHECK(text.find(" Warning: look here\n") != std::string::npos);
  CHECK(text.find("step 1/20") == std::string::npos);
  CHECK(text.find("not in the file") == std::string::npos);
}

TEST_CASE("progress: a resumed run goes on in training.log") {
  const test::TempFolder folder;
  Listener listener;
  for (const bool append : {false, true}) {
    Progress progress(folder / "training.log", append, 20, 0, false);
    log::info(append ? "second" : "first");
  }
  const std::string text = io::read_file(folder / "training.log");
  CHECK(text.find("first") < text.find("second"));
}

TEST_CASE("progress: a skipped step has no loss, and every number its own place") {
  StepMetrics metrics = metrics_of(2);
  metrics.skipped = true;
  CHECK(progress_facts(metrics, 4, 5) == Facts{"step 2/4", "skipped", "0:05 left", "1234 tokens/s", "epoch 0.50",
                                               "lr 0.0002", "grad norm 0.75", "1.50 GiB"});
}

TEST_CASE("progress: on a terminal every step moves the bar, and those with a line stand in training.log alone") {
  const test::TempFolder folder;
  const std::string shown = test::run_apart([&](int out) {
                              dup2(out, STDERR_FILENO);
                              Progress progress(folder / "training.log", false, 20, 5, true);
                              progress.begin();
                              progress.take(StepEvent{metrics_of(10), true, true});
                              progress.take(StepEvent{metrics_of(15)});
                              progress.take(StageEvent{1, 16});
                              progress.take(StepEvent{metrics_of(16), true, false});
                              std::fflush(stderr);
                            }).text;
  const std::string begin = "\r\033[K[";
  CHECK(shown.starts_with(begin + "=====               ]  step 5/20" + begin));
  for (const char* bar : {"]  step 10/20  loss 1.2346  ", "]  step 15/20  loss 1.2346  ", "]  step 16/16  loss "})
    CHECK(shown.find(bar) != std::string::npos);
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 0);
  const std::string text = io::read_file(folder / "training.log");
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(text.find(" step 10/20  loss 1.2346  ") != std::string::npos);
}

TEST_CASE("progress: a log that can't be written ends, and what is said goes on where it went before") {
  const test::TempFolder folder;
  Listener listener;
  {
    Progress progress(folder / "training.log", false, 20, 0, false);
    log::info("kept");
    const test::FileFaults faults(folder.path(), test::Fault::disk_full, 1);
    log::info("lost");
    log::info("lost too");
  }
  REQUIRE(listener.lines.size() == 4);
  CHECK(listener.lines[1] == "lost");
  CHECK(listener.lines[2].starts_with("training.log ends here: "));
  CHECK(listener.lines[3] == "lost too");
  CHECK(io::read_file(folder / "training.log").find("too") == std::string::npos);
}

}  // namespace progress_test
