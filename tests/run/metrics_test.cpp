#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "lora/io/file.hpp"
#include "lora/run/metrics_log.hpp"
#include "support/temp_folder.hpp"

namespace metrics_test {

using namespace lora;
using namespace lora::run;

namespace {

StepMetrics step_metrics(Index step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 1.0 / 3.0 + static_cast<double>(step);
  metrics.learning_rate = 2e-4;
  metrics.tokens = 100;
  return metrics;
}

std::vector<Index> steps_in(const io::Path& log) {
  std::vector<Index> steps;
  const std::string text = io::read_file(log);
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    steps.push_back(io::parse_json(text.substr(at, end - at), "log").at("step").get<Index>());
  return steps;
}

}  // namespace

TEST_CASE("metrics: a line has every field and its numbers read back the same") {
  const test::TempFolder folder;
  MetricsLog log(folder.path());
  log.take(StepEvent{step_metrics(10), true});
  const auto line = io::parse_json(io::read_file(folder / "trainer_log.jsonl"), "log");  // written through, still open
  for (const char* field : {"step", "epoch", "loss", "mean_loss", "learning_rate", "grad_norm", "tokens",
                            "labelled_tokens", "tokens_per_second", "elapsed_seconds", "peak_memory_gib"})
    CHECK(line.contains(field));
  CHECK(line.at("loss").get<double>() == step_metrics(10).loss);
  CHECK(line.at("learning_rate").get<double>() == 2e-4);
}

TEST_CASE("metrics: every field of a step reads back from its line as it was") {
  StepMetrics metrics;
  // A field that is added fails to compile here, and is to be given a value below.
  auto& [step, stage, skipped, epoch, loss, mean_loss, learning_rate, grad_norm, loss_scale, tokens, labelled_tokens,
         tokens_per_second, elapsed_seconds, peak_memory_gib, mix, datasets] = metrics;
  step = 7;
  stage = 2;
  skipped = true;
  double number = 1.0 / 3;
  for (double* field :
       {&epoch, &loss, &mean_loss, &learning_rate, &grad_norm, &tokens_per_second, &elapsed_seconds, &peak_memory_gib})
    *field = number++;
  loss_scale = 1024;
  tokens = 100;
  labelled_tokens = 90;
  mix = {{"a", 0.25}, {"b", 0.75}};
  datasets = {{"x.jsonl", 1}};
  const auto read_back = [](const StepMetrics& one) {
    const io::Json json = io::parse_json(io::to_text(to_json(one), -1), "line");
    return step_metrics_from(io::JsonView(json, "line"));
  };
  const StepMetrics read = read_back(metrics);
  CHECK(read.step == 7);
  CHECK(read.stage == 2);
  CHECK(read.skipped);
  for (const auto field : {&StepMetrics::epoch, &StepMetrics::loss, &StepMetrics::mean_loss,
                           &StepMetrics::learning_rate, &StepMetrics::grad_norm, &StepMetrics::tokens_per_second,
                           &StepMetrics::elapsed_seconds, &StepMetrics::peak_memory_gib})
    CHECK(read.*field == metrics.*field);
  CHECK(read.loss_scale == 1024);
  CHECK(read.tokens == 100);
  CHECK(read.labelled_tokens == 90);
  CHECK(read.mix == mix);
  CHECK(read.datasets == datasets);

  const StepMetrics plain = read_back(step_metrics(3));
  CHECK(plain.stage == 0);
  CHECK_FALSE(plain.skipped);
  CHECK_FALSE(plain.loss_scale);
  CHECK(plain.mix.empty());
  CHECK(plain.datasets.empty());
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(read_back(metrics).loss));
}

TEST_CASE("metrics: only steps that have a line are logged, and a shown one that has none is not") {
  const test::TempFolder folder;
  MetricsLog log(folder.path());
  log.take(StepEvent{step_metrics(1)});
  log.take(StepEvent{step_metrics(2), false, true});
  log.take(StepEvent{step_metrics(3), true, false});
  log.take(PlanEvent{9});
  log.take(SavingEvent{3});
  CHECK(steps_in(folder / "trainer_log.jsonl") == std::vector<Index>{3});
}

