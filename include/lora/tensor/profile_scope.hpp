#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "lora/core/assert.hpp"
#include "lora/core/profile.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/device.hpp"

namespace lora {

/// A part of a device's work that its profile records: opened here and closed on destruction. Without a profile it
/// costs one check for null; the end of a step that is recorded waits for the device. Of a kernel it sees, where there
/// are assertions, that no scratch is kept.
template <class D>
class ProfileScope {
 public:
  ProfileScope(D& dev, Profile::Kind kind, std::string_view name, Index number = -1) {
    if (dev.profile() != nullptr) open(dev, kind, {}, name, number);
  }
  /// Of a kernel. `bytes`: each operand once, one that is added to twice.
  ProfileScope(D& dev, std::string_view family, std::string_view name, double flops, double bytes)
      : flops_(flops), bytes_(bytes), arena_(&dev.arena()), scratch_(arena_->scratch_bytes()) {
    if (dev.profile() != nullptr) open(dev, Profile::Kind::kernel, family, name, -1);
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;
  ~ProfileScope() {
    LORA_ASSERT(arena_ == nullptr || arena_->scratch_bytes() == scratch_);  // a kernel releases what it took
    if (dev_ != nullptr) close();
  }

 private:
  [[gnu::noinline]] void open(D& dev, Profile::Kind kind, std::string_view family, std::string_view name,
                              Index number) {
    Profile& profile = *dev.profile();
    if (!profile.wants(kind)) return;
    profile.enter(kind, family, name, number, dev.record(Stream::compute));
    dev_ = &dev;
  }
  [[gnu::noinline]] void close() noexcept {
    D& dev = *dev_;
    Profile& profile = *dev.profile();
    const auto release = [&](Event event) { dev.release(event); };
    std::optional<Event> end;
    try {
      end = dev.record(Stream::compute);
    } catch (...) {  // reported by the next wait
    }
    if (!end) return profile.cancel(release);
    if (!profile.leave(flops_, bytes_, *end)) return;
    try {
      dev.synchronize();
      profile.settle([&](Event a, Event b) { return dev.nanoseconds(a, b); }, release);
    } catch (...) {
      profile.drop(release);
    }
  }

  D* dev_ = nullptr;
  double flops_ = 0;
  double bytes_ = 0;
  const Arena* arena_ = nullptr;  // of a kernel
  std::size_t scratch_ = 0;
};

}  // namespace lora
