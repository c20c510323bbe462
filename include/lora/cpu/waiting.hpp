#pragma once

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace lora::cpu {

/// Decides whether threads of a team may spin while they wait for one another. Spinning is right while processors are
/// free: most waits are shorter than it takes to wake a thread. Beside other programs it takes the time that the thread
/// waited for lacks, and uses up the team's claim to the processors, so that a team can be ten times slower than one
/// thread. A process that has to give up processors often is not alone. Threads that sleep may show that less, so after
/// a rest they spin again, to try; where a trial or a rest shows neighbours, the next rest is twice as long.
class SpinChoice {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  static constexpr Duration trial = std::chrono::milliseconds(50);
  static constexpr Duration shortest_rest = std::chrono::milliseconds(100), longest_rest = std::chrono::seconds(3);
  /// Processors lost in a second. Two programs that share one take turns of a few milliseconds; the system's own short
  /// tasks come less often.
  static constexpr double most_lost = 50;

  SpinChoice(Time now, long lost) : seen_(now), due_(now + trial), lost_(lost) {}

  bool spins() const { return spins_; }
  /// When to choose again.
  Time due() const { return due_; }

  /// `lost`: how often the process has had to give up a processor so far.
  void choose(Time now, long lost) {
    const double seconds = std::chrono::duration<double>(now - seen_).count();
    const bool crowded = static_cast<double>(lost - lost_) > most_lost * seconds;
    const bool rests = crowded && (spins_ || rest_ < longest_rest);
    if (spins_ && !crowded) rest_ = shortest_rest;
    due_ = now + (rests ? rest_ : trial);
    if (rests) rest_ = std::min(2 * rest_, longest_rest);
    spins_ = !rests;
    seen_ = now;
    lost_ = lost;
  }

 private:
  bool spins_ = true;
  Duration rest_ = shortest_rest;
  Time seen_, due_;
  long lost_;
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

/// How often the threads of this process had to give up a processor that they could have used.
inline long processors_lost() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace detail

/// How the threads of a device's team wait for one another: by spinning, as the OpenMP runtime does, or nearly without
/// where other programs want the processors. What the user has set by OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME
/// holds instead.
class Waiting {
 public:
  explicit Waiting(int team)
      : sleepers_(omp_get_num_procs() - team + 2), choice_(Clock::now(), detail::processors_lost()) {
    constexpr int most_sleepers = 64;  // a small team on a large machine is left alone
    watches_ = team > 1 && sleepers_ <= most_sleepers;
    sleepers_ = std::max(sleepers_, 2);
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
      if (std::getenv(name) != nullptr) watches_ = false;
  }

  /// To be called before the team starts to work. Mostly a look at the clock.
  void choose() {
    if (!watches_) return;
    const auto now = Clock::now();
    if (now < choice_.due()) return;
    choice_.choose(now, detail::processors_lost());
    if (choice_.spins()) {
      sleeping_.reset();
    } else if (!sleeping_ && detail::can_start_threads(sleepers_)) {
      sleeping_ = std::make_unique<detail::SleepingThreads>(sleepers_);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  int sleepers_;
  bool watches_ = false;
  SpinChoice choice_;
  std::unique_ptr<detail::SleepingThreads> sleeping_;
};

}  // namespace lora::cpu
