#pragma once

#include "lora/core/shape.hpp"

namespace lora::kernel {

/// What of a device the buffers of its kernels depend on.
struct BufferSettings {
  int threads = 1;
  bool sums_apart = false;  ///< several products of bfloat16 are summed in float32 beside their result
};

/// The extents of a pass by which they are bounded.
struct PassExtents {
  Index rows = 0;      ///< N
  Index heads = 0;     ///< H
  Index kv_heads = 0;  ///< G
  Index head_dim = 0;  ///< C
  Index widest = 0;    ///< columns of a projection's input or output
  Index factors = 0;   ///< numbers of the largest A and B that one call goes over, ranks rounded up to 8
  Index gelu = 0;      ///< columns of a gated unit's output whose gate is GELU
  bool trees = false;  ///< sequences may have rows in common
};

/// How many bytes kernels of type T take of the arena at the most, beside the modules' own, while they run. A backend
/// specialises it:
///   static BufferSettings settings(D& dev);
///   template <class T> static double most(const BufferSettings&, const PassExtents&);
template <class D>
struct Buffers;

}  // namespace lora::kernel
