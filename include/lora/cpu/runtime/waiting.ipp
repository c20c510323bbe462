#pragma once

#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/cpu/runtime/waiting.hpp"

namespace lora::cpu {

namespace detail {

LORA_INLINE bool can_start_threads(int count) {
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

LORA_INLINE std::optional<std::chrono::nanoseconds> waited_for_processor() {
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

}  // namespace detail

LORA_INLINE Waiting::Waiting(int team) : sleepers_(omp_get_num_procs() - team + 2), choice_(Clock::now(), {}) {
  constexpr int most_sleepers = 64;  // a small team on a large machine is left alone
  const auto waited = detail::waited_for_processor();
  choice_ = SpinChoice(Clock::now(), waited.value_or(SpinChoice::Duration{}));
  watches_ = team > 1 && sleepers_ <= most_sleepers && waited.has_value();
  sleepers_ = std::max(sleepers_, 2);
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
    if (std::getenv(name) != nullptr) watches_ = false;
}

LORA_INLINE Waiting::~Waiting() = default;

LORA_INLINE Index Waiting::least_work() {
  if (watches_) choose();
  return choice_.spins() ? 1 : 256;
}

LORA_INLINE void Waiting::choose() {
  const auto now = Clock::now();
  if (now < choice_.due()) return;
  choice_.choose(now, detail::waited_for_processor().value_or(SpinChoice::Duration{}));
  if (choice_.spins()) {
    sleeping_.reset();
  } else if (!sleeping_ && detail::can_start_threads(sleepers_)) {
    sleeping_ = std::make_unique<detail::SleepingThreads>(sleepers_);
  }
}

}  // namespace lora::cpu
