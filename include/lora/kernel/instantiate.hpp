#pragma once

#include <cstdint>
#include <span>

#include "lora/kernel/complete.hpp"

// Kernels of a device that are compiled once: ONCE is `extern template` where they are used and `template` where they
// are compiled. What isn't listed is compiled where it is used.

/// Those of a type T that every device has,
#define LORA_KERNELS(ONCE, D, T)                                                                                       \
  namespace lora::kernel {                                                                                             \
  ONCE void GatedUnit<D>::run<T>(D&, Gate, View<D, const T>, View<D, T>);                                              \
  ONCE void GatedUnit<D>::backward<T>(D&, Gate, View<D, const T>, View<D, const T>, View<D, T>, View<D, T>);           \
  ONCE void Attention<D>::run<T>(D&, const AttentionShape&, View<D, const T>, View<D, const T>, View<D, const T>,      \
                                 std::span<const Segment>, std::span<const Segment>, View<D, T>,                       \
                                 Attention<D>::Saved<T>*);                                                             \
  ONCE void Attention<D>::backward<T>(D&, const AttentionShape&, View<D, const T>, View<D, const T>, View<D, const T>, \
                                      View<D, const T>, std::span<const Segment>, const Attention<D>::Saved<T>&,       \
                                      View<D, const T>, View<D, T>, View<D, T>, View<D, T>);                           \
  ONCE void Elementwise<D>::fill<T>(D&, View<D, T>, double);                                                           \
  ONCE void Elementwise<D>::convert<T, T>(D&, View<D, const T>, View<D, T>, double, bool);                             \
  ONCE void Elementwise<D>::add_bias<T>(D&, View<D, const Accum<T>>, View<D, T>);                                      \
  ONCE void Elementwise<D>::gather_rows<T>(D&, View<D, const T>, View<D, const std::int32_t>, View<D, T>);             \
  ONCE void Elementwise<D>::scatter_rows<T>(D&, View<D, const T>, View<D, const std::int32_t>, View<D, T>);            \
  ONCE void Elementwise<D>::dropout<T>(D&, const DropoutMask<D>&, View<D, const T>, View<D, T>, bool);                 \
  ONCE void Embedding<D>::run<T>(D&, const StoredView<D>&, View<D, const std::int32_t>, View<D, T>);                   \
  ONCE void Embedding<D>::backward<T>(D&, View<D, const std::int32_t>, View<D, const T>, View<D, Accum<T>>);           \
  ONCE void Embedding<D>::noise<T>(D&, const EmbeddingNoise&, std::span<const Segment>, View<D, const std::int32_t>,   \
                                   View<D, const std::int32_t>, View<D, T>);                                           \
  ONCE void Gemm<D>::run<T, T>(D&, Form, View<D, const T>, View<D, const T>, View<D, T>, double, bool);                \
  ONCE void Gemm<D>::sum<T>(D&, ProductTerms<D, T>, View<D, const Accum<T>>, View<D, T>, bool);                        \
  ONCE void LowRank<D>::backward<T>(D&, View<D, const T>, LowRankTerms<D, T>, View<D, T>);                             \
  ONCE void LowRank<D>::gradients<T>(D&, View<D, const T>, View<D, const T>, View<D, Accum<T>>, LowRankTerms<D, T>);   \
  ONCE void Quantize<D>::decode<T>(D&, const StoredView<D>&, View<D, T>);                                              \
  ONCE void Reduce<D>::block_sums_of_squares<T>(D&, View<D, const T>, View<D, D::Sum>);                                \
  ONCE void Reduce<D>::column_sums<T>(D&, View<D, const T>, View<D, Accum<T>>);                                        \
  ONCE void Reduce<D>::sum<T>(D&, View<D, const T>, View<D, D::Sum>);                                                  \
  ONCE void RmsNorm<D>::run<T>(D&, View<D, const T>, View<D, const Accum<T>>, double, double, View<D, T>,              \
                               View<D, Accum<T>>, View<D, T>);                                                         \
  ONCE void RmsNorm<D>::backward<T>(D&, View<D, const T>, View<D, const Accum<T>>, double, View<D, const Accum<T>>,    \
                                    View<D, const T>, View<D, T>, bool, View<D, T>, double);                           \
  ONCE void RmsNorm<D>::weight_gradient<T>(D&, View<D, const T>, View<D, const Accum<T>>, View<D, const T>,            \
                                           View<D, Accum<T>>);                                                         \
  ONCE void Rope<D>::run<T>(D&, View<D, const T>, View<D, const Accum<T>>, View<D, const Accum<T>>,                    \
                            View<D, const std::int32_t>, Rotation, View<D, T>);                                        \
  }
