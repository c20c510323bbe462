// Evaluations while training: which one is the best, and when a run ends for want of better ones.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/train/account.hpp"
#include "support/effort.hpp"
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

/// An evaluation with this loss and this accuracy, which are fractions of eighths.
model::Evaluation evaluated(Index step, double loss, double accuracy = 0) {
  return {.step = step, .loss_sum = 8 * loss, .labeled = 8, .correct = static_cast<Index>(8 * accuracy)};
}

run::RunState after(const std::vector<double>& losses, const Config& config,
                    const std::vector<double>& accuracies = {}) {
  run::RunState state;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    ++state.step;
    train::add_evaluation(state, evaluated(state.step, losses[i], accuracies.empty() ? 0 : accuracies[i]), config);
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

TEST_CASE("early stopping: patience is a stage's, which compares with its own evaluations; the best is the run's") {
  const Config config;
  run::RunState state = after({2, 3, 3}, config);
  const auto evaluate = [&](double loss, Index stage) {
    ++state.step;
    return train::add_evaluation(state, evaluated(state.step, loss), config, stage);
  };
  CHECK(state.evaluations_without_improvement == 2);
  CHECK_FALSE(evaluate(5, 1));
  CHECK(state.evaluations_without_improvement == 0);
  CHECK_FALSE(evaluate(4, 1));
  CHECK(state.evaluations_without_improvement == 0);
  CHECK_FALSE(evaluate(4.5, 1));
  CHECK(state.evaluations_without_improvement == 1);
  CHECK(state.best_step == 1);
  CHECK(state.step_to_beat() == 5);
  CHECK(evaluate(1, 1));
  CHECK(state.best_step == 7);
  CHECK(state.step_to_beat() == 7);
}

TEST_CASE("early stopping: patience counts by the best of all, also where its checkpoint can't be loaded any more") {
  Config config;
  run::RunState state;
  state.step = 4;
  state.to_beat.emplace(1.0, 2);  // what a resumed run remembers of the best that is lost
  state.evaluations_without_improvement = 2;
  const auto evaluate = [&](double loss) {
    ++state.step;
    return train::add_evaluation(state, evaluated(state.step, loss), config);
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
  CHECK(state.step_to_beat() == 8);
  CHECK(evaluate(0.5));
  CHECK(state.evaluations_without_improvement == 0);
}

TEST_CASE("early stopping: an evaluation before the first step is never the best") {
  run::RunState state;
  CHECK_FALSE(train::add_evaluation(state, evaluated(0, 1, 1), Config()));
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

TEST_CASE("early stopping: without eval_steps the best is looked for at each checkpoint, else at the end alone") {
  const Quiet quiet;
  const Workshop shop;
  const auto steps_of = [&](const std::string& output, const std::function<void(Config&)>& change) {
    Config config = restless(shop, output);
    config.eval_steps.reset();
    config.save_steps = 2;
    config.max_steps = 5;
    change(config);
    fine_tune(config);
    std::vector<Index> steps;
    for (const Evaluated& one : evaluations_of(shop.temp / output)) steps.push_back(one.step);
    return steps;
  };
  const std::vector<Index> each = {2, 4, 5}, last = {5};
  CHECK(steps_of("plain", [](Config&) {}) == last);
  CHECK(steps_of("patient", [](Config& config) { config.early_stopping_patience = 9; }) == each);
  CHECK(steps_of("best", [](Config& config) { config.load_best_model_at_end = true; }) == each);
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
    options.on_evaluation = [&](const model::Evaluation& metrics) { stop = metrics.step == last ? 1 : 0; };
    CHECK(fine_tune(part, std::move(options)).stopped_by == 1);
    part.resume_from_checkpoint = "auto";
    fine_tune(part);
    auto found = lasting_files(part.output_dir);
    const auto expected = lasting_files(whole.output_dir);
    std::erase_if(found, [&](const auto& file) { return expected.count(file.first) == 0; });
    expect_same(expected, found);
  }
}

TEST_CASE("early stopping: it ends a stage, and the next one begins with fresh patience, resumed at any step too") {
  Quiet quiet;
  const Workshop shop;
  const auto staged = [&](const std::string& output) {
    Config config = restless(shop, output);
    config.num_train_epochs = 3;
    config.logging_steps = 4;
    config.save_steps = 0;
    config.early_stopping_patience = 2;
    config.stages = {{.name = "a", .until_step = 9}, {.until_step = 18, .learning_rate = 0.3}, {.until_step = 27}};
    return config;
  };
  const Config whole = staged("whole");
  const RunResult result = fine_tune(whole);
  // What the evaluations say.
  std::vector<std::pair<Index, Index>> steps;  // of each stage
  Index begin = 0;
  double best = 0;
  for (Index waited = 0, planned = 9; const Evaluated& one : evaluations_of(whole.output_dir)) {
    waited = one.step == begin + 1 || one.loss < best ? 0 : waited + 1;
    best = one.step == begin + 1 ? one.loss : std::min(best, one.loss);
    if (waited < 2 && one.step < begin + planned) continue;
    steps.emplace_back(begin, one.step);
    begin = one.step;
  }
  REQUIRE(steps.size() == 3);
  REQUIRE(steps[0].second < 9);
  CHECK(result.metrics.steps == steps[2].second);
  REQUIRE(result.metrics.stages.size() == 3);
  const std::string card = io::read_file(result.final_model / "README.md");
  CAPTURE(card);
  const io::Json told = io::read_json(shop.temp / "whole" / "training_metrics.json").at("stages");
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    const auto [from, to] = steps[i];
    const bool early = to - from < 9;
    CHECK(told[i] == io::json_object({{"from_step", from}, {"to_step", to}, {"ended_early", early}}));
    CHECK(holds(card, concat("| steps, stage ", i + 1, i == 0 ? " (a)" : "", " | ", from + 1, " to ", to,
                             early ? ", ended early by early_stopping_patience |" : " |")));
    if (i < 2 && early)
      CHECK(quiet.said(concat("stage ", i + 1, i == 0 ? " (a)" : "", " ends early after step ", to,
                              ": 2 evaluations without improvement of eval_loss; the best was step ")));
    if (i > 0) CHECK(quiet.said(concat("step ", from, ": stage ", i + 1, " begins")));
  }
  for (const io::Json& line : log_of(whole.output_dir))
    if (line.contains("stage")) {
      const auto stage = static_cast<std::size_t>(line.at("stage").get<Index>() - 1);
      CHECK(line.at("step") > steps[stage].first);
      CHECK(line.at("step") <= steps[stage].second);
    }
  const io::Json state = io::read_json(shop.temp / "whole" / "checkpoints" / concat("checkpoint-", steps[2].second) /
                                       "trainer_state.json");
  CHECK(state.at("ended_early") == (steps[2].second - steps[2].first < 9));
  for (Index last = 1; last < steps[2].second;
       last += effort<Index>(1, 3, "early stopping: resumed at two of three steps")) {
    CAPTURE(last);
    Config part = staged(concat("part ", last));
    std::atomic<int> stop = 0;
    RunOptions options;
    options.stop = &stop;
    // In the step's evaluation, or after it.
    if (last % 2 == 0) options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == last; };
    if (last % 2 == 1) options.on_evaluation = [&](const Evaluation& metrics) { stop = metrics.step == last; };
    CHECK(fine_tune(part, std::move(options)).stopped_by == 1);
    part.resume_from_checkpoint = "auto";
    fine_tune(part);
    auto found = lasting_files(part.output_dir);
    const auto expected = lasting_files(whole.output_dir);
    std::erase_if(found, [&](const auto& file) { return expected.count(file.first) == 0; });
    expect_same(expected, found);
  }
}

