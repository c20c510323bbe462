#pragma once

#include <omp.h>

#include <algorithm>

#include "lora/core/scalar.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/cpu/runtime/waiting.hpp"

namespace lora::cpu {

/// The grain of parallel_for over rows of `numbers` each that cost little: about 8,192 numbers.
constexpr Index rows_per_task(Index numbers) { return 8192 / (numbers + 1) + 1; }

/// A team of host threads: those of the CPU as a device, and those that read and tokenize for any other device.
///
/// Their number is this object's and does not depend on OpenMP's settings, so that teams of different sizes can live in
/// one process. Only libraries that use OpenMP themselves need `use_threads` before each call.
class Threads {
 public:
  /// `count` 0: as many as this process may run at once.
  explicit Threads(int count = 0) : threads_(count > 0 ? count : available_threads()), waiting_(threads_) {}
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int threads() const { return threads_; }

  /// Makes the OpenMP runtime start this number of threads for the calling thread: for libraries that split
  /// their work by omp_get_max_threads().
  void use_threads() const {
    if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
  }

  /// body(begin, end) over [0, count), split into one range per thread; a thread is only used for at least `grain`
  /// items, and many more beside busy neighbors (see Waiting). The body must not throw, and its results must not
  /// depend on where ranges begin.
  template <class Body>
  void parallel_for(Index count, Index grain, const Body& body) const {
    const Index least = std::max<Index>(grain, 1) * waiting_.least_work();
    const Index useful = std::min<Index>(threads_, count / least);
    if (useful <= 1) {
      if (count > 0) body(Index{0}, count);
      return;
    }
#pragma omp parallel num_threads(static_cast<int>(useful))
    {
      const Index threads = omp_get_num_threads(), thread = omp_get_thread_num();
      body(count * thread / threads, count * (thread + 1) / threads);
    }
  }

  /// body(item) for each of [0, count), each thread taking the next one when it is free: for items of unequal size. The
  /// body must not throw, and its result must not depend on the thread that runs it. `work`: the
  /// average item's, in elements that are read, changed and written; a thread is woken for 8192 of them.
  template <class Body>
  void parallel_items(Index count, const Body& body, double work = 1e9) const {
    const double least = 8192.0 * static_cast<double>(waiting_.least_work());
    const auto worth = static_cast<Index>(std::min(static_cast<double>(count) * work / least, 1e9));
    const Index useful = std::min({Index{threads_}, count, worth});
    if (useful <= 1) {
      for (Index item = 0; item < count; ++item) body(item);
      return;
    }
#pragma omp parallel for num_threads(static_cast<int>(useful)) schedule(dynamic, 1)
    for (Index item = 0; item < count; ++item) body(item);
  }

 private:
  int threads_;
  mutable Waiting waiting_;
};

}  // namespace lora::cpu
