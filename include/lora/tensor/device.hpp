#pragma once

#include <concepts>
#include <cstddef>
#include <string>

#include "lora/core/profile.hpp"

namespace lora {

class Arena;

/// Where tensors live and kernels run: an object with its threads or stream and its arena, passed first to every call.
/// Calls may be asynchronous: results are defined after `synchronize()` or a copy to the host, and until then a copy
/// from the host may still read its source. Freeing is ordered after the work that was queued before it.
template <class D>
concept AnyDevice = requires(D& dev, void* memory, const void* source, std::size_t bytes) {
  { D::reads_host_memory } -> std::convertible_to<bool>;  // kernels may read mapped files in place
  { dev.allocate(bytes) } -> std::same_as<void*>;         // 64-byte aligned; throws DeviceError
  { dev.free(memory, bytes) }
  noexcept;
  dev.copy_from_host(memory, source, bytes);
  dev.copy_to_host(memory, source, bytes);  // waits until the copy is done
  dev.synchronize();
  { dev.arena() } -> std::same_as<Arena&>;
  { dev.describe() } -> std::convertible_to<std::string>;
};

/// What the device's work is recorded in; null while nobody wants to know, and for devices that can't tell.
template <class D>
Profile* profile_of(const D& dev) {
  if constexpr (requires { dev.profile(); }) {
    return dev.profile();
  } else {
    return nullptr;
  }
}

}  // namespace lora
