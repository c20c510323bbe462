#include "lora/cpu/waiting.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "support/effort.hpp"
#include "support/process.hpp"

namespace waiting_test {

using namespace lora;
using cpu::SpinChoice;

namespace {

/// A process that has run for a while, as its SpinChoice sees it.
struct Life {
  SpinChoice::Time now{};
  long lost = 1000;
  SpinChoice choice{now, lost};

  /// Until the next choice it loses processors as often as said; then it chooses.
  void live(double lost_per_second) {
    const auto next = choice.due();
    lost += static_cast<long>(std::chrono::duration<double>(next - now).count() * lost_per_second);
    now = next;
    choice.choose(now, lost);
  }
  double seconds_to_next() const { return std::chrono::duration<double>(choice.due() - now).count(); }
};

[[maybe_unused]] auto threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("waiting: threads spin while nobody else wants the processors") {
  Life life;
  for (int i = 0; i < 100; ++i) {
    life.live(20);
    CHECK(life.choice.spins());
  }
}

TEST_CASE("waiting: beside others threads sleep, try again after ever longer rests, and spin once they are alone") {
  Life life;
  double spinning = 0, all = 0;
  while (all < 60) {
    const double span = life.seconds_to_next();
    if (life.choice.spins()) spinning += span;
    all += span;
    life.live(life.choice.spins() ? 150 : 0);  // whoever sleeps in time is not made to
    CHECK(life.seconds_to_next() <= 3.001);
  }
  CHECK(spinning < 0.05 * all);
  while (!life.choice.spins()) life.live(0);
  for (int i = 0; i < 10; ++i) {
    life.live(0);
    CHECK(life.choice.spins());
  }
  life.live(150);
  CHECK_FALSE(life.choice.spins());
  CHECK(life.seconds_to_next() < 0.11);  // the long rests are forgotten
}

TEST_CASE("waiting: who is pushed aside even while resting rests on, but not for ever") {
  Life life;
  life.live(5000);
  double rested = 0;
  while (!life.choice.spins() && rested < 60) {
    rested += life.seconds_to_next();
    life.live(5000);
  }
  CHECK(life.choice.spins());
  CHECK(rested > 2);
  CHECK(rested < 10);
}

// What follows is of GNU's runtime: LLVM's keeps its threads, and takes memory that the limit below would refuse.
#if defined(__clang__)

TEST_CASE("waiting: threads that sleep beside the team") {
  test::skipped("waiting: sleeping threads, which are for GNU's OpenMP runtime");
}

#else

TEST_CASE("waiting: sleeping threads are there, and go") {
  const auto before = threads_of_this_process();
  {
    const cpu::detail::SleepingThreads sleeping(3);
    // Its own thread starts the others.
    for (int i = 0; i < 10'000 && threads_of_this_process() < before + 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(threads_of_this_process() == before + 3);
  }
  for (int i = 0; i < 10'000 && threads_of_this_process() > before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(threads_of_this_process() == before);
}

TEST_CASE("waiting: no thread is asked of the runtime that the system would refuse") {
  const int many = 64;
  CHECK(cpu::detail::can_start_threads(many));
  const auto ending = test::run_apart([&](int out) {
    const rlimit none{std::size_t{1} << 20, std::size_t{1} << 20};  // less than the process has: not one stack more
    setrlimit(RLIMIT_AS, &none);
    const char answer = cpu::detail::can_start_threads(many) ? 'y' : 'n';
    (void)!write(out, &answer, 1);
  });
  CHECK(ending.text == "n");
}

#endif

}  // namespace waiting_test
