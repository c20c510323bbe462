#pragma once

#include "lora/ascend/kernels/activation.hpp"
#include "lora/ascend/kernels/attention.hpp"
#include "lora/ascend/kernels/buffers.hpp"
#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/ascend/kernels/embedding.hpp"
#include "lora/ascend/kernels/gemm.hpp"
#include "lora/ascend/kernels/loss.hpp"
#include "lora/ascend/kernels/low_rank.hpp"
#include "lora/ascend/kernels/norm.hpp"
#include "lora/ascend/kernels/optimizer.hpp"
#include "lora/ascend/kernels/quantize.hpp"
#include "lora/ascend/kernels/reduce.hpp"
#include "lora/ascend/kernels/rope.hpp"
#include "lora/kernel/complete.hpp"
#include "lora/kernel/instantiate.hpp"

namespace lora::kernel {

static_assert(Complete<ascend::Device, float>);
static_assert(Complete<ascend::Device, bf16>);
static_assert(Complete<ascend::Device, f16>);

}  // namespace lora::kernel

#ifdef LORA_COMPILED_ASCEND
LORA_KERNELS_OF_MODELS(extern template, lora::ascend::Device, LORA_KERNELS_OF_CROSS_ENTROPY)
#endif
