#include "lora/run/tensorboard_log.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/file_faults.hpp"
#include "support/temp_folder.hpp"
#include "support/tensorboard_events.hpp"

namespace tensorboard_log_test {

using namespace lora;
using namespace lora::run;

namespace {

StepMetrics metrics_of(Index step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 1;
  metrics.mean_loss = 2;
  metrics.learning_rate = 3;
  metrics.grad_norm = 4;
  metrics.epoch = 5;
  metrics.tokens_per_second = 6;
  metrics.peak_memory_gib = 7;
  return metrics;
}

std::vector<std::string> lines_in(const io::Path& output) {
  return test::lines_of_events(io::read_file(output / "tensorboard" / "events.out.tfevents.lora"), {});
}

}  // namespace

TEST_CASE("tensorboard log: each number of a step and of an evaluation stands under its own name") {
  const test::TempFolder temp;
  {
    TensorBoardLog log(temp.path());
    log.take(StepEvent{metrics_of(1)});  // has no line
    log.take(StepEvent{metrics_of(2), true});
    StepMetrics metrics = metrics_of(3);
    metrics.loss_scale = 8;
    metrics.mix = {{"easy", 0.25}, {"hard", 0.75}};
    metrics.datasets = {{"a", 0.5}};
    log.take(StepEvent{metrics, true});
    model::Evaluation evaluation{.step = 3, .loss_sum = 0, .labeled = 4, .correct = 3};
    log.take(EvaluationEvent{evaluation});
    evaluation.exact_match = 0.125;
    evaluation.rouge_l = 0.375;
    log.take(EvaluationEvent{evaluation});
    log.take(StageEvent{1, 9});
    log.take(FinishedEvent{});
    log.take(SavingEvent{3});
  }
  const std::string step =
      " train/loss=1 train/mean_loss=2 train/learning_rate=3 train/grad_norm=4 train/epoch=5 "
      "train/tokens_per_second=6 train/peak_memory_gib=7";
  const std::string evaluation = "3 eval/loss=0 eval/perplexity=1 eval/token_accuracy=0.75";
  const auto lines = lines_in(temp.path());
  REQUIRE(lines.size() == 5);
  CHECK(lines[1] == "2" + step);
  CHECK(lines[2] == "3" + step + " train/loss_scale=8 curriculum/easy=0.25 curriculum/hard=0.75 datasets/a=0.5");
  CHECK(lines[3] == evaluation);
  CHECK(lines[4] == evaluation + " eval/exact_match=0.125 eval/rouge_l=0.375");
}

TEST_CASE("tensorboard log: a run that goes on appends to what leads up to its step, a new one begins anew") {
  const test::TempFolder temp;
  {
    TensorBoardLog log(temp.path());
    for (Index step = 1; step <= 4; ++step) log.take(StepEvent{metrics_of(step), true});
  }
  {
    TensorBoardLog log(temp.path(), TensorBoardLog::kept_through(temp.path(), 2));
    log.take(StepEvent{metrics_of(7), true});
  }
  std::string steps;
  for (const std::string& line : lines_in(temp.path())) steps += line.substr(0, line.find(' ')) + ";";
  CHECK(steps == "0;1;2;7;");
  { const TensorBoardLog log(temp.path()); }
  CHECK(lines_in(temp.path()).size() == 1);
}

TEST_CASE("tensorboard log: what was told before a checkpoint is on the disk when that is written") {
  const test::TempFolder temp;
  io::create_folders(temp / "tensorboard");
  {
    const test::FileFaults power(temp.path(), test::Fault::loses_unsynced, -1);
    TensorBoardLog log(temp.path());
    log.take(StepEvent{metrics_of(1), true});
    log.take(SavingEvent{1});
    log.take(StepEvent{metrics_of(2), true});
  }
  REQUIRE(io::is_there(temp / "tensorboard" / "events.out.tfevents.lora"));
  const auto lines = lines_in(temp.path());
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].starts_with("1 train/loss=1 "));
}

}  // namespace tensorboard_log_test
