#include "lora/data/sampling/order.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/random.hpp"
#include "support/message_of.hpp"

namespace order_test {

using namespace lora;
using data::Order;
using data::Sequences;
using data::StepPlan;

namespace {

std::vector<Index> first_numbers(Index count) {
  std::vector<Index> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), Index{0});
  return numbers;
}

}  // namespace

TEST_CASE("order: every epoch holds every record once, in another order") {
  Order order(first_numbers(101), 7, true);
  std::vector<std::vector<Index>> epochs;
  for (Index epoch = 0; epoch < 3; ++epoch) {
    std::vector<Index> records;
    for (Index i = 0; i < 101; ++i) records.push_back(order[epoch * 101 + i]);
    epochs.push_back(records);
    std::sort(records.begin(), records.end());
    CHECK(records == first_numbers(101));
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  CHECK(epochs[0] != first_numbers(101));
}

TEST_CASE("order: a sample's record depends on seed and index alone") {
  Order forward(first_numbers(50), 3, true), backward(first_numbers(50), 3, true), other(first_numbers(50), 4, true);
  std::vector<Index> a(200), b(200), c(200);
  for (std::size_t g = 0; g < 200; ++g) a[g] = forward[static_cast<Index>(g)];
  for (std::size_t g = 200; g-- > 0;) b[g] = backward[static_cast<Index>(g)];
  for (std::size_t g = 0; g < 200; ++g) c[g] = other[static_cast<Index>(g)];
  CHECK(a == b);
  CHECK(a != c);
}

TEST_CASE("order: the order never changes from one version to the next") {
  Order order(first_numbers(8), 42, true);
  std::vector<Index> records;
  for (Index g = 0; g < 16; ++g) records.push_back(order[g]);
  CHECK(records == std::vector<Index>{1, 0, 6, 3, 5, 4, 2, 7, 5, 3, 0, 2, 7, 4, 6, 1});
}

TEST_CASE("order: the records held back never change from one version to the next") {
  CHECK(data::split_records(20, 5, 42).held_back.numbers() == std::vector<Index>{10, 12, 13, 14, 17});
  CHECK(data::split_records(20, 0.2, 7).held_back.numbers() == std::vector<Index>{2, 12, 15, 19});
}

TEST_CASE("order: sequences are listed, or all below a number, and can be cut short") {
  Sequences all = Sequences::below(5);
  CHECK_FALSE(all.lists());
  CHECK(all.numbers() == first_numbers(5));
  all.keep(7);
  CHECK(all.size() == 5);
  all.keep(2);
  CHECK(all.numbers() == first_numbers(2));
  Sequences some = std::vector<Index>{7, 0, Sequences::most};
  CHECK(some.lists());
  CHECK(some.numbers() == std::vector<Index>{7, 0, Sequences::most});
  const Sequences copy = some;
  some.keep(1);
  CHECK(some.numbers() == std::vector<Index>{7});
  CHECK(copy.size() == 3);
  CHECK_THROWS_WITH_AS(Sequences(std::vector<Index>{1, Sequences::most + 1}),
                       "sequence 4294967296; at most 4294967295 are supported", ConfigError);
  CHECK_THROWS_WITH_AS(Sequences::below(Sequences::most + 1), "4294967296 records; at most 4294967295 are supported",
                       ConfigError);
}

TEST_CASE("order: there is something to order") {
  CHECK_THROWS_WITH_AS(Order(Sequences::below(0), 1, true), "no records are left to train on", ConfigError);
}

TEST_CASE("order: all orders of four records are about equally likely") {
  std::map<std::vector<Index>, int> counts;
  const int draws = 24000;
  for (int seed = 0; seed < draws; ++seed) {
    Order order(first_numbers(4), static_cast<std::uint64_t>(seed), true);
    counts[{order[0], order[1], order[2], order[3]}]++;
  }
  CHECK(counts.size() == 24);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_square < 49.7);  // 23 degrees of freedom: exceeded by chance once in a thousand
}

