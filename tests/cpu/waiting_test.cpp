#include "lora/cpu/runtime/waiting.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <list>
#include <string>
#include <thread>

#include "support/effort.hpp"
#include "support/process.hpp"

namespace waiting_test {

using namespace lora;
using cpu::SpinChoice;

namespace {

using std::chrono::milliseconds;

/// A thread that has run for a while, as its SpinChoice sees it.
struct Life {
  SpinChoice::Time now{};
  SpinChoice::Duration waited = milliseconds(1000);
  SpinChoice choice{now, waited};

  /// Until the next choice it waits for a processor for so much of the time; then it chooses.
  void live(double share) {
    const auto span = choice.due() - now;
    waited += std::chrono::duration_cast<SpinChoice::Duration>(share * span);
    now += span;
    choice.choose(now, waited);
  }
};

/// What is started from now on too.
void run_on_one_processor() {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &allowed)) CPU_SET(i, &one);
  sched_setaffinity(0, sizeof one, &one);
}

[[maybe_unused]] auto threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("waiting: threads spin while nobody else wants the processors") {
  Life life;
  for (int i = 0; i < 100; ++i) {
    life.live(0.05);
    CHECK(life.choice.spins());
  }
}

TEST_CASE("waiting: beside others threads rest from the first window on, until some are quiet in a row") {
  Life life;
  life.live(0.25);
  CHECK_FALSE(life.choice.spins());
  for (int i = 0; i < 100; ++i) {
    life.live(i % SpinChoice::quiet_windows == 0 ? 0.25 : 0);
    CHECK_FALSE(life.choice.spins());
  }
  life.live(0.25);
  for (int i = 1; i <= 2 * SpinChoice::quiet_windows; ++i) {
    life.live(0.05);
    CHECK(life.choice.spins() == (i >= SpinChoice::quiet_windows));
  }
  life.live(0.25);
  CHECK_FALSE(life.choice.spins());
}

TEST_CASE("waiting: a choice in another thread, which has waited less, is none against spinning") {
  Life life;
  life.waited = {};
  life.live(0);
  CHECK(life.choice.spins());
}

TEST_CASE("waiting: the kernel says how long a thread has waited for a processor") {
  const auto before = cpu::detail::waited_for_processor();
  if (!before) {
    test::skipped("waiting: what threads have waited for, which this kernel does not say");
    return;
  }
  // Three threads on one processor: each waits for two thirds of the time.
  const auto ending = test::run_apart([](int out) {
    run_on_one_processor();
    std::atomic<bool> busy{true};
    std::thread others[2];
    for (std::thread& other : others)
      other = std::thread([&] {
        while (busy) {}
      });
    bool waits = false;
    for (long turn = 0; turn < 2'000'000'000 && !waits; ++turn)
      if (turn % 1'000'000 == 0) waits = cpu::detail::waited_for_processor().value() > milliseconds(20);
    busy = false;
    for (std::thread& other : others) other.join();
    const char answer = waits ? 'y' : 'n';
    (void)!write(out, &answer, 1);
  });
  CHECK(ending.text == "y");
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

TEST_CASE("waiting: beside others a team wants more work and has threads asleep, unless it is told how to wait") {
  if (!cpu::detail::waited_for_processor()) {
    test::skipped("waiting: a team beside others, of which this kernel does not say how long threads wait");
    return;
  }
  const auto ending = test::run_apart([](int out) {
    constexpr const char* names[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
    for (const char* name : names) unsetenv(name);
    run_on_one_processor();
    const int team = std::max(omp_get_num_procs(), 2);
    std::list<cpu::Waiting> told;  // each by one of the names, and a single thread, which waits for nobody
    for (const char* name : names) {
      setenv(name, "1", 1);
      told.emplace_back(team);
      unsetenv(name);
    }
    told.emplace_back(1);
    told.emplace_back(team);  // by none
    std::atomic<bool> busy{true};
    std::thread others[2];
    for (std::thread& other : others)
      other = std::thread([&] {
        while (busy) {}
      });
    const auto before = threads_of_this_process();
    for (long turn = 0; turn < 2'000'000'000 && told.back().least_work() == 1; ++turn) {}
    std::string answer;
    for (cpu::Waiting& one : told) answer += std::to_string(one.least_work()) + " ";
    // Its own thread starts the other one.
    for (long turn = 0; turn < 2'000'000 && threads_of_this_process() < before + 2; ++turn) {}
    answer += std::to_string(threads_of_this_process() - before);
    busy = false;
    for (std::thread& other : others) other.join();
    (void)!write(out, answer.data(), answer.size());
  });
  CHECK(ending.text == "1 1 1 1 256 2");
}
#endif

}  // namespace waiting_test
