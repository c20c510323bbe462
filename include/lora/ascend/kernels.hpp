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

#ifdef LORA_COMPILED_ASCEND
LORA_KERNELS_OF_MODELS(extern template, lora::ascend::Device, LORA_KERNELS_OF_CROSS_ENTROPY)
#endif
