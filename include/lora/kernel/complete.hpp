#pragma once

#include "lora/kernel/activation.hpp"
#include "lora/kernel/attention.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/embedding.hpp"
#include "lora/kernel/gemm.hpp"
#include "lora/kernel/loss.hpp"
#include "lora/kernel/low_rank.hpp"
#include "lora/kernel/norm.hpp"
#include "lora/kernel/optimizer.hpp"
#include "lora/kernel/quantize.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/kernel/rope.hpp"

namespace lora::kernel {

/// Device D has every kernel family for element type T; each backend asserts it once.
template <class D, class T>
concept Complete = HasGemm<D, T> && HasRmsNorm<D, T> && HasRope<D, T> && HasAttention<D, T> && HasGatedUnit<D, T> &&
                   HasEmbedding<D, T> && (HasSoftmax<D, T> || HasCrossEntropy<D, T>)&&HasAdamW<D, T> &&
                   HasElementwise<D, T> && HasReduce<D, T> && HasQuantize<D, T> && HasLowRank<D, T>;

}  // namespace lora::kernel
