#pragma once

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "lora/core/error.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/cpu/runtime/threads.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/device.hpp"

namespace lora::cpu {

namespace detail {

/// Address space without memory behind it: pages come when they are first touched.
class Reservation {
 public:
  /// Reserves as much of `bytes` as the system grants while leaving as much again, up to 4 GiB, to everybody else:
  /// where address space is limited (ulimit -v), libraries that get none end the process by a signal. At least 64 MiB.
  ///
  /// Asks for large pages of up to 4 MiB: rows lie kilobytes apart, so that going down a column would cost an address
  /// translation at every step. Larger ones (32 and 512 MiB, with basic pages of 16 and 64 KiB) would mostly be wasted.
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
      if (large_page > 0 && large_page <= largest_page) madvise(memory, size, MADV_HUGEPAGE);  // a hint
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

}  // namespace detail

/// The processors of this machine as a device: a team of threads and an arena. Calls are synchronous, one at a time.
class Device : public Threads, public DeviceState<Device> {
 public:
  static constexpr bool reads_host_memory = true;
  static constexpr bool splits_blocks = false;
  static constexpr bool decodes(DType) { return true; }
  using Sum = double;

  /// `threads` 0: as many as this process may run at once.
  explicit Device(int threads = 0)
      : Threads(threads), reservation_(total_memory()), arena_(reservation_.memory(), reservation_.bytes(), true) {}
  ~Device() { release_states(); }

  void* allocate(std::size_t bytes) {
    const std::size_t padded =
        (std::max<std::size_t>(bytes, 1) + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
    void* memory = std::aligned_alloc(Arena::alignment, padded);
    if (memory == nullptr) fail<DeviceError>("[cpu] out of memory: ", bytes, " bytes were asked for");
    allocated_.add(bytes);
    return memory;
  }
  void free(void* memory, std::size_t bytes) noexcept {
    std::free(memory);
    allocated_.take(bytes);
  }
  void* allocate_host(std::size_t bytes) { return allocate(bytes); }
  void free_host(void* memory, std::size_t bytes) noexcept { free(memory, bytes); }
  MemoryInfo memory() const { return {total_memory(), available_memory()}; }
  /// What tensors have of it, but for the arena.
  AllocatedBytes& allocated() { return allocated_; }
  Arena& arena() { return arena_; }

  void copy_from_host(void* target, const void* source, std::size_t bytes, Stream = Stream::compute) {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void copy_to_host(void* target, const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void start_copy_to_host(void* target, const void* source, std::size_t bytes, Stream) {
    copy_to_host(target, source, bytes);
  }
  void copy_on_device(void* target, const void* source, std::size_t bytes, Stream = Stream::compute) {
    copy_to_host(target, source, bytes);
  }
  void synchronize() {}

  // Calls are synchronous, so that an event is a time in nanoseconds.
  Event record(Stream) {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return {std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
  }
  void wait(Stream, Event) {}
  void wait(Event) {}
  bool is_done(Event) const { return true; }
  std::int64_t nanoseconds(Event from, Event to) const { return to.number - from.number; }
  void release(Event) noexcept {}

  /// Low-rank products run slower than large ones, hence updates are folded from half the rows on at which FLOPs are
  /// equal.
  Tiling tiling() const { return {.rows = 512, .head_rows = 1024, .head_columns = 2048, .fold_ratio = 0.5}; }

  /// "cpu, 8 threads on AMD EPYC 9554".
  std::string describe() const {
    const std::string name = processor_name();
    return concat("cpu, ", threads(), threads() == 1 ? " thread" : " threads", name.empty() ? "" : " on ", name);
  }

 private:
  detail::Reservation reservation_;
  Arena arena_;
  AllocatedBytes allocated_;
};

static_assert(lora::AnyDevice<Device>);

}  // namespace lora::cpu
