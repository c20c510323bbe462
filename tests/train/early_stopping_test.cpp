// Evaluations while training: which one is the best, and when a run ends for want of better ones.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/train/account.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace early_stopping_test {

using namespace lora;
using namespace lora::test;

namespace {

struct Evaluated {
  Index step;
  double loss, accuracy;
};

std::vector<Evaluated> evaluations_of(const io::Path& run) {
  std::vector<Evaluated> found;
  for (const io::Json& line : log_of(run))
    if (line.contains("eval_loss"))
      found.push_back({line.at("step"), line.at("eval_loss"), line.at("eval_token_accuracy")});
  return found;
}

/// A run that an evaluation after each step often finds worse.
Config restless(const Workshop& shop, const std::string& output) {
  Config config = shop.config(output);
  config.learning_rate = 0.5;
  config.lr_scheduler_type = "constant";
  config.warmup_steps = 0;
  config.eval_steps = 1;
  return config;
}

run::RunState after(const std::vector<double>& losses, const Config& config,
                    const std::vector<double>& accuracies = {}) {
  run::RunState state;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    ++state.step;
    train::add_evaluation(state, {state.step, losses[i], accuracies.empty() ? 0 : accuracies[i]}, config);
  }
  return state;
}

/// The step at which a run of these evaluations ends, as transformers' EarlyStoppingCallback counts.
Index end_of(const std::vector<Evaluated>& evaluations, const Config& config) {
  const double sign = config.metric_for_best_model == "eval_loss" ? 1 : -1;
  std::optional<double> best;
  Index waited = 0;
  for (const auto& [step, loss, accuracy] : evaluations) {
    const double value = sign > 0 ? loss : -accuracy;
    waited = !best || (value < *best && std::fabs(value - *best) > config.early_stopping_threshold) ? 0 : waited + 1;
    if (!best || value < *best) best = value;
    if (waited >= *config.early_stopping_patience) return step;
  }
  return evaluations.back().step;
}

}  // namespace

TEST_CASE("early stopping: the best is strictly better, and only more than the threshold is an improvement") {
  Config config;
  CHECK(after({3, 2, 2, 2.5}, config).best_step == 2);
  CHECK(after({3, 2, 2, 2.5}, config).evaluations_without_improvement == 2);
  config.early_stopping_threshold = 0.25;
  const run::RunState slow = after({3, 2.875, 2.75, 2.5}, config);  // always better, by 0.25 at most
  CHECK(slow.best_step == 4);
  CHECK(slow.best_metric == 2.5);
  CHECK(slow.evaluations_without_improvement == 3);
  CHECK(after({3, 2.5, 2.125}, config).evaluations_without_improvement == 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(after({nan, nan}, config).best_metric.has_value());
  CHECK(after({nan, nan}, config).evaluations_without_improvement == 2);
  CHECK(after({3, nan, 1}, config).best_step == 3);
  config.metric_for_best_model = "eval_token_accuracy";
  config.early_stopping_threshold = 0;
  const run::RunState by_accuracy = after({3, 1, 2}, config, {0.25, 0.125, 0.5});
  CHECK(by_accuracy.best_step == 3);
  CHECK(by_accuracy.best_metric == 0.5);
  CHECK(by_accuracy.best_eval_loss == 2);
  CHECK(after({3, 2}, config, {0.25, 0.25}).best_step == 1);
}

TEST_CASE("early stopping: patience counts by the best of all, also where its checkpoint can't be loaded any more") {
  Config config;
  run::RunState state;
  state.step = 4;
  state.to_beat.emplace(1.0, 2);  // what a resumed run remembers of the best that is lost
  state.evaluations_without_improvement = 2;
  const auto evaluate = [&](double loss) {
    ++state.step;
    return train::add_evaluation(state, {state.step, loss, 0}, config);
  };
  CHECK(evaluate(3));  // the best that can be loaded
  CHECK(state.evaluations_without_improvement == 3);
  CHECK(state.best_step == 5);
  CHECK(state.step_to_beat() == 2);
  CHECK_FALSE(evaluate(4));
  CHECK(evaluate(2));
  CHECK(state.evaluations_without_improvement == 5);
  config.early_stopping_threshold = 0.25;
  CHECK(evaluate(0.875));  // better, though not by enough
  CHECK(state.evaluations_without_improvement == 6);
  CHECK_FALSE(state.to_beat);
  CHECK(state.step_to_beat() == 8);
  CHECK(evaluate(0.5));
  CHECK(state.evaluations_without_improvement == 0);
}

TEST_CASE("early stopping: an evaluation before the first step is never the best") {
  run::RunState state;
  CHECK_FALSE(train::add_evaluation(state, {0, 1, 1}, Config()));
  CHECK_FALSE(state.best_metric.has_value());
  CHECK(state.evaluations_without_improvement == 0);
  CHECK(state.last_eval_loss == 1);
}

TEST_CASE("early stopping: a run ends where its evaluations say, and stays ended when it is resumed") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(restless(shop, "whole"));
  const auto evaluations = evaluations_of(shop.temp / "whole");
  const Index total = evaluations.back().step;
  struct Case {
    Index patience;
    double threshold;
    const char* metric;
  };
  bool some_end_early = false;
  for (const Case& c : {Case{1, 0, "eval_loss"}, Case{3, 0, "eval_loss"}, Case{2, 0.2, "eval_loss"},
                        Case{2, 0, "eval_token_accuracy"}, Case{1000, 0, "eval_loss"}}) {
    const std::string name = concat(c.metric, " ", c.patience, " ", c.threshold);
    CAPTURE(name);
    Config config = restless(shop, name);
    config.early_stopping_patience = c.patience;
    config.early_stopping_threshold = c.threshold;
    config.metric_for_best_model = c.metric;
    const Index end = end_of(evaluations, config);
    some_end_early = some_end_early || end < total;
    const RunResult result = fine_tune(config);
    CHECK(result.metrics.steps == end);
    CHECK(result.stopped_by == 0);
    CHECK(io::is_there(result.final_model));
    const io::Path run = config.output_dir;
    const io::Json state = io::read_json(run / "checkpoints" / concat("checkpoint-", end) / "trainer_state.json");
    CHECK(state.at("ended_early") == (end < total));
    const auto before = lasting_files(run);
    config.resume_from_checkpoint = "auto";
    CHECK(fine_tune(config).metrics.steps == end);
    expect_same(lasting_files(run), before);
  }
  CHECK(some_end_early);
}

