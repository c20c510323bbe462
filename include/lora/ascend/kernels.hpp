#pragma once

#include "lora/ascend/activation.hpp"
#include "lora/ascend/attention.hpp"
#include "lora/ascend/buffers.hpp"
#include "lora/ascend/elementwise.hpp"
#include "lora/ascend/embedding.hpp"
#include "lora/ascend/gemm.hpp"
#include "lora/ascend/loss.hpp"
#include "lora/ascend/low_rank.hpp"
#include "lora/ascend/norm.hpp"
#include "lora/ascend/optimizer.hpp"
#include "lora/ascend/quantize.hpp"
#include "lora/ascend/reduce.hpp"
#include "lora/ascend/rope.hpp"
#include "lora/kernel/complete.hpp"
#include "lora/kernel/instantiate.hpp"

namespace lora::kernel {

static_assert(Complete<ascend::Device, float>);
static_assert(Complete<ascend::Device, bf16>);
static_assert(Complete<ascend::Device, f16>);

}  // namespace lora::kernel

/// What models compute with. ONCE as in kernel/instantiate.hpp.
#define LORA_ASCEND_KERNELS(ONCE)                                       \
  LORA_KERNELS(ONCE, lora::ascend::Device, float)                       \
  LORA_KERNELS(ONCE, lora::ascend::Device, lora::bf16)                  \
  LORA_KERNELS(ONCE, lora::ascend::Device, lora::f16)                   \
  LORA_KERNELS_OF_HALVES(ONCE, lora::ascend::Device, lora::bf16)        \
  LORA_KERNELS_OF_HALVES(ONCE, lora::ascend::Device, lora::f16)         \
  LORA_KERNELS_OF_SUMS(ONCE, lora::ascend::Device, float)               \
  LORA_KERNELS_OF_CROSS_ENTROPY(ONCE, lora::ascend::Device, float)      \
  LORA_KERNELS_OF_CROSS_ENTROPY(ONCE, lora::ascend::Device, lora::bf16) \
  LORA_KERNELS_OF_CROSS_ENTROPY(ONCE, lora::ascend::Device, lora::f16)

#ifdef LORA_COMPILED_ASCEND
LORA_ASCEND_KERNELS(extern template)
#endif