TEST_CASE("metrics: an evaluation's line holds its step, loss and perplexity") {
  const test::TempFolder folder;
  MetricsLog log(folder.path());
  log.take(EvaluationEvent{model::Evaluation{.step = 7, .loss_sum = 3, .labelled = 2}});
  const auto line = io::parse_json(io::read_file(folder / "trainer_log.jsonl"), "log");
  CHECK(line.at("step") == 7);
  CHECK(line.at("eval_loss") == 1.5);
  CHECK(line.at("eval_perplexity").get<double>() == std::exp(1.5));
}

TEST_CASE("metrics: a log of any size is gone on after, and read piece by piece") {
  const test::TempFolder folder;
  const auto path = folder / "trainer_log.jsonl";
  {
    MetricsLog log(folder.path());
    for (Index step = 1; step <= 20; ++step) {
      StepMetrics metrics = step_metrics(step);
      metrics.elapsed_seconds = 2.0 * static_cast<double>(step);
      log.take(StepEvent{metrics, true});
    }
  }
  const auto bytes = std::filesystem::file_size(path);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{100}, std::size_t{1} << 16}) {
    const auto kept = MetricsLog::kept_through(folder.path(), 9, piece);
    const std::string text = io::read_file(path).substr(0, kept.bytes);
    CHECK(std::count(text.begin(), text.end(), '\n') == 9);
    CHECK(text.ends_with('\n'));
    CHECK(kept.elapsed == 18);
    CHECK(MetricsLog::kept_through(folder.path(), 99, piece).bytes == bytes);
  }
  CHECK(std::filesystem::file_size(path) == bytes);                       // asking changes nothing
  std::filesystem::resize_file(path, bytes + (std::uintmax_t{1} << 30));  // of holes
  { MetricsLog log(folder.path(), Index{99}); }
  CHECK(std::filesystem::file_size(path) == bytes);
}

TEST_CASE("metrics: a resumed run cuts what is past its checkpoint, a new one starts anew") {
  const test::TempFolder folder;
  const auto path = folder / "trainer_log.jsonl";
  {
    MetricsLog log(folder.path());
    for (Index step = 1; step <= 5; ++step) log.take(StepEvent{step_metrics(step), true});
    log.take(EvaluationEvent{model::Evaluation{.step = 5, .loss_sum = 1, .labelled = 1}});
  }
  { MetricsLog log(folder.path(), Index{5}); }
  CHECK(steps_in(path) == std::vector<Index>{1, 2, 3, 4, 5, 5});
  {
    MetricsLog log(folder.path(), Index{3});
    log.take(StepEvent{step_metrics(4), true});
  }
  CHECK(steps_in(path) == std::vector<Index>{1, 2, 3, 4});
  { MetricsLog log(folder.path()); }
  CHECK(steps_in(path).empty());
}

TEST_CASE("metrics: a line that a killed run left cut goes, with or without its line end") {
  const test::TempFolder folder;
  const auto path = folder / "trainer_log.jsonl";
  for (const char* torn : {"{\"step\":2,\"lo", "{\"step\":2,\"lo\n{\"step\":3}\n", "\n{\"step\":2}\n", "[2]\n"}) {
    io::write_file(path, std::string_view(concat("{\"step\":1}\n", std::string_view(torn))));
    { MetricsLog log(folder.path(), Index{9}); }
    CHECK(io::read_file(path) == "{\"step\":1}\n");
  }
}

TEST_CASE("metrics: the speed leaves the first two steps out unless there is no third") {
  Throughput speed;
  CHECK(speed.tokens_per_second() == 0);
  speed.add(100, 10);
  speed.add(100, 10);
  CHECK(speed.tokens_per_second() == 10);
  speed.add(100, 1);
  speed.add(300, 1);
  CHECK(speed.tokens_per_second() == 200);
}

TEST_CASE("metrics: the file of the whole run") {
  const test::TempFolder folder;
  RunMetrics metrics;
  metrics.train_loss = 0.1;
  metrics.steps = 5;
  metrics.resumed_from_step = 2;
  write_training_metrics(folder.path(), metrics);
  const auto json = io::read_json(folder / "training_metrics.json");
  CHECK(json.at("train_loss") == 0.1);
  CHECK(json.at("steps") == 5);
  CHECK(json.at("resumed_from_step") == 2);
  for (const char* field : {"total_tokens", "tokens_per_second", "peak_memory_gib", "seconds"})
    CHECK(json.contains(field));
  CHECK_FALSE(json.contains("eval_loss"));
}

}  // namespace metrics_test
