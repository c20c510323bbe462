#include "lora/optim/schedule.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace schedule_test {

using namespace lora;
using namespace lora::optim;

TEST_CASE("schedule: ten steps with three of warm-up equal transformers' get_scheduler") {
  const auto check = [](Decay decay, const std::vector<double>& expected) {
    const Schedule schedule{decay, 3, 10};
    for (std::size_t s = 0; s < expected.size(); ++s) {
      CAPTURE(s);
      CHECK(schedule.factor(static_cast<Index>(s)) == doctest::Approx(expected[s]).epsilon(1e-15));
    }
  };
  const double third = 1.0 / 3, seventh = 1.0 / 7;
  check(Decay::linear,
        {0, third, 2 * third, 1, 6 * seventh, 5 * seventh, 4 * seventh, 3 * seventh, 2 * seventh, seventh, 0, 0});
  check(Decay::cosine, {0, third, 2 * third, 1, 0.9504844339512095, 0.8117449009293668, 0.6112604669781572,
                        0.38873953302184283, 0.18825509907063326, 0.04951556604879048});
  check(Decay::constant, {0, third, 2 * third, 1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("schedule: without warm-up the first step has the whole rate") {
  for (const auto decay : {Decay::linear, Decay::cosine, Decay::constant}) CHECK(Schedule{decay, 0, 5}.factor(0) == 1);
}

TEST_CASE("schedule: a warm-up as long as the run stays finite") {
  for (const auto decay : {Decay::linear, Decay::cosine, Decay::constant}) {
    CHECK(Schedule{decay, 4, 4}.factor(3) == doctest::Approx(0.75));
    CHECK(Schedule{decay, 9, 4}.factor(3) == doctest::Approx(1.0 / 3));
  }
}

TEST_CASE("schedule: a share of the steps is rounded up, a count wins") {
  CHECK(warmup_of(0, 0.03, 100) == 3);
  CHECK(warmup_of(0, 0.03, 101) == 4);
  CHECK(warmup_of(7, 0.03, 101) == 7);
  CHECK(warmup_of(0, 0, 101) == 0);
  CHECK(warmup_of(1, 0.5, 100) == 1);
}

TEST_CASE("schedule: an unknown decay is refused by name") {
  CHECK(decay_of("cosine") == Decay::cosine);
  CHECK(decay_of("linear") == Decay::linear);
  CHECK(decay_of("constant") == Decay::constant);
  CHECK(Schedule{}.decay == Decay::linear);
  CHECK((Schedule{}.warmup == 0 && Schedule{}.total == 0));
  CHECK_THROWS_WITH_AS(decay_of("polynomial"), "[schedule] unknown decay polynomial; known: linear, cosine, constant",
                       ConfigError);
}

}  // namespace schedule_test
