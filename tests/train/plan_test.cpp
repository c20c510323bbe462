#include "lora/train/plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "support/message_of.hpp"

namespace plan_test {

using namespace lora;
using train::Plan;
using train::Stage;

namespace {

std::vector<Index> numbers(Index count) {
  std::vector<Index> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), Index{100});
  return all;
}

std::vector<Index> all_of(const train::PlannedStep& step) {
  std::vector<Index> all;
  for (const auto& unit : step.units) all.insert(all.end(), unit.begin(), unit.end());
  return all;
}

Stage stage(Index steps, Index sequences, double rate) {
  return {.sequences_per_step = sequences,
          .limit = {.sequences = 2, .cutoff_len = 30},
          .learning_rate = rate,
          .schedule = {optim::Decay::linear, 2, steps}};
}

}  // namespace

TEST_CASE("plan: a step is a function of its number, and units cut it and nothing else") {
  const data::Order order(numbers(10), 7, true);
  for (const Index units : {1, 2, 4}) {
    CAPTURE(units);
    Plan plan(order, units, {stage(9, 4, 0.5)}), again(order, units, {stage(9, 4, 0.5)});
    CHECK(plan.total() == 9);
    CHECK(plan.steps_per_epoch() == 3);
    data::Order expected = order;
    const data::StepPlan steps{10, 4};
    for (Index step = 8; step >= 0; --step) again.at(step);  // whatever was asked for before
    for (Index step = 0; step < 9; ++step) {
      CAPTURE(step);
      const auto planned = plan.at(step);
      const auto samples = steps.samples(step);
      CHECK(planned.step == step);
      CHECK(planned.stage == 0);
      CHECK(planned.limit.sequences == 2);
      CHECK(planned.limit.cutoff_len == 30);
      CHECK(std::ssize(planned.units) == units);
      CHECK(all_of(planned) == expected.between(samples.begin, samples.end));
      CHECK(planned.units == again.at(step).units);
      CHECK(planned.learning_rate == 0.5 * optim::Schedule{optim::Decay::linear, 2, 9}.factor(step));
      CHECK(plan.samples_before(step) == samples.begin);
      CHECK(plan.epoch_after(step + 1) == steps.epoch_after(step + 1));
    }
    CHECK(plan.samples_before(9) == 30);
    CHECK(plan.epoch_after(0) == 0);
  }
}

TEST_CASE("plan: a stage has its own batch, rate and schedule, and begins with a new epoch") {
  // 4 steps of 4 of 10 records: an epoch and a step of the next; then 3 of 5.
  Plan plan(data::Order(numbers(10), 7, true), 1, {stage(4, 4, 0.5), stage(3, 5, 0.25)});
  CHECK(plan.total() == 7);
  for (Index step = 0; step < 7; ++step) {
    CAPTURE(step);
    const auto planned = plan.at(step);
    CHECK(planned.stage == (step < 4 ? 0 : 1));
    CHECK(plan.stage_of(step) == planned.stage);
    const double expected = step < 4 ? 0.5 * optim::Schedule{optim::Decay::linear, 2, 4}.factor(step)
                                     : 0.25 * optim::Schedule{optim::Decay::linear, 2, 3}.factor(step - 4);
    CHECK(planned.learning_rate == expected);
  }
  CHECK(plan.stage_of(7) == 1);
  CHECK(plan.samples_before(3) == 10);
  CHECK(plan.samples_before(4) == 20);
  CHECK(plan.samples_before(5) == 25);
  CHECK(plan.epoch_after(4) == 1.4);
  CHECK(plan.epoch_after(5) == 2.5);
  auto seen = all_of(plan.at(4));
  for (const Index record : all_of(plan.at(5))) seen.push_back(record);
  std::sort(seen.begin(), seen.end());
  CHECK(seen == numbers(10));
  CHECK(all_of(plan.at(4)) != all_of(plan.at(6)));
}

TEST_CASE("plan: a stage that ends early moves the next ones, which are as long as they were planned") {
  const data::Order order(numbers(10), 7, true);
  Plan plan(order, 1, {stage(7, 4, 0.5), stage(6, 5, 0.25), stage(2, 10, 0.125)});
  CHECK(plan.total() == 15);
  plan.end_stages({4, 9});
  CHECK(plan.total() == 11);
  CHECK(plan.begin_of(1) == 4);
  CHECK(plan.end_of(1) == 9);
  CHECK(plan.end_of(2) == 11);
  CHECK(plan.at(3).stage == 0);
  CHECK(plan.at(3).learning_rate == 0.5 * optim::Schedule{optim::Decay::linear, 2, 7}.factor(3));
  CHECK(plan.at(4).stage == 1);
  CHECK(plan.at(4).learning_rate == 0.25 * optim::Schedule{optim::Decay::linear, 2, 6}.factor(0));
  CHECK(plan.at(9).stage == 2);
  // Of the first stage 4 of 3 steps an epoch were done, of the second 5 of 2.
  CHECK(plan.samples_before(4) == 20);
  CHECK(plan.samples_before(9) == 50);
  CHECK(plan.epoch_after(5) == 2.5);
  CHECK(plan.epoch_after(10) == 6);
  plan.end_stages({});
  CHECK(plan.total() == 15);
  for (const std::vector<Index>& none : {std::vector<Index>{0}, {7}, {8, 9}, {14}, {4, 4}, {9, 4}})
    CHECK_THROWS_AS(plan.end_stages(none), FormatError);
}

