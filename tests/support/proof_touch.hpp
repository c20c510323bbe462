#pragma once

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "lora/core/error.hpp"
#include "support/proof_place.hpp"

namespace lora::proof {

/// Addresses that stand for device memory: nothing lies behind them, so that host code that reads or writes there is
/// stopped, and the report says what it touched and from where. The test then ends as after any other crash.
class Untouchable {
 public:
  /// Writes what lies at an offset of the range; called from a signal handler.
  using Describe = std::size_t (*)(const void* owner, std::size_t offset, char* text, std::size_t size);

  Untouchable(std::size_t bytes, const void* owner, Describe describe)
      : bytes_(bytes), owner_(owner), describe_(describe) {
    void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail<DeviceError>("[proof] no address space for ", bytes, " bytes");
    begin_ = static_cast<std::byte*>(memory);
    (void)Place::here();  // the first one loads a library, which a signal handler must not
    const std::lock_guard lock(mutex_);
    if (live_++ == 0) install();
    for (auto& slot : all_) {
      if (slot != nullptr) continue;
      slot = this;
      return;
    }
    fail<DeviceError>("[proof] more devices at once than ", all_.size());
  }
  Untouchable(const Untouchable&) = delete;
  Untouchable& operator=(const Untouchable&) = delete;
  ~Untouchable() {
    {
      const std::lock_guard lock(mutex_);
      for (auto& slot : all_)
        if (slot == this) slot = nullptr;
      if (--live_ == 0) sigaction(SIGSEGV, &former_, nullptr);
    }
    munmap(begin_, bytes_);
  }

  std::byte* begin() const { return begin_; }
  bool holds(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= begin_ && at < begin_ + bytes_;
  }
  /// Whether any device has this address.
  static bool any_holds(const void* address) {
    const std::lock_guard lock(mutex_);
    return holder_of(address) != nullptr;
  }

  /// A touch ends the process at once: for a child process that a test starts.
  static inline bool ends_process = false;

 private:
  static const Untouchable* holder_of(const void* address) {
    for (const auto& slot : all_)
      if (const Untouchable* const range = slot; range != nullptr && range->holds(address)) return range;
    return nullptr;
  }

  static void install() {
    struct sigaction action {};
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &former_);
  }

  static void say(std::string_view text) {
    for (ssize_t wrote = 0; !text.empty() && (wrote = write(STDERR_FILENO, text.data(), text.size())) > 0;)
      text.remove_prefix(static_cast<std::size_t>(wrote));
  }

  static const char* verb([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
    constexpr greg_t write_flag = 2;  // of a page fault's error code
    return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & write_flag) != 0 ? "writes" : "reads";
#else
    return "touches";
#endif
  }

  static void on_fault(int, siginfo_t* info, void* context) {
    if (const Untouchable* const range = holder_of(info->si_addr); range != nullptr) {
      static std::array<char, 1 << 16> text;
      const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(info->si_addr) - range->begin_);
      say("[proof] host code ");
      say(verb(context));
      say(" device memory: ");
      say({text.data(), range->describe_(range->owner_, offset, text.data(), text.size())});
      say("\n");
      say(Place::here().describe(text.data(), text.size()));
      if (ends_process) _exit(1);
    }
    sigaction(SIGSEGV, &former_, nullptr);  // and the same instruction again, for whoever else listens
  }

  // Devices come and go in several threads; a signal handler, which can't wait, reads.
  static inline std::mutex mutex_;
  static inline std::array<std::atomic<const Untouchable*>, 64> all_{};
  static inline int live_ = 0;
  static inline struct sigaction former_ {};

  std::byte* begin_ = nullptr;
  std::size_t bytes_;
  const void* owner_;
  Describe describe_;
};

}  // namespace lora::proof
