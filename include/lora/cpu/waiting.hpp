#pragma once

#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "lora/core/scalar.hpp"

namespace lora::cpu {

/// Decides whether threads of a team may spin while they wait for one another. Spinning is right while processors are
/// free: most waits are shorter than it takes to wake a thread. Beside other programs it takes the time that the thread
/// waited for lacks, and uses up the team's claim to the processors, so that a team can be ten times slower than one
/// thread. A thread that could run and has to wait for a processor is not alone.
class SpinChoice {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  static constexpr Duration window = std::chrono::milliseconds(50);
  /// Of the time, how much a thread may wait for a processor. On an idle machine it is 0.00 to 0.02, with one
  /// neighbour on two processors 0.2 to 0.5, whether the team spins or sleeps.
  static constexpr double most_waited = 0.1;
  /// So many windows without neighbours, one after the other, end a rest.
  static constexpr int quiet_windows = 5;

  /// `waited`: how long the thread has waited for a processor so far.
  SpinChoice(Time now, Duration waited) : seen_(now), waited_(waited) {}

  bool spins() const { return spins_; }
  /// When to choose again.
  Time due() const { return seen_ + window; }

  void choose(Time now, Duration waited) {
    const std::chrono::duration<double> time = now - seen_, lacked = waited - waited_;
    quiet_ = lacked > most_waited * time ? 0 : quiet_ + 1;
    spins_ = spins_ ? quiet_ > 0 : quiet_ >= quiet_windows;
    seen_ = now;
    waited_ = waited;
  }

 private:
  bool spins_ = true;
  int quiet_ = 0;
  Time seen_;
  Duration waited_;
};

namespace detail {

/// Whether so many threads can be started now. The OpenMP runtime ends the process where it cannot start one.
inline bool can_start_threads(int count) {
  std::vector<std::thread> threads;
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  bool started = true;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([ended] { ended.wait(); });
  } catch (const std::system_error&) {
    started = false;
  }
  end.set_value();
  for (std::thread& thread : threads) thread.join();
  return started;
}

/// More threads than the OpenMP runtime has processors for, asleep for as long as this lives. Beside them it lets those
/// that wait spin for microseconds only (libgomp's manual, GOMP_SPINCOUNT), or yield the processor (libomp).
class SleepingThreads {
 public:
  explicit SleepingThreads(int count) {
    thread_ = std::thread([count, end = end_.get_future()] {
      std::atomic<int> started{0};
#pragma omp parallel num_threads(count)
      ++started;   // without work there would be no team
      end.wait();  // until then it stays
    });
  }
  SleepingThreads(const SleepingThreads&) = delete;
  SleepingThreads& operator=(const SleepingThreads&) = delete;
  ~SleepingThreads() {
    end_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> end_;
  std::thread thread_;
};

/// How long the calling thread has waited for a processor while it could have run (the second number of the file, see
/// the kernel's Documentation/scheduler/sched-stats.rst), or nothing where the kernel does not say.
inline std::optional<std::chrono::nanoseconds> waited_for_processor() {
  const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 128> text{};
  const auto length = ::read(file, text.data(), text.size());
  ::close(file);
  const char *const begin = text.data(), *const end = begin + std::max<decltype(length)>(length, 0);
  const char* const second = std::find(begin, end, ' ');
  std::int64_t waited = 0;
  if (second == end || std::from_chars(second + 1, end, waited).ec != std::errc()) return std::nullopt;
  return std::chrono::nanoseconds(waited);
}

}  // namespace detail

/// How the threads of a device's team wait for one another: by spinning, as the OpenMP runtime does, or nearly without
/// where other programs want the processors. What the user has set by OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME
/// holds instead; and where the kernel does not say how long threads wait for a processor, the runtime's own way.
class Waiting {
 public:
  explicit Waiting(int team) : sleepers_(omp_get_num_procs() - team + 2), choice_(Clock::now(), {}) {
    constexpr int most_sleepers = 64;  // a small team on a large machine is left alone
    const auto waited = detail::waited_for_processor();
    choice_ = SpinChoice(Clock::now(), waited.value_or(SpinChoice::Duration{}));
    watches_ = team > 1 && sleepers_ <= most_sleepers && waited.has_value();
    sleepers_ = std::max(sleepers_, 2);
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
      if (std::getenv(name) != nullptr) watches_ = false;
  }

  /// To be called before the team starts to work, mostly a look at the clock: how many times more work than else a
  /// thread has to find, to be worth waking.
  Index least_work() {
    if (watches_) choose();
    return choice_.spins() ? 1 : 256;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void choose() {
    const auto now = Clock::now();
    if (now < choice_.due()) return;
    choice_.choose(now, detail::waited_for_processor().value_or(SpinChoice::Duration{}));
    if (choice_.spins()) {
      sleeping_.reset();
    } else if (!sleeping_ && detail::can_start_threads(sleepers_)) {
      sleeping_ = std::make_unique<detail::SleepingThreads>(sleepers_);
    }
  }

  int sleepers_;
  bool watches_ = false;
  SpinChoice choice_;
  std::unique_ptr<detail::SleepingThreads> sleeping_;
};

}  // namespace lora::cpu
