#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/run/metrics_log.hpp"
#include "support/file_faults.hpp"
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
  auto& [step, stage, skipped, epoch, loss, mean_loss, learning_rate, grad_norm, loss_scale, tokens, computed_tokens,
         labeled_tokens, tokens_per_second, elapsed_seconds, peak_memory_gib, mix, datasets] = metrics;
  step = 7;
  stage = 2;
  skipped = true;
  double number = 1.0 / 3;
  for (double* field :
       {&epoch, &loss, &mean_loss, &learning_rate, &grad_norm, &tokens_per_second, &elapsed_seconds, &peak_memory_gib})
    *field = number++;
  loss_scale = 1024;
  tokens = 100;
  computed_tokens = 95;
  labeled_tokens = 90;
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
  CHECK(read.computed_tokens == 95);
  CHECK(read.labeled_tokens == 90);
  CHECK(read.mix == mix);
  CHECK(read.datasets == datasets);

  const StepMetrics plain = read_back(step_metrics(3));
  CHECK(plain.stage == 0);
  CHECK_FALSE(plain.skipped);
  CHECK_FALSE(plain.loss_scale);
  CHECK_FALSE(plain.computed_tokens);
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
  log.take(StageEvent{1, 9});
  log.take(SavingEvent{3});
  CHECK(steps_in(folder / "trainer_log.jsonl") == std::vector<Index>{3});
}