TEST_CASE("early stopping: an interrupted run ends at the same step with the same bytes") {
  const Quiet quiet;
  const Workshop shop;
  Config whole = restless(shop, "whole");
  whole.early_stopping_patience = 3;
  const Index end = fine_tune(whole).metrics.steps;
  REQUIRE(end > 3);
  for (Index last = 1; last < end; ++last) {
    CAPTURE(last);
    Config part = restless(shop, concat("part ", last));
    part.early_stopping_patience = 3;
    std::atomic<int> stop = 0;
    RunOptions options;
    options.stop = &stop;
    options.on_evaluation = [&](const run::EvalMetrics& metrics) { stop = metrics.step == last ? 1 : 0; };
    CHECK(fine_tune(part, std::move(options)).stopped_by == 1);
    part.resume_from_checkpoint = "auto";
    fine_tune(part);
    auto found = lasting_files(part.output_dir);
    const auto expected = lasting_files(whole.output_dir);
    std::erase_if(found, [&](const auto& file) { return expected.count(file.first) == 0; });
    expect_same(expected, found);
  }
}

TEST_CASE("early stopping: the best by accuracy becomes final_model") {
  const Quiet quiet;
  const Workshop shop;
  Config config = restless(shop, "run");
  config.load_best_model_at_end = true;
  config.metric_for_best_model = "eval_token_accuracy";
  const RunResult result = fine_tune(config);
  const auto evaluations = evaluations_of(config.output_dir);
  const Evaluated* best = &evaluations.front();
  for (const Evaluated& one : evaluations)
    if (one.accuracy > best->accuracy) best = &one;
  REQUIRE(best->step < evaluations.back().step);
  CHECK(result.metrics.best_eval_loss == best->loss);
  const io::Path checkpoint = io::Path(config.output_dir) / "checkpoints" / concat("checkpoint-", best->step);
  CHECK(adapter_values(result.final_model) == adapter_values(checkpoint));
}

TEST_CASE("early stopping: eval_on_start adds a line of the model as it was and changes nothing else") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("plain");
  fine_tune(config);
  config = shop.config("from start");
  config.eval_on_start = true;
  fine_tune(config);
  auto lines = log_of(config.output_dir);
  REQUIRE(lines.front().at("step") == 0);
  CHECK(lines.front().at("eval_loss") > 0);
  CHECK(lines.front().at("eval_loss") != lines.at(2).value("eval_loss", 0.0));
  const std::string log = numbers_of(config.output_dir);
  CHECK(log.substr(log.find('\n') + 1) == numbers_of(shop.temp / "plain"));
  const auto weights = [](const io::Path& run) { return adapter_values(run / "final_model"); };
  CHECK(weights(config.output_dir) == weights(shop.temp / "plain"));
}

TEST_CASE("early stopping: an evaluation before the first step that is stopped is made by the resumed run") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("whole");
  config.eval_on_start = true;
  fine_tune(config);
  config = shop.config("stopped");
  config.eval_on_start = true;
  const std::atomic<int> stop = 1;
  RunOptions options;
  options.stop = &stop;
  CHECK(fine_tune(config, std::move(options)).stopped_by == 1);
  CHECK(io::is_there(io::Path(config.output_dir) / "checkpoints" / "checkpoint-0"));
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
  CHECK(numbers_of(config.output_dir) == numbers_of(shop.temp / "whole"));
}

}  // namespace early_stopping_test
