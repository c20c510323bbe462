#pragma once

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/cpu/machine.hpp"
#include "lora/cpu/waiting.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/device.hpp"

namespace lora::cpu {

namespace detail {

/// Address space without memory behind it: pages come when they are first touched.
class Reservation {
 public:
  /// As much of `bytes` as the system grants while as much again, up to 4 GiB, is left for everybody else: where
  /// address space is limited (ulimit -v), libraries that find none end the process by a signal. At least 64 MiB.
  ///
  /// Asks for large pages where they are small enough to be filled: rows lie kilobytes apart, so that going down
  /// columns costs an address translation at every step otherwise. Those of 2 MiB are; 32 and 512 MiB, as with basic
  /// pages of 16 and 64 KiB, would mostly be wasted.
  explicit Reservation(std::size_t bytes, std::size_t large_page = large_page_bytes()) {
    constexpr std::size_t least = std::size_t{64} << 20, others = std::size_t{256} << 20, enough = std::size_t{4} << 30;
    for (std::size_t size = bytes; size >= std::min(bytes, least) && size > 0; size /= 2) {
      void* memory = reserve(size);
      if (memory == nullptr) continue;
      const std::size_t left = std::clamp(size, others, enough);
      void* const rest = reserve(left);
      if (rest == nullptr) {
        munmap(memory, size);
        continue;
      }
      munmap(rest, left);
      memory_ = memory;
      bytes_ = size;
      constexpr std::size_t largest_page = std::size_t{4} << 20;
      if (large_page > 0 && large_page <= largest_page) madvise(memory, size, MADV_HUGEPAGE);  // a mere wish
      return;
    }
    fail<DeviceError>("[cpu] no address space for an arena of ", least >> 20, " MiB and ", others >> 20,
                      " MiB for the rest; is it limited (ulimit -v)?");
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { munmap(memory_, bytes_); }

  void* memory() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  /// Null where the system has no such space.
  static void* reserve(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
  }

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

template <class Part>
inline constexpr char part_key = 0;

}  // namespace detail

/// The processors of this machine as a device: OpenMP threads and an arena. Calls are synchronous, one at a time: a
/// device belongs to the thread that uses it.
///
/// Kernels take the number of threads from the device, never from OpenMP's settings, so that two devices with different
/// numbers can live in one process. Only libraries that ask OpenMP themselves need `use_threads` before each call.
class Device {
 public:
  static constexpr bool reads_host_memory = true;

  /// `threads` 0: as many as this process may run at once.
  explicit Device(int threads = 0)
      : threads_(threads > 0 ? threads : available_threads()),
        reservation_(total_memory()),
        arena_(reservation_.memory(), reservation_.bytes(), true),
        waiting_(threads_) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int threads() const { return threads_; }

  void* allocate(std::size_t bytes) {
    const std::size_t padded =
        (std::max<std::size_t>(bytes, 1) + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
    void* memory = std::aligned_alloc(Arena::alignment, padded);
    if (memory == nullptr) fail<DeviceError>("[cpu] out of memory: ", bytes, " bytes were asked for");
    return memory;
  }
  void free(void* memory, std::size_t) noexcept { std::free(memory); }

  void copy_from_host(void* target, const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void copy_to_host(void* target, const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void synchronize() {}

  Arena& arena() { return arena_; }

  /// Updates are folded from half the rows on where that saves FLOPs, since low-rank products are slower ones.
  Tiling tiling() const { return {.rows = 512, .head_rows = 1024, .head_columns = 2048, .fold_ratio = 0.5}; }

  /// Records what kernels and modules do on this device from now on, or stops where it is null. It must live as long.
  void set_profile(Profile* profile) { profile_ = profile; }
  Profile* profile() const { return profile_; }

  /// "cpu, 8 threads on AMD EPYC 9554".
  std::string describe() const {
    const std::string name = processor_name();
    return concat("cpu, ", threads_, threads_ == 1 ? " thread" : " threads", name.empty() ? "" : " on ", name);
  }

  /// Makes the OpenMP runtime start this device's number of threads for the calling thread: for libraries that split
  /// their work by omp_get_max_threads().
  void use_threads() const {
    if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
  }

  /// body(begin, end) over [0, count), split into one range per thread; a range of fewer than `grain` items isn't worth
  /// a thread, beside busy neighbours (see Waiting) one of many more. The body must not throw, and its results must not
  /// depend on where ranges begin.
  template <class Body>
  void parallel_for(Index count, Index grain, const Body& body) const {
    const Index least = std::max<Index>(grain, 1) * waiting_.least_work();
    const Index useful = std::min<Index>(threads_, count / least);
    if (useful <= 1) {
      if (count > 0) body(Index{0}, count);
      return;
    }
#pragma omp parallel num_threads(static_cast <int>(useful))
    {
      const Index threads = omp_get_num_threads(), thread = omp_get_thread_num();
      body(count * thread / threads, count * (thread + 1) / threads);
    }
  }

  /// body(item) for each of [0, count), each thread taking the next one when it is free: for items of unequal size. The
  /// body must not throw, and its result must not depend on the thread that runs it. `work`: that of an item on
  /// average, in elements that are read, changed and written; a thread is woken for 8192 of them.
  template <class Body>
  void parallel_items(Index count, const Body& body, double work = 1e9) const {
    const double least = 8192.0 * static_cast<double>(waiting_.least_work());
    const auto worth = static_cast<Index>(std::min(static_cast<double>(count) * work / least, 1e9));
    const Index useful = std::min({Index{threads_}, count, worth});
    if (useful <= 1) {
      for (Index item = 0; item < count; ++item) body(item);
      return;
    }
#pragma omp parallel for num_threads(static_cast <int>(useful)) schedule(dynamic, 1)
    for (Index item = 0; item < count; ++item) body(item);
  }

  /// What a kernel family keeps between calls (chosen engines, prepared primitives): one object of each type, made at
  /// its first use and gone with the device.
  template <class Part>
  Part& part() {
    const void* const key = &detail::part_key<Part>;
    for (const auto& [known, object] : parts_)
      if (known == key) return *static_cast<Part*>(object.get());
    parts_.emplace_back(key, std::make_shared<Part>());
    return *static_cast<Part*>(parts_.back().second.get());
  }

 private:
  int threads_;
  detail::Reservation reservation_;
  Arena arena_;
  mutable Waiting waiting_;
  Profile* profile_ = nullptr;
  std::vector<std::pair<const void*, std::shared_ptr<void>>> parts_;
};

static_assert(lora::AnyDevice<Device>);

}  // namespace lora::cpu