TEST_CASE("plan: an end by epochs is the step that decimals give, whatever the stage begins with") {
  settings::Config config;
  config.gradient_accumulation_steps = 1;
  for (const Index step : {11, 12, 13, 16, 29}) {
    CAPTURE(step);
    const double until = static_cast<double>(step) / 10;
    config.stages = {{.until_epoch = 1}, {.until_epoch = until}};
    CHECK(train::plan_of(config, numbers(10)).total() == step);
    config.stages = {};
    config.num_train_epochs = until;
    CHECK(train::plan_of(config, numbers(10)).total() == step);
  }
}

TEST_CASE("plan: a stage that would end before it begins is told by what ends it, and a curriculum by its stage") {
  settings::Config config;
  config.gradient_accumulation_steps = 1;
  config.stages = {{.until_epoch = 1}, {.name = "b", .until_step = 10}};
  const auto told = [&](const data::SequenceClasses* classes) {
    return test::message_of<ConfigError>([&] { train::plan_of(config, numbers(10), {}, classes); });
  };
  CHECK(told(nullptr) ==
        "key stages: stage 2 (b) would end with step 10, but it begins after step 10; allowed: a later end; hint: a "
        "stage "
        "begins with an epoch of its own");
  config.stages[1].until_step = 11;
  CHECK(told(nullptr) == "nothing was thrown");
  config.stages[1] = {};
  config.max_steps = 12;
  CHECK(train::plan_of(config, numbers(10)).total() == 12);
  data::SequenceClasses classes{{"a"}, {}};
  classes.of.assign(10, 0);
  config.stages[1].use_curriculum = true;
  config.stages[1].curriculum_stages = std::vector<data::CurriculumStage>{{0.5, {{"a", 1}}}, {1, {{"x", 1}}}};
  CHECK(told(&classes) ==
        "stage 2: key curriculum_stages: no record has a label of the mix of stage 2: \"x\"; the labels of the "
        "records, in "
        "the field that curriculum_field names: \"a\"");
  CHECK(told(nullptr) == "nothing was thrown");  // without classes there is none
  config.use_curriculum = true;
  config.curriculum_stages = {{1, {{"x", 1}}}};
  config.stages.clear();
  CHECK(told(&classes) ==
        "key curriculum_stages: no record has a label of the mix of stage 1: \"x\"; the labels of the records, in the "
        "field "
        "that curriculum_field names: \"a\"");
}

TEST_CASE("plan: the epoch that is logged for a stage's last step is that stage's, with and without a curriculum") {
  data::SequenceClasses classes{{"a", "b"}, {}};
  for (std::int32_t i = 0; i < 10; ++i) classes.of.push_back(i % 2);
  settings::Config config;
  config.per_device_train_batch_size = 1;
  config.gradient_accumulation_steps = 4;  // 3 steps an epoch
  config.curriculum_stages = {{1, {{"a", 0.5}, {"b", 0.5}}}};
  config.stages = {
      {.until_step = 4, .use_curriculum = true}, {.until_step = 6}, {.until_step = 9, .use_curriculum = true}};
  const Plan plan = train::plan_of(config, numbers(10), {}, &classes);
  CHECK(plan.epoch_after(2) == 2.0 / 3);
  CHECK(plan.epoch_after(3) == 1);
  CHECK(plan.epoch_after(4) == 4.0 / 3);
  CHECK(plan.epoch_after(5) == 2.4);
  CHECK(plan.epoch_after(6) == 2.8);
  CHECK(plan.epoch_after(7) == 3 + 1.0 / 3);
  CHECK(plan.epoch_after(9) == 4);
}

TEST_CASE("plan: stages that say the same of their curricula share the classes") {
  data::SequenceClasses classes{{"a", "b"}, {}};
  for (std::int32_t i = 0; i < 10; ++i) classes.of.push_back(i % 2);
  settings::Config config;
  config.use_curriculum = true;
  config.curriculum_stages = {{1, {{"a", 0.5}, {"b", 0.5}}}};
  for (Index i = 1; i <= 10'000; ++i) config.stages.push_back({.until_step = i});
  config.stages[7].curriculum_stages = {{1, {{"b", 1}}}};
  const Plan plan = train::plan_of(config, numbers(10), {}, &classes);
  REQUIRE(plan.stages().size() == 10'000);
  CHECK(plan.total() == 10'000);
  const auto* const shared = &plan.stages()[0].curriculum->classes();
  for (std::size_t i = 0; i < plan.stages().size(); ++i)
    CHECK((&plan.stages()[i].curriculum->classes() == shared) == (i != 7));
}

TEST_CASE("plan: of thousands of stages each step has its own") {
  std::vector<Stage> stages(3000, stage(2, 10, 0.5));
  const Plan plan(data::Order(numbers(10), 7, true), 1, stages);
  for (Index step = 0; step < plan.total(); ++step) CHECK(plan.stage_of(step) == step / 2);
}

}  // namespace plan_test
