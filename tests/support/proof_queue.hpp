#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "lora/core/random.hpp"

namespace lora::proof {

/// A stream: work in order, on a thread of its own that now and then dawdles.
class Queue {
 public:
  Queue(std::uint64_t seed, std::chrono::microseconds longest_delay)
      : random_(seed), longest_delay_(longest_delay), worker_([this] { work(); }) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
      ends_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  /// The number of the task, from 1.
  std::uint64_t submit(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
    return ++submitted_;
  }

  /// The number of the last task.
  std::uint64_t submitted() {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }

  /// Until this task has run.
  void wait_for(std::uint64_t task) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= task; });
  }
  /// Throws what a task has thrown.
  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  /// Whether this task has run.
  bool is_done(std::uint64_t task) {
    const std::lock_guard lock(mutex_);
    return done_ >= task;
  }

  /// Nothing more begins while this holds: so that a test decides what is still queued.
  void hold(bool holds) {
    const std::lock_guard lock(mutex_);
    held_ = holds;
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return (!held_ && !tasks_.empty()) || (ends_ && tasks_.empty()); });
      if (tasks_.empty()) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      const bool dawdles = longest_delay_.count() > 0 && random_.below(16) == 0;
      const auto delay = dawdles ? random_.below(static_cast<std::uint32_t>(longest_delay_.count())) : 0;
      lock.unlock();
      if (dawdles) std::this_thread::sleep_for(std::chrono::microseconds(delay));
      std::exception_ptr error;
      try {
        task();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (!error_) error_ = error;
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::uint64_t submitted_ = 0, done_ = 0;
  bool held_ = false, ends_ = false;
  std::exception_ptr error_;
  Random random_;
  std::chrono::microseconds longest_delay_;
  std::thread worker_;  // the last, since it uses the others
};

}  // namespace lora::proof
