#include "lora/core/signal_list.hpp"

#include <doctest/doctest.h>

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
  static SignalList<int> list;  // its nodes stay for good
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
  static SignalList<int> list;  // its nodes stay for good
  const auto kept = list.add(1'000'000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int k = 0; k < 2000; ++k) {
        const auto a = list.add(1);
        const auto b = list.add(1);
        list.visit([](int) {});
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(sum_of(list) == 1'000'000);
}

TEST_CASE("signal_list: what is seen stays, also when its node is used again meanwhile") {
  static SignalList<int> list;  // its nodes stay for good
  auto entry = list.add(1);
  list.visit([&](const int& value) {
    entry.remove();
    entry = list.add(2);
    CHECK(value == 1);
  });
  CHECK(sum_of(list) == 2);
}

}  // namespace signal_list_test