TEST_CASE("order: without shuffling, and over a part of the records") {
  Order order(std::vector<Index>{4, 5, 9}, 1, false);
  for (Index g = 0; g < 9; ++g) CHECK(order[g] == std::vector<Index>{4, 5, 9}[static_cast<std::size_t>(g % 3)]);
  CHECK_THROWS_AS(Order(Sequences::below(0), 1, true), ConfigError);
}

TEST_CASE("order: steps cover each epoch, and its last step takes what is left") {
  const StepPlan plan{10, 4};
  CHECK(plan.steps_per_epoch() == 3);
  const Index expected[][2] = {{0, 4}, {4, 8}, {8, 10}, {10, 14}, {14, 18}, {18, 20}, {20, 24}};
  for (Index step = 0; step < 7; ++step) {
    CHECK(plan.samples(step).begin == expected[step][0]);
    CHECK(plan.samples(step).end == expected[step][1]);
  }
  CHECK(plan.steps(1, -1) == 3);
  CHECK(plan.steps(3, -1) == 9);
  CHECK(plan.steps(0.5, -1) == 2);
  CHECK(plan.steps(3, 5) == 5);
  CHECK(plan.epoch_after(0) == 0);
  CHECK(plan.epoch_after(3) == 1);
  CHECK(plan.epoch_after(4) == 1.4);
}

TEST_CASE("order: units of a step take neighboring samples, as even as can be") {
  const data::StepPlan::Range step{20, 31};
  for (const Index units : {1, 3, 4, 11, 12}) {
    CAPTURE(units);
    Index next = step.begin;
    for (Index unit = 0; unit < units; ++unit) {
      const auto samples = data::StepPlan::unit_of(step, unit, units);
      CHECK(samples.begin == next);
      CHECK(samples.end - samples.begin >= 11 / units);
      CHECK(samples.end - samples.begin <= (11 + units - 1) / units);
      next = samples.end;
    }
    CHECK(next == step.end);
  }
}

TEST_CASE("order: a run of fractional epochs has their steps as decimals give them, rounded up") {
  CHECK(StepPlan{50, 1}.steps(1.1, -1) == 55);  // 55.00000000000001 in double
  CHECK(StepPlan{10, 1}.steps(1.1, -1) == 11);
  CHECK(StepPlan{100, 1}.steps(0.07, -1) == 7);
  CHECK(StepPlan{100, 1}.steps(0.29, -1) == 29);
  CHECK(StepPlan{30, 1}.steps(0.1, -1) == 3);
  CHECK(StepPlan{30, 1}.steps(0.10000000000000002, -1) == 4);
  CHECK(StepPlan{1000, 8}.steps(2.5, -1) == 313);
  CHECK(StepPlan{3, 8}.steps(0.001, -1) == 1);
  CHECK(StepPlan{3, 1}.steps(1e6, -1) == 3'000'000);
  CHECK(StepPlan{Sequences::most, 1}.steps(999999.99999999988, -1) == 4294967295000000);
  for (const double tiny : {1e-9, 1e-12, 5e-28, 1e-300, 5e-324})
    CHECK(StepPlan{Sequences::most, 7}.steps(tiny, -1) == 1);
}

TEST_CASE("order: the steps from one epoch until another are counted without a difference of doubles") {
  for (Index tenths = 11; tenths <= 40; ++tenths) {
    CAPTURE(tenths);
    const double until = static_cast<double>(tenths) / 10;
    CHECK(StepPlan{10, 1}.steps(until, -1, 1) == tenths - 10);
    CHECK(StepPlan{30, 1}.steps(until, -1, 1) == 3 * (tenths - 10));
  }
  CHECK(StepPlan{10, 1}.steps(1, -1, 1) == 0);
  CHECK(StepPlan{10, 1}.steps(0.5, -1, 3) == 0);
}