TEST_CASE("early stopping: a stage that says it ended where it can't have is an error") {
  const Quiet quiet;
  const Workshop shop;
  Config config = restless(shop, "run");
  config.max_steps = 4;
  fine_tune(config);
  const io::Path folder = shop.temp / "run" / "checkpoints" / "checkpoint-4";
  run::RunState state = run::Checkpoints::open(folder).state;
  state.ended_stages = {2};
  run::Checkpoints(shop.temp / "run").save(state, [&](const io::Path& to) {
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors", "README.md"})
      io::copy_file(folder / name, to / name);
  });
  config.max_steps = 6;
  config.resume_from_checkpoint = "auto";
  CHECK(message_of<FormatError>([&] { fine_tune(config); }) ==
        "no stage of this run can have ended early after step 2");
}

TEST_CASE("early stopping: a run that it ended goes on with a larger patience, or without") {
  Quiet quiet;
  const Workshop shop;
  Config whole = restless(shop, "whole");
  whole.logging_steps = 100;
  fine_tune(whole);
  for (const std::optional<Index> then : {std::optional<Index>(1000), std::optional<Index>()}) {
    Config config = restless(shop, concat("run ", then.value_or(0)));
    config.logging_steps = 100;
    config.early_stopping_patience = 2;
    const RunResult ended = fine_tune(config);
    REQUIRE(ended.metrics.steps < 24);
    CHECK(ended.metrics.ended_early == "early_stopping_patience");
    // The last step has its line.
    Index last = 0;
    for (const io::Json& line : log_of(config.output_dir))
      if (line.contains("loss")) last = line.at("step");
    CHECK(last == ended.metrics.steps);
    CHECK(quiet.said(concat("step ", last, "/24  loss ")));
    CHECK(holds(io::read_file(ended.final_model / "README.md"),
                concat("| the run ended early | after step ", last, " by early_stopping_patience |\n")));
    config.resume_from_checkpoint = "auto";
    CHECK(fine_tune(config).metrics.steps == last);
    CHECK(quiet.said(concat("nothing to do: the run is finished, step ", last,
                            " of 24, where early_stopping_patience ended it (a larger one lets it go on); ")));
    config.early_stopping_patience = then;
    const RunResult result = fine_tune(config);
    CHECK(result.metrics.steps == 24);
    CHECK(result.metrics.ended_early.empty());
    CHECK(adapter_values(result.final_model) == adapter_values(shop.temp / "whole" / "final_model"));
    CHECK_FALSE(holds(io::read_file(result.final_model / "README.md"), "ended early"));
  }
}

TEST_CASE("early stopping: final_model tells which step's weights it has, with that step's numbers") {
  Quiet quiet;
  const Workshop shop;
  Config config = restless(shop, "run");
  config.load_best_model_at_end = true;
  const RunResult result = fine_tune(config);
  const Index best = result.metrics.best_step.value();
  REQUIRE(best < result.metrics.steps);
  const io::Path run = config.output_dir;
  CHECK(io::read_json(run / "training_metrics.json").at("final_model_step") == best);
  const run::RunState state = run::Checkpoints::open(run / "checkpoints" / concat("checkpoint-", best)).state;
  const std::string card = io::read_file(result.final_model / "README.md");
  CAPTURE(card);
  for (const std::string& row : {concat("| weights | of step ", best, ", the best by eval_loss |\n"),
                                 concat("| steps of the run | ", result.metrics.steps, " |\n"),
                                 concat("| steps | ", best, " |\n"), concat("| tokens | ", state.total_tokens, " |\n"),
                                 concat("| loss of step ", best, " | ", state.last_loss, " |\n"),
                                 concat("| evaluation loss | ", *state.best_eval_loss, " |\n")})
    CHECK(holds(card, row));
  CHECK_FALSE(holds(card, "loss of the last step"));
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
