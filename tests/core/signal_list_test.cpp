#include "lora/core/signal_list.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

namespace signal_list_test {

using lora::SignalList;

namespace {

int sum_of(const SignalList<int>& list) {
  int sum = 0;
  list.visit([&](int value) { sum += value; });
  return sum;
}

}  // namespace

TEST_CASE("signal_list: a value is seen for as long as its entry lives") {
  SignalList<int> list;
  {
    auto one = list.add(1);
    const auto two = list.add(2);
    CHECK(sum_of(list) == 3);
    auto moved = std::move(one);
    CHECK(sum_of(list) == 3);
    moved.remove();
    CHECK(sum_of(list) == 2);
    moved = list.add(5);
    CHECK(sum_of(list) == 7);
  }
  CHECK(sum_of(list) == 0);
}

TEST_CASE("signal_list: threads add and remove at once") {
  SignalList<int> list;
  const auto kept = list.add(1'000'000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&list] {
      for (int k = 0; k < 2000; ++k) {
        const auto a = list.add(1);
        const auto b = list.add(1);
        list.visit([](int) {});
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(sum_of(list) == 1'000'000);
}

TEST_CASE("signal_list: no value is seen that is half of one and half of another") {
  struct Wide {
    int parts[500];
  };
  SignalList<Wide> list;
  std::atomic<bool> end{false};
  std::thread changes([&] {
    auto entry = list.add(Wide{});
    for (int k = 1; !end; ++k) {
      Wide wide;
      std::fill(std::begin(wide.parts), std::end(wide.parts), k);
      entry = list.add(wide);
    }
  });
  int seen = 0, mixed = 0;
  for (int i = 0; i < 1'000'000 && seen < 2000; ++i)
    list.visit([&](const Wide& wide) {
      ++seen;
      for (const int part : wide.parts) mixed += part != wide.parts[0];
    });
  end = true;
  changes.join();
  CHECK(mixed == 0);
}

}  // namespace signal_list_test
