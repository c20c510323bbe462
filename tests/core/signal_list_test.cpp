#include "lora/core/signal_list.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
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

TEST_CASE("signal_list: a value of several words and a rest comes whole") {
  struct Place {
    std::int64_t first;
    char name[13];
  };
  static SignalList<Place> list;  // its nodes stay for good
  const auto one = list.add({-1, "twelve bytes"}), two = list.add({2, "b"});
  std::int64_t sum = 0;
  std::string names;
  list.visit([&](const Place& place) {
    sum += place.first;
    names += place.name;
  });
  CHECK(sum == 1);
  CHECK(names == "btwelve bytes");  // the last added first
}

TEST_CASE("signal_list: an entry that was removed or never added removes nothing of others") {
  static SignalList<int> list;  // its nodes stay for good
  auto one = list.add(1);
  one.remove();
  const auto other = list.add(4);  // in the node that is free again
  one.remove();
  CHECK(sum_of(list) == 4);
  SignalList<int>::Entry none;
  none.remove();
  none = list.add(8);
  CHECK(sum_of(list) == 12);
  {
    const auto moved = std::move(none);
    none.remove();
    CHECK(sum_of(list) == 12);
  }
  CHECK(sum_of(list) == 4);
}

TEST_CASE("signal_list: a node that is free again is used before another is made") {
  static SignalList<int> list;  // its nodes stay for good
  auto one = list.add(1);
  const auto two = list.add(2);
  one.remove();
  const auto three = list.add(3);
  std::vector<int> seen;
  list.visit([&](int value) { seen.push_back(value); });
  CHECK(seen == std::vector<int>{2, 3});
}

}  // namespace signal_list_test