/// what it has beside them where sums of T are of another type,
#define LORA_KERNELS_OF_HALVES(ONCE, D, T)                                                                            \
  namespace lora::kernel {                                                                                            \
  ONCE void Elementwise<D>::convert<T, Accum<T>>(D&, View<D, const T>, View<D, Accum<T>>, double, bool);              \
  ONCE void Elementwise<D>::convert<Accum<T>, T>(D&, View<D, const Accum<T>>, View<D, T>, double, bool);              \
  ONCE void Gemm<D>::run<T, Accum<T>>(D&, Form, View<D, const T>, View<D, const T>, View<D, Accum<T>>, double, bool); \
  }
/// and those of a type A that sums are formed in.
#define LORA_KERNELS_OF_SUMS(ONCE, D, A)                                                                     \
  namespace lora::kernel {                                                                                   \
  ONCE void AdamW<D>::run<A>(D&, const AdamWStep&, View<D, const A>, View<D, A>, View<D, A>, View<D, A>);    \
  ONCE void Quantize<D>::decode_with_update<A>(D&, const StoredView<D>&, View<D, const A>, View<D, const A>, \
                                               View<D, A>);                                                  \
  }
/// The loss, in one of two ways (kernel/loss.hpp).
#define LORA_KERNELS_OF_SOFTMAX(ONCE, D, T)                                                                          \
  namespace lora::kernel {                                                                                           \
  ONCE void Softmax<D>::block<T>(D&, View<D, Accum<T>>, View<D, const std::int32_t>, Index, View<D, Accum<T>>,       \
                                 View<D, Accum<T>>, View<D, Accum<T>>, View<D, T>, View<D, Accum<T>>,                \
                                 View<D, Accum<T>>, double);                                                         \
  ONCE void Softmax<D>::gradient<T>(D&, View<D, const Accum<T>>, View<D, const Accum<T>>, View<D, const Accum<T>>,   \
                                    View<D, const Accum<T>>, View<D, const T>, double, View<D, const Accum<T>>,      \
                                    View<D, T>, double);                                                             \
  ONCE void Softmax<D>::logit_gradient<T>(D&, View<D, const Accum<T>>, View<D, const std::int32_t>, Index,           \
                                          View<D, const Accum<T>>, View<D, const Accum<T>>, View<D, const Accum<T>>, \
                                          double, View<D, T>, double);                                               \
  }
#define LORA_KERNELS_OF_CROSS_ENTROPY(ONCE, D, T)                                                                  \
  namespace lora::kernel {                                                                                         \
  ONCE void CrossEntropy<D>::run<T>(D&, View<D, Accum<T>>, View<D, const std::int32_t>, double, View<D, Accum<T>>, \
                                    View<D, Accum<T>>, View<D, Accum<T>>, View<D, T>);                             \
  }

/// All that models compute with. `LOSS`: which of the two.
#define LORA_KERNELS_OF_MODELS(ONCE, D, LOSS) \
  LORA_KERNELS(ONCE, D, float)                \
  LORA_KERNELS(ONCE, D, lora::bf16)           \
  LORA_KERNELS(ONCE, D, lora::f16)            \
  LORA_KERNELS_OF_HALVES(ONCE, D, lora::bf16) \
  LORA_KERNELS_OF_HALVES(ONCE, D, lora::f16)  \
  LORA_KERNELS_OF_SUMS(ONCE, D, float)        \
  LOSS(ONCE, D, float)                        \
  LOSS(ONCE, D, lora::bf16)                   \
  LOSS(ONCE, D, lora::f16)