TEST_CASE("order: records held back are few enough, never trained on, and chosen by the seed") {
  for (const auto& [size, held] : {std::pair{0.1, 10}, {0.101, 11}, {0.001, 1}, {7.0, 7}, {1.0, 1}, {0.0, 0}}) {
    const double val_size = size;
    CAPTURE(val_size);
    const auto split = data::split_records(100, val_size, 5);
    CHECK(split.held_back.size() == held);
    std::vector<Index> all = split.train.numbers(), held_back = split.held_back.numbers();
    CHECK(std::is_sorted(all.begin(), all.end()));
    all.insert(all.end(), held_back.begin(), held_back.end());
    std::sort(all.begin(), all.end());
    CHECK(all == first_numbers(100));
  }
  CHECK(data::split_records(100, 10, 5).held_back.numbers() != data::split_records(100, 10, 6).held_back.numbers());
  CHECK_THROWS_AS(data::split_records(10, 10, 5), ConfigError);
  CHECK_THROWS_AS(data::split_records(1, 0.5, 5), ConfigError);
}

TEST_CASE("order: a mixed epoch ends with the first file, or has each record of every file") {
  const auto counts = [](std::vector<Index> sizes, std::vector<double> shares, bool over) {
    return data::mixed_counts(sizes, shares, over);
  };
  CHECK(counts({100, 100}, {0.5, 0.5}, false) == std::vector<Index>{100, 100});
  CHECK(counts({100, 10}, {0.5, 0.5}, false) == std::vector<Index>{10, 10});
  CHECK(counts({100, 10}, {0.5, 0.5}, true) == std::vector<Index>{100, 100});
  CHECK(counts({30, 70}, {0.3, 0.7}, false) == std::vector<Index>{30, 70});  // 0.3 and 0.7 are not exact
  CHECK(counts({30, 70}, {0.3, 0.7}, true) == std::vector<Index>{30, 70});
  CHECK(counts({10, 10, 10}, {0.2, 0.3, 0.5}, false) == std::vector<Index>{4, 6, 10});
  CHECK(counts({10, 10, 10}, {0.2, 0.3, 0.5}, true) == std::vector<Index>{10, 15, 25});
  CHECK(counts({7, 11}, {1.0 / 3, 2.0 / 3}, false) == std::vector<Index>{5, 11});
  // An epoch of 20.9995 samples has 20, one that needs 20.0005 has 21: no more than last bits are rounded.
  CHECK(counts({11, 100}, {11 / 20.9995, 1 - 11 / 20.9995}, false) == std::vector<Index>{10, 10});
  CHECK(counts({10, 5}, {10 / 20.0005, 1 - 10 / 20.0005}, true) == std::vector<Index>{10, 11});
  CHECK(data::draw_classes({}, {}, {}, 1, 2).empty());
  CHECK_THROWS_WITH_AS(counts({1, 1}, {0.9, 0.1}, false),
                       "a mix in which an epoch has 1 samples and none of file 2, whose share is 0.1", ConfigError);
  CHECK(counts({5, 5}, {0.0005, 0.9995}, true) == std::vector<Index>{5, 9995});  // 1000 times as many
  CHECK_THROWS_WITH_AS(counts({10, 40}, {1 - 1e-7, 1e-7}, true),
                       "a mix in which file 2 has the share 1e-07, so that an epoch needs 4e+08 samples of 50 records; "
                       "at most 1000 times as many are allowed",
                       ConfigError);
  CHECK_THROWS_WITH_AS(counts({1000, 1000}, {1e-300, 1}, true), doctest::Contains("file 1 has the share 1e-300"),
                       ConfigError);
}

