#pragma once

#include <concepts>
#include <cstddef>
#include <string>

#include "lora/core/profile.hpp"
#include "lora/core/scalar.hpp"

namespace lora {

class Arena;

/// How modules cut their work on a device, and which of two equal ways they take. Results depend on it by roundings
/// only, and so do a run's bits: a device's values must not depend on its threads, or on what else the machine does.
struct Tiling {
  Index rows;          ///< at most so many of an output that several products are added to: they stay in cache
  Index head_rows;     ///< at most so many labelled rows share a pass over the head's weight
  Index head_columns;  ///< of the vocabulary, whose logits exist at once for those rows
  /// Where a weight must be decoded in any case, a low-rank update W + s B A can be formed there. For n rows that costs
  /// 4 O I R FLOPs, both ways together, instead of 2 n (I + O) R: fewer above 2 I O / (I + O) rows. It is done above
  /// this many times as many rows; never where it is infinite.
  double fold_ratio;

  bool folds_update(Index n, Index in, Index out) const {
    const double i = static_cast<double>(in), o = static_cast<double>(out);
    return static_cast<double>(n) > 2 * fold_ratio * i * o / (i + o);
  }
};

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
  { dev.tiling() } -> std::same_as<Tiling>;
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
