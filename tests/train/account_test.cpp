// What a step adds to the state of its run, and what is told of both, number by number.

#include "lora/train/account.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lora/cpu/runtime/device.hpp"

namespace account_test {

using namespace lora;
using train::Plan;
using train::StepResult;

namespace {

using Shares = std::vector<std::pair<std::string, double>>;
using Counts = std::vector<std::pair<std::string, Index>>;
constexpr double infinite = std::numeric_limits<double>::infinity();

train::Stage stage(Index steps, Index sequences) {
  return {.sequences_per_step = sequences, .learning_rate = 0.5, .schedule = {optim::Decay::linear, 0, steps}};
}

/// Of ten sequences: four steps of 4, an epoch and a step of the next, and three of 5.
Plan two_stages() { return {data::Order(data::Sequences::below(10), 7, true), 1, {stage(4, 4), stage(3, 5)}}; }

/// A unit of some micro-batches of these records.
std::vector<data::Batch> unit_of(const std::vector<std::vector<Index>>& records) {
  std::vector<data::Batch> unit;
  for (const auto& of_batch : records) unit.emplace_back().records = of_batch;
  return unit;
}

}  // namespace

TEST_CASE("account: a step adds what it learned, and one that was not applied only that it was made") {
  const Plan plan = two_stages();
  run::RunState state;
  state.evaluation_due = true;
  state.loss_scale.emplace();
  const StepResult good{.loss = 2.5, .grad_norm = 0.5, .tokens = 30, .computed_tokens = 22, .labeled = 7};
  train::add_step(state, good, true, 1, plan);
  CHECK(state.step == 1);
  CHECK(state.updates == 1);
  CHECK_FALSE(state.evaluation_due);
  CHECK(state.next_sample == 4);
  CHECK(state.stage == 0);
  CHECK((state.total_tokens == 30 && state.shared_tokens == 8));
  CHECK(state.last_loss == 2.5);
  CHECK((state.losses.steps == 1 && state.losses.sum == 2.5));
  CHECK((state.losses_since_line.steps == 1 && state.losses_since_line.sum == 2.5));
  CHECK(state.loss_scale == optim::LossScale{65536, 1});
  const StepResult steep{.loss = 9, .grad_norm = infinite, .tokens = 12, .computed_tokens = 12, .labeled = 7};
  train::add_step(state, steep, false, 1, plan);
  CHECK((state.step == 2 && state.updates == 1 && state.total_tokens == 42 && state.shared_tokens == 8));
  CHECK((state.last_loss == 2.5 && state.losses.steps == 1 && state.losses_since_line.steps == 1));
  CHECK(state.loss_scale == optim::LossScale{32768, 0});
  StepResult spoiled = steep;  // which no smaller scale helps
  spoiled.loss = infinite;
  train::add_step(state, spoiled, false, 1, plan);
  CHECK(state.loss_scale == optim::LossScale{32768, 0});
  state.loss_scale->value = optim::LossScale::least;
  train::add_step(state, steep, false, 1, plan);
  CHECK(state.loss_scale == optim::LossScale{optim::LossScale::least, 0});
  // The first stage is over.
  CHECK((state.step == 4 && state.stage == 1 && state.next_sample == 20));
  train::add_step(state, good, true, 2, plan);
  CHECK((state.updates == 2 && state.losses.steps == 2 && state.losses.sum == 5 && state.next_sample == 25));
  CHECK(state.loss_scale->good_steps == 1);
  run::RunState plain;  // of a run without a scale
  train::add_step(plain, good, true, 1, plan);
  CHECK_FALSE(plain.loss_scale);
}

TEST_CASE("account: a line of the log has the step's own numbers, its stage's, and the shares of what was drawn") {
  const Plan plan = two_stages();
  run::RunState state;
  state.step = 5;
  state.losses_since_line = {6, 4};
  StepResult result{
      .loss = 2.5, .grad_norm = 0.5, .loss_scale = 1024, .tokens = 30, .computed_tokens = 30, .labeled = 7};
  run::StepMetrics line = train::metrics_of(state, result, true, 0.125, 4, plan);
  CHECK_FALSE(line.skipped);
  CHECK((line.step == 5 && line.stage == 2 && line.epoch == 2.5));
  CHECK((line.loss == 2.5 && line.mean_loss == 1.5 && line.learning_rate == 0.125 && line.grad_norm == 0.5));
  CHECK_FALSE(line.loss_scale);
  CHECK((line.tokens == 30 && line.labeled_tokens == 7 && line.tokens_per_second == 7.5));
  CHECK_FALSE(line.computed_tokens);
  result.computed_tokens = 20;
  CHECK(train::metrics_of(state, result, true, 0.125, 4, plan).computed_tokens == 20);
  CHECK(line.peak_memory_gib > 0);
  CHECK((line.mix.empty() && line.datasets.empty()));
  state.step = 4;  // the last of its stage
  state.loss_scale.emplace();
  state.drawn = {{0, 3, {{"x", 1}}}, {3, 4, {{"a", 3}, {"b", 1}}}};
  state.learned_of_files = {{"f", 1}, {"g", 4}};
  line = train::metrics_of(state, result, true, 0.125, 0, plan);
  CHECK((line.step == 4 && line.stage == 1 && line.epoch == 1.4));
  CHECK(line.loss_scale == 1024);
  CHECK(line.tokens_per_second == 0);  // no time has passed
  CHECK(line.mix == Shares{{"a", 0.75}, {"b", 0.25}});
  CHECK(line.datasets == Shares{{"f", 0.2}, {"g", 0.8}});
  state.drawn.back().to_step = 3;  // by a step before
  state.learned_of_files = {{"f", 0}, {"g", 0}};
  result.labeled = 0;
  line = train::metrics_of(state, result, false, 0.125, 4, plan);
  CHECK(line.mix.empty());
  CHECK(line.datasets == Shares{{"f", 0}, {"g", 0}});
  CHECK(line.skipped);
  CHECK(std::isnan(line.loss));
  const Plan single(data::Order(data::Sequences::below(10), 7, true), 1, {stage(4, 4)});
  CHECK(train::metrics_of(state, result, true, 0.125, 4, single).stage == 0);
}

TEST_CASE("account: the best is by the metric that is named, and an evaluation leaves all three numbers") {
  const model::Evaluation evaluation{
      .step = 3, .loss_sum = 6, .labeled = 4, .correct = 3, .exact_match = 0.25, .rouge_l = 0.5};
  const std::map<std::string, double> costs = {
      {"eval_loss", 1.5}, {"eval_token_accuracy", -0.75}, {"eval_exact_match", -0.25}, {"eval_rouge_l", -0.5}};
  for (const auto& entry : costs) {
    CAPTURE(entry.first);
    const double cost = entry.second;
    CHECK(train::cost_of(evaluation, entry.first) == cost);
    settings::Config config;
    config.metric_for_best_model = entry.first;
    run::RunState state;
    state.step = 3;
    CHECK(train::add_evaluation(state, evaluation, config));
    CHECK(state.best_metric == std::fabs(cost));
    CHECK(state.to_beat == std::pair<double, Index>(std::fabs(cost), 3));
    CHECK((state.last_eval_loss == 1.5 && state.last_exact_match == 0.25 && state.last_rouge_l == 0.5));
    CHECK((state.best_eval_loss == 1.5 && state.best_step == 3));
    model::Evaluation worse = evaluation;  // by each of them, and without answers
    worse.loss_sum = 8;
    worse.correct = 2;
    worse.exact_match = 0.125;
    worse.rouge_l = 0.375;
    ++state.step;
    CHECK_FALSE(train::add_evaluation(state, worse, config));
    CHECK((state.last_eval_loss == 2 && state.last_exact_match == 0.125 && state.last_rouge_l == 0.375));
    CHECK((state.best_metric == std::fabs(cost) && state.best_step == 3 && state.best_eval_loss == 1.5));
    CHECK(state.evaluations_without_improvement == 1);
  }
}

TEST_CASE("account: patience is over with as many evaluations as it has, and a larger one lets a run go on") {
  settings::Config config;
  run::RunState state;
  state.evaluations_without_improvement = 3;
  CHECK_FALSE(train::is_out_of_patience(state, config));
  for (const Index patience : {2, 3, 4}) {
    config.early_stopping_patience = patience;
    CHECK(train::is_out_of_patience(state, config) == (patience <= 3));
    state.ended_early = state.out_of_patience = false;
    CHECK_FALSE(train::stays_ended(state, config));
    state.ended_early = true;  // by the program
    CHECK(train::stays_ended(state, config));
    state.out_of_patience = true;
    CHECK(train::stays_ended(state, config) == (patience <= 3));
  }
}

TEST_CASE("account: what lasts of a run are its counts, its losses and evaluations, and how each stage ended") {
  Plan plan = two_stages();
  run::RunState state;
  state.step = 6;
  state.updates = 5;
  state.total_tokens = 120;
  state.last_loss = 2.5;
  state.losses = {8, 5};
  state.last_eval_loss = 3;
  state.last_exact_match = 0.25;
  state.last_rouge_l = 0.5;
  state.drawn = {{1, 3, {{"a", 2}}}};
  state.learned_of_files = {{"f", 4}};
  state.best_step = 4;
  run::RunMetrics found = train::lasting_metrics(state, plan, "level");
  CHECK_FALSE(found.finished);
  CHECK((found.train_loss == 2.5 && found.mean_train_loss == 1.6));
  CHECK((found.steps == 6 && found.total_tokens == 120));
  CHECK_FALSE(found.computed_tokens);
  state.shared_tokens = 50;
  CHECK(train::lasting_metrics(state, plan, "").computed_tokens == 70);
  CHECK((found.eval_loss == 3.0 && found.eval_exact_match == 0.25 && found.eval_rouge_l == 0.5));
  CHECK_FALSE(found.best_eval_loss);
  CHECK_FALSE(found.best_step);  // there is none that can be loaded
  CHECK_FALSE(found.weights_step);
  CHECK(found.ended_early == "");
  REQUIRE(found.curriculum.size() == 1);
  CHECK((found.curriculum[0].from_step == 1 && found.curriculum[0].to_step == 3));
  CHECK(found.curriculum[0].counts == Counts{{"a", 2}});
  CHECK(found.absent_class_field == "level");
  CHECK(found.files == Counts{{"f", 4}});
  const auto stages = [&] {
    std::string text;
    for (const auto& one : train::lasting_metrics(state, plan, "").stages)
      text += concat(one.from_step, " ", one.to_step, one.ended_early ? " early, " : ", ");
    return text;
  };
  CHECK(stages() == "0 4, 4 6, ");
  state.ended_early = state.out_of_patience = true;
  CHECK(stages() == "0 4, 4 6 early, ");
  CHECK(train::lasting_metrics(state, plan, "").ended_early == "early_stopping_patience");
  state.out_of_patience = false;
  CHECK(stages() == "0 4, 4 6, ");
  CHECK(train::lasting_metrics(state, plan, "").ended_early == "the program");
  state.step = 4;  // the second has not begun
  CHECK(stages() == "0 4, ");
  state.step = 5;
  state.ended_stages = {2};
  plan.end_stages({2});
  CHECK(stages() == "0 2 early, 2 5, ");
  state.best_eval_loss = 2;
  state.updates = 0;
  found = train::lasting_metrics(state, plan, "");
  CHECK((found.best_eval_loss == 2.0 && found.best_step == 4));
  CHECK(std::isnan(found.train_loss));  // nothing was learned
  const Plan single(data::Order(data::Sequences::below(10), 7, true), 1, {stage(4, 4)});
  CHECK(train::lasting_metrics(state, single, "").stages.empty());
}

TEST_CASE("account: records are counted by their class in a part of a curriculum, and by their file over the run") {
  comm::Single<cpu::Device> alone;
  run::RunState state;
  const std::vector<std::vector<data::Batch>> units = {unit_of({{0, 1}, {2}}), unit_of({}), unit_of({{3, 4, 5}})};
  const std::vector<std::string> labels = {"b", "a", "z", "c", "c", "A"};  // of which "A" and "z" are not drawn
  const auto label_of = [&](Index record) -> const std::string& { return labels[static_cast<std::size_t>(record)]; };
  const auto add = [&](Index step, Index begin, std::vector<std::string> drawn) {
    state.step = step;
    train::add_drawn(state, Plan::CurriculumPart{begin, begin + 5, std::move(drawn)}, alone, units, label_of);
  };
  add(3, 2, {"a", "b", "c", "d"});
  add(4, 2, {"a", "b", "c", "d"});
  add(8, 7, {"b", "z"});
  REQUIRE(state.drawn.size() == 2);
  CHECK((state.drawn[0].from_step == 2 && state.drawn[0].to_step == 4));
  CHECK(state.drawn[0].counts == Counts{{"a", 2}, {"b", 2}, {"c", 4}, {"d", 0}});
  CHECK((state.drawn[1].from_step == 7 && state.drawn[1].to_step == 8));
  CHECK(state.drawn[1].counts == Counts{{"b", 1}, {"z", 1}});

  const std::vector<std::string> names = {"first", "second", "third"};
  const auto file_of = [](Index record) { return record < 2 ? Index{0} : Index{2}; };
  train::add_files(state, names, alone, units, file_of);
  CHECK(state.learned_of_files == Counts{{"first", 2}, {"second", 0}, {"third", 4}});
  const std::vector<std::string> renamed = {"first", "another", "third"};
  train::add_files(state, renamed, alone, units, file_of);
  CHECK(state.learned_of_files == Counts{{"first", 4}, {"another", 0}, {"third", 8}});
  train::add_files(state, {}, alone, units, file_of);
  CHECK(state.learned_of_files.empty());
}

}  // namespace account_test