TEST_CASE("order: mixed files have their counts in every epoch, and each record comes once before any comes again") {
  const auto mixture = [] {
    data::Mixture mix;
    mix.files = {{"file 0", {10, 11, 12, 13, 14, 15, 16}}, {"file 1", {20, 21, 22}}};
    mix.counts = {4, 6};
    return mix;
  };
  Order order(mixture(), 5), again(mixture(), 5), other(mixture(), 6);
  CHECK(order.size() == 10);
  std::map<Index, int> seen;
  std::vector<std::vector<Index>> epochs;
  bool differs = false;
  for (Index epoch = 0; epoch < 7; ++epoch) {
    Index of_first = 0;
    epochs.emplace_back();
    for (Index place = 0; place < 10; ++place) {
      const Index record = order[10 * epoch + place];
      of_first += record < 20;
      ++seen[record];
      epochs.back().push_back(record);
      differs = differs || other[10 * epoch + place] != record;
      // 28 draws of 7 records, 42 of 3: none is ahead of another of its file by more than one.
      for (const auto& [one, count] : seen)
        if ((one < 20) == (record < 20)) CHECK(std::abs(count - seen[record]) <= 1);
    }
    CHECK(of_first == 4);
  }
  CHECK(differs);
  CHECK(seen.size() == 10);
  CHECK(epochs[0] != epochs[1]);
  CHECK_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
  for (const Index sample : {69, 0, 35, 12})  // whatever was asked before
    CHECK(again[sample] == epochs[static_cast<std::size_t>(sample / 10)][static_cast<std::size_t>(sample % 10)]);
}

TEST_CASE("order: of a mix, epochs and files are drawn by keys that never change from one version to the next") {
  const std::vector<std::uint32_t> files[] = {{10, 11, 12, 13, 14}, {20, 21, 22}};
  const std::vector<Index> counts = {4, 6};
  data::Mixture mix;
  mix.files = {{"file 0", files[0]}, {"file 1", files[1]}};
  mix.counts = counts;
  Order order(mix, 9);
  std::size_t drawn[] = {0, 0};
  for (Index epoch = 0; epoch < 3; ++epoch) {
    const auto places = permutation(10, mix_key(9, 0x6D6978, static_cast<std::uint64_t>(epoch)));
    for (Index place = 0; place < 10; ++place) {
      const std::size_t file = places[static_cast<std::size_t>(place)] < 4 ? 0 : 1;
      const std::size_t size = files[file].size(), round = drawn[file] / size;
      const auto own =
          permutation(static_cast<Index>(size), mix_key(9, 0x636C617373, text_hash(mix.files[file].label), round));
      CHECK(order[10 * epoch + place] == Index{files[file][own[drawn[file]++ % size]]});
    }
  }
  CHECK(order.between(3, 7) == std::vector<Index>{order[3], order[4], order[5], order[6]});
}

TEST_CASE("order: what can't be held back or mixed is told with its numbers") {
  const auto held = [](Index records, double val_size) {
    return test::message_of<ConfigError>([&] { data::split_records(records, val_size, 5); });
  };
  CHECK(held(10, 10) == "val_size is 10 but there are only 10 records");
  CHECK(held(10, 9) == "nothing was thrown");
  CHECK(held(1, 0.5) == "val_size is 0.5 but there are only 1 records");
  CHECK(held(10, 0.91) == "val_size is 0.91 but there are only 10 records");
  CHECK(held(10, 0.9) == "nothing was thrown");
  CHECK(held(10, -0.5) == "val_size is -0.5 but there are only 10 records");
  CHECK(data::split_records(10, 2.9, 5).held_back.size() == 2);
  const Index half = Index{1} << 31;
  CHECK(test::message_of<ConfigError>([&] {
          data::mixed_counts(std::vector<Index>{half, half}, std::vector<double>{0.5, 0.5}, false);
        }) == "a mix in which an epoch has 4294967296 samples; at most 4294967295 are supported");
  CHECK(data::mixed_counts(std::vector<Index>{half - 1, half}, std::vector<double>{0.5, 0.5}, false) ==
        std::vector<Index>{half - 1, half - 1});
  CHECK(StepPlan{10, 4}.steps(3, 0) == 0);
  CHECK(StepPlan{10, 4}.epoch_after(2) == 0.8);
}

}  // namespace order_test