TEST_CASE("metrics: an evaluation's line holds its step, loss and perplexity") {
  const test::TempFolder folder;
  MetricsLog log(folder.path());
  log.take(EvaluationEvent{model::Evaluation{.step = 7, .loss_sum = 3, .labeled = 2}});
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
    log.take(EvaluationEvent{model::Evaluation{.step = 5, .loss_sum = 1, .labeled = 1}});
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

TEST_CASE("metrics: what only some steps have is no field of the others, and every field has its own number") {
  const io::Json plain = to_json(step_metrics(3));
  CHECK(plain.size() == 11);
  for (const char* field : {"computed_tokens", "stage", "skipped", "loss_scale", "mix", "datasets"})
    CHECK_FALSE(plain.contains(field));
  StepMetrics metrics{.step = 1, .stage = 2, .skipped = true, .epoch = 3, .loss = 4, .mean_loss = 5};
  metrics.learning_rate = 6;
  metrics.grad_norm = 7;
  metrics.loss_scale = 8;
  metrics.tokens = 9;
  metrics.computed_tokens = 17;
  metrics.labeled_tokens = 10;
  metrics.tokens_per_second = 11;
  metrics.elapsed_seconds = 12;
  metrics.peak_memory_gib = 13;
  metrics.mix = {{"a", 14}, {"b", 15}};
  metrics.datasets = {{"a", 16}};
  CHECK(
      io::to_text(to_json(metrics), -1) ==
      R"({"step":1,"epoch":3.0,"loss":4.0,"mean_loss":5.0,"learning_rate":6.0,"grad_norm":7.0,"tokens":9,)"
      R"("labelled_tokens":10,"tokens_per_second":11.0,"elapsed_seconds":12.0,"peak_memory_gib":13.0,"computed_tokens":17,)"
      R"("stage":2,"skipped":true,"loss_scale":8.0,"mix":{"a":14.0,"b":15.0},"datasets":{"a":16.0}})");
  metrics.stage = 1;
  CHECK(to_json(metrics).at("stage") == 1);
}

TEST_CASE("metrics: a step's line that lacks its step or tokens is none, and other numbers are not known") {
  const auto read = [](const char* text) {
    const io::Json json = io::parse_json(text, "line");
    return step_metrics_from(io::JsonView(json, "line"));
  };
  const StepMetrics metrics = read(R"({"step": 4, "tokens": 5, "labelled_tokens": 6})");
  CHECK(metrics.step == 4);
  CHECK(metrics.tokens == 5);
  CHECK(metrics.labeled_tokens == 6);
  for (const auto field : {&StepMetrics::epoch, &StepMetrics::loss, &StepMetrics::mean_loss,
                           &StepMetrics::learning_rate, &StepMetrics::grad_norm, &StepMetrics::tokens_per_second,
                           &StepMetrics::elapsed_seconds, &StepMetrics::peak_memory_gib})
    CHECK(std::isnan(metrics.*field));
  for (const char* text : {R"({"tokens": 5, "labelled_tokens": 6})", R"({"step": 4, "labelled_tokens": 6})",
                           R"({"step": 4, "tokens": 5})"})
    CHECK_THROWS_AS(read(text), FormatError);
}

TEST_CASE("metrics: an evaluation's line has scores and samples where there are any") {
  model::Evaluation evaluation{.step = 7, .loss_sum = 3, .labeled = 2};
  const io::Json plain = to_json(evaluation);
  CHECK(plain.size() == 4);
  CHECK(plain.at("eval_token_accuracy") == evaluation.token_accuracy());
  evaluation.exact_match = 0.25;
  evaluation.rouge_l = 0.75;
  evaluation.samples = {{"why", "ah", "so"}, {"how", "eh", "thus"}};
  const io::Json json = to_json(evaluation);
  CHECK(json.at("eval_exact_match") == 0.25);
  CHECK(json.at("eval_rouge_l") == 0.75);
  REQUIRE(json.at("eval_samples").size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const io::Json& sample = json.at("eval_samples")[i];
    CHECK(sample.at("prompt") == evaluation.samples[i].prompt);
    CHECK(sample.at("predict") == evaluation.samples[i].answer);
    CHECK(sample.at("label") == evaluation.samples[i].expected);
    CHECK(sample.size() == 3);
  }
}

TEST_CASE("metrics: the speed of one step, of two and of three; without time there is none") {
  Throughput speed;
  speed.add(100, 4);
  CHECK(speed.tokens_per_second() == 25);
  speed.add(300, 4);
  CHECK(speed.tokens_per_second() == 50);
  speed.add(30, 2);
  CHECK(speed.tokens_per_second() == 15);
  Throughput none;
  none.add(100, 0);
  CHECK(none.tokens_per_second() == 0);
}

TEST_CASE("metrics: what a rank did reads back from its fields as it was") {
  const RankMetrics metrics{.rank = 1,
                            .host = "a host",
                            .device = "cpu",
                            .threads = 2,
                            .peak_memory_gib = 3.5,
                            .communication_seconds = 4.5,
                            .hidden_seconds = 5.5,
                            .sent_bytes = 6,
                            .received_bytes = 7};
  const io::Json json = to_json(metrics);
  CHECK(io::to_text(json, -1) ==
        R"({"rank":1,"host":"a host","device":"cpu","threads":2,"peak_memory_gib":3.5,"communication_seconds":4.5,)"
        R"("hidden_seconds":5.5,"sent_bytes":6.0,"received_bytes":7.0})");
  const RankMetrics read = rank_metrics_from(io::JsonView(json, "rank"));
  CHECK(io::to_text(to_json(read), -1) == io::to_text(json, -1));
  for (const auto& field : json.items()) {
    io::Json without = json;
    without.erase(field.key());
    CHECK_THROWS_AS(rank_metrics_from(io::JsonView(without, "rank")), FormatError);
  }
}

TEST_CASE("metrics: every field of the file of a run has its own number, and is there where it is known") {
  const test::TempFolder folder;
  RunMetrics metrics;
  metrics.train_loss = 1;
  metrics.mean_train_loss = 2;
  metrics.steps = 3;
  metrics.total_tokens = 4;
  metrics.tokens_per_second = 5;
  metrics.peak_memory_gib = 6;
  metrics.seconds = 7;
  metrics.resumed_from_step = 8;
  const auto written = [&] {
    write_training_metrics(folder.path(), metrics);
    return io::to_text(io::read_json(folder / "training_metrics.json"), -1);
  };
  std::string text =
      R"({"finished":false,"train_loss":1.0,"mean_train_loss":2.0,"steps":3,"total_tokens":4,"tokens_per_second":5.0,)"
      R"("peak_memory_gib":6.0,"seconds":7.0,"resumed_from_step":8)";
  CHECK(written() == text + "}");
  metrics.eval_loss = 9;
  metrics.eval_exact_match = 10;
  metrics.eval_rouge_l = 11;
  metrics.best_eval_loss = 12;
  metrics.best_step = 13;
  metrics.weights_step = 14;
  metrics.ended_early = "patience";
  metrics.stages = {{0, 15, true}, {15, 16, false}};
  metrics.curriculum = {{17, 18, {{"a", 19}}}};
  metrics.files = {{"x", 3}, {"y", 1}};
  metrics.ranks = {{.rank = 0}, {.rank = 1}};
  text +=
      R"(,"eval_loss":9.0,"eval_exact_match":10.0,"eval_rouge_l":11.0,"best_eval_loss":12.0,"best_step":13,)"
      R"("final_model_step":14,"ended_early":"patience","stages":[{"from_step":0,"to_step":15,"ended_early":true},)"
      R"({"from_step":15,"to_step":16,"ended_early":false}],"curriculum":[{"from_step":17,"to_step":18,)"
      R"("counts":{"a":19}}],"datasets":[{"name":"x","records":3,"share":0.75},{"name":"y","records":1,"share":0.25}])";
  const std::string found = written();
  CHECK(found.substr(0, text.size()) == text);
  const io::Json json = io::read_json(folder / "training_metrics.json");
  REQUIRE(json.at("ranks").size() == 2);
  CHECK(json.at("ranks")[1].at("rank") == 1);
  // A curriculum without a class that anything could be drawn of is an empty list.
  metrics.curriculum.clear();
  written();
  CHECK_FALSE(io::read_json(folder / "training_metrics.json").contains("curriculum"));
  metrics.absent_class_field = "level";
  written();
  CHECK(io::read_json(folder / "training_metrics.json").at("curriculum") == io::Json::array());
}

TEST_CASE("metrics: steps are not known without the file, or where it is another's") {
  const test::TempFolder folder;
  CHECK_FALSE(steps_of_metrics(folder.path()));
  for (const char* text : {"[]", "{", "{\"steps\": \"a\"}", "{}"}) {
    io::write_file(folder / "training_metrics.json", std::string_view(text));
    CHECK_FALSE(steps_of_metrics(folder.path()));
    CHECK_FALSE(steps_of_metrics(folder.path(), true));
  }
  io::write_file(folder / "training_metrics.json", std::string_view("{\"finished\": false, \"steps\": 4}"));
  CHECK(steps_of_metrics(folder.path()) == 4);
  CHECK_FALSE(steps_of_metrics(folder.path(), true));
}

TEST_CASE("metrics: time that has passed is the longest of the lines that are kept; an evaluation has none") {
  const test::TempFolder folder;
  io::write_file(folder / "trainer_log.jsonl", std::string_view("{\"step\": 1, \"elapsed_seconds\": 5}\n"
                                                                "{\"step\": 2, \"elapsed_seconds\": 8}\n"
                                                                "{\"step\": 2, \"eval_loss\": 1}\n"
                                                                "{\"step\": 3, \"elapsed_seconds\": 9}\n"));
  const auto kept = MetricsLog::kept_through(folder.path(), 2);
  CHECK(kept.elapsed == 8);
  CHECK(kept.bytes == std::filesystem::file_size(folder / "trainer_log.jsonl") - 34);
  CHECK(MetricsLog::kept_through(folder.path(), 0).bytes == 0);
  CHECK(MetricsLog::kept_through(folder / "none", 9).bytes == 0);
  CHECK(MetricsLog(folder.path(), std::optional(kept)).elapsed_seconds() == 8);
  CHECK(MetricsLog(folder.path()).elapsed_seconds() == 0);
  { const MetricsLog deep(folder / "a" / "b"); }
  CHECK(std::filesystem::is_directory(folder / "a" / "b"));
}

TEST_CASE("metrics: what was logged before a checkpoint is on the disk when that is written") {
  const test::TempFolder folder;
  {
    const test::FileFaults power(folder.path(), test::Fault::loses_unsynced, -1);
    MetricsLog log(folder.path());
    log.take(StepEvent{step_metrics(1), true});
    log.take(SavingEvent{1});
    log.take(StepEvent{step_metrics(2), true});
  }
  REQUIRE(io::is_there(folder / "trainer_log.jsonl"));
  CHECK(steps_in(folder / "trainer_log.jsonl") == std::vector<Index>{1});
}

TEST_CASE("metrics: what nobody has said of a run, a step or a rank is 0 and not known") {
  const test::TempFolder folder;
  write_training_metrics(folder.path(), {});
  CHECK(io::to_text(io::read_json(folder / "training_metrics.json"), -1) ==
        R"({"finished":false,"train_loss":0.0,"mean_train_loss":0.0,"steps":0,"total_tokens":0,)"
        R"("tokens_per_second":0.0,"peak_memory_gib":0.0,"seconds":0.0,"resumed_from_step":0})");
  RunMetrics finished;
  finished.finished = true;
  write_training_metrics(folder.path(), finished);
  CHECK(io::read_json(folder / "training_metrics.json").at("finished") == true);
  CHECK(io::to_text(to_json(StepMetrics()), -1) ==
        R"({"step":0,"epoch":0.0,"loss":0.0,"mean_loss":0.0,"learning_rate":0.0,"grad_norm":0.0,"tokens":0,)"
        R"("labelled_tokens":0,"tokens_per_second":0.0,"elapsed_seconds":0.0,"peak_memory_gib":0.0})");
  CHECK(io::to_text(to_json(RankMetrics()), -1) ==
        R"({"rank":0,"host":"","device":"","threads":1,"peak_memory_gib":0.0,"communication_seconds":0.0,)"
        R"("hidden_seconds":0.0,"sent_bytes":0.0,"received_bytes":0.0})");
  CHECK(io::to_text(to_json(std::vector<StageSteps>(1)), -1) == R"([{"from_step":0,"to_step":0,"ended_early":false}])");
}

}  // namespace metrics_test
