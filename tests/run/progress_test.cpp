#include "lora/run/progress.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

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
    progress.take(StepEvent{metrics_of(2), true, true});
    log::warn("look here");
    progress.take(PlanEvent{7});
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

}  // namespace progress_test
