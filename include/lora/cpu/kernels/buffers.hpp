#pragma once

#include <algorithm>
#include <concepts>

#include "lora/core/scalar.hpp"
#include "lora/cpu/kernels/gemm.hpp"
#include "lora/kernel/buffers.hpp"

namespace lora::kernel {

/// A bound: which of several ways a kernel takes, and so what it holds, depends on engines and sequences. oneDNN's
/// scratchpads, which only oneDNN knows, were half a MiB a thread at the most.
template <>
struct Buffers<cpu::Device> {
  static BufferSettings settings(cpu::Device& dev) {
    return {dev.threads(), cpu::gemm_engine<bf16>(dev) == cpu::GemmEngine::eigen};
  }

  template <class T>
  static double most(const BufferSettings& settings, const PassExtents& extents) {
    constexpr bool narrow = !std::same_as<T, Accum<T>>;
    constexpr double tiles = 704 * 1024;  // of products and of attention, for a thread
    const auto d = [](Index value) { return static_cast<double>(value); };
    const double wide = sizeof(Accum<T>), n = d(extents.rows), threads = settings.threads;
    // The sums of dk and dv of a sequence and key head, of as many as are formed at once; or both gradients once more.
    const double sums =
        std::min(threads, 1.4 * d(extents.kv_heads)) * 2 * (n + 128) * (d(extents.head_dim) + 16) * wide;
    const double apart = 2 * n * d(extents.kv_heads * extents.head_dim) * static_cast<double>(sizeof(T));
    // Several products that are summed before they are rounded, of so many rows; sums of columns, of 64 rows each.
    const bool apart_sums = narrow && (settings.sums_apart || !std::same_as<T, bf16>);
    const double products = !apart_sums ? 0 : std::min(n, 512.0) * d(extents.widest) * wide;
    const double columns = (n / 64 + 1) * d(extents.widest) * wide;
    // The gradients of low-rank factors, for each of so many blocks of rows.
    const double blocks = narrow ? 0 : std::min(32.0, n / 256 + 2) + 1;
    return threads * tiles + std::max({sums, apart, products, columns, blocks * d(extents.factors) * wide});
  }
};

}  // namespace lora::kernel
