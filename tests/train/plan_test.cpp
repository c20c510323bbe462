#include "lora/train/plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

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

}  // namespace plan_test
