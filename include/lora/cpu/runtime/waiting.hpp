#pragma once

#include <chrono>
#include <memory>
#include <optional>

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
  /// neighbor on two processors 0.2 to 0.5, whether the team spins or sleeps.
  static constexpr double most_waited = 0.1;
  /// So many windows without neighbors, one after the other, end a rest.
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
bool can_start_threads(int count);

class SleepingThreads;

/// How long the calling thread has waited for a processor while it could have run (the second number of the file, see
/// the kernel's Documentation/scheduler/sched-stats.rst), or nothing where the kernel does not say.
std::optional<std::chrono::nanoseconds> waited_for_processor();

}  // namespace detail

/// How the threads of a device's team wait for one another: by spinning, as the OpenMP runtime does, or nearly without
/// where other programs want the processors. What the user has set by OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME
/// holds instead; and where the kernel does not say how long threads wait for a processor, the runtime's own way.
class Waiting {
 public:
  explicit Waiting(int team);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// To be called before the team starts to work, mostly a look at the clock: how many times more work than else a
  /// thread has to find, to be worth waking.
  Index least_work();

 private:
  using Clock = std::chrono::steady_clock;

  void choose();

  int sleepers_;
  bool watches_ = false;
  SpinChoice choice_;
  std::unique_ptr<detail::SleepingThreads> sleeping_;
};

}  // namespace lora::cpu

#ifndef LORA_COMPILED
#  include "lora/cpu/runtime/waiting.ipp"
#endif
