// Every kernel that has loops marked LORA_SIMD, for the types that a program computes in. Compiled by a test that reads
// what the compiler says of these loops; never run.
#include "lora/cpu/kernels.hpp"

#include "lora/ascend/kernels/dropout_mask.hpp"

namespace lora {

// Which is no template.
auto* draw = ascend::draw_dropout_mask;

}  // namespace lora

namespace lora::kernel {

namespace {

using D = cpu::Device;
template <class T>
using In = View<D, const T>;
template <class T>
using Out = View<D, T>;
using Sums = Out<float>;
using Read = In<float>;
using Ints = In<std::int32_t>;

}  // namespace

#define LORA_ROWS_OF(T)                                                                                           \
  template void GatedUnit<D>::run<T>(D&, Gate, In<T>, Out<T>);                                                    \
  template void GatedUnit<D>::backward<T>(D&, Gate, In<T>, In<T>, Out<T>, Out<T>);                                \
  template void RmsNorm<D>::run<T>(D&, In<T>, Read, double, double, Out<T>, Sums, Out<T>);                        \
  template void RmsNorm<D>::backward<T>(D&, In<T>, Read, double, Read, In<T>, Out<T>, bool, Out<T>, double);      \
  template void RmsNorm<D>::weight_gradient<T>(D&, In<T>, Read, In<T>, Sums);                                     \
  template void Embedding<D>::backward<T>(D&, Ints, In<T>, Sums);                                                 \
  template void Embedding<D>::noise<T>(D&, const EmbeddingNoise&, std::span<const Segment>, Ints, Ints, Out<T>);  \
  template void Reduce<D>::column_sums<T>(D&, In<T>, Sums);                                                       \
  template void Softmax<D>::logit_gradient<T>(D&, Read, Ints, Index, Read, Read, Read, double, Out<T>, double);   \
  template void Rope<D>::run<T>(D&, In<T>, Read, Read, Ints, Rotation, Out<T>);                                   \
  template void Elementwise<D>::convert<T, T>(D&, In<T>, Out<T>, double, bool);                                   \
  template void Elementwise<D>::add_bias<T>(D&, Read, Out<T>);                                                    \
  template void Elementwise<D>::dropout<T>(D&, const DropoutMask<D>&, In<T>, Out<T>, bool);                       \
  template void Softmax<D>::block<T>(D&, Sums, Ints, Index, Sums, Sums, Sums, Out<T>, Sums, Sums, double);        \
  template void Softmax<D>::gradient<T>(D&, Read, Read, Read, Read, In<T>, double, Read, Out<T>, double);         \
  template void Quantize<D>::decode<T>(D&, const StoredView<D>&, Out<T>);                                         \
  template void Reduce<D>::block_sums_of_squares<T>(D&, In<T>, View<D, double>);                                  \
  template void Attention<D>::run<T>(D&, const AttentionShape&, In<T>, In<T>, In<T>, std::span<const Segment>,    \
                                     std::span<const Segment>, Out<T>, Attention<D>::Saved<T>*);                  \
  template void Attention<D>::backward<T>(D&, const AttentionShape&, In<T>, In<T>, In<T>, In<T>,                  \
                                          std::span<const Segment>, const Attention<D>::Saved<T>&, In<T>, Out<T>, \
                                          Out<T>, Out<T>);                                                        \
  template void Gemm<D>::run<T, float>(D&, Form, In<T>, In<T>, Sums, double, bool);

LORA_ROWS_OF(float)
LORA_ROWS_OF(bf16)
LORA_ROWS_OF(f16)
template void SoftCap<D>::run<float>(D&, Sums, double);
template void Elementwise<D>::convert<bf16, float>(D&, In<bf16>, Sums, double, bool);
template void Elementwise<D>::convert<float, bf16>(D&, Read, Out<bf16>, double, bool);
template void Gemm<D>::run<bf16, bf16>(D&, Form, In<bf16>, In<bf16>, Out<bf16>, double, bool);
template void Gemm<D>::sum<bf16>(D&, ProductTerms<D, bf16>, Read, Out<bf16>, bool);
template void LowRank<D>::gradients<float>(D&, Read, Read, Sums, LowRankTerms<D, float>);
template void AdamW<D>::run<float>(D&, const AdamWStep&, Read, Sums, Sums, Sums);

}  // namespace lora::kernel
