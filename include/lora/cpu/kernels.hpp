#pragma once

#include <complex>

#include "lora/cpu/activation.hpp"
#include "lora/cpu/attention.hpp"
#include "lora/cpu/buffers.hpp"
#include "lora/cpu/device.hpp"
#include "lora/cpu/elementwise.hpp"
#include "lora/cpu/embedding.hpp"
#include "lora/cpu/gemm.hpp"
#include "lora/cpu/loss.hpp"
#include "lora/cpu/low_rank.hpp"
#include "lora/cpu/norm.hpp"
#include "lora/cpu/optimizer.hpp"
#include "lora/cpu/quantize.hpp"
#include "lora/cpu/reduce.hpp"
#include "lora/cpu/rope.hpp"
#include "lora/cpu/row_product.hpp"
#include "lora/kernel/complete.hpp"
#include "lora/kernel/instantiate.hpp"

namespace lora::cpu {

static_assert(kernel::Complete<Device, float>);
static_assert(kernel::Complete<Device, bf16>);
static_assert(kernel::Complete<Device, f16>);
// For gradient checks only.
static_assert(kernel::Complete<Device, double>);
static_assert(kernel::Complete<Device, std::complex<double>>);

}  // namespace lora::cpu

/// What models compute with. ONCE as in kernel/instantiate.hpp.
#define LORA_CPU_KERNELS(ONCE)                                 \
  LORA_KERNELS(ONCE, lora::cpu::Device, float)                 \
  LORA_KERNELS(ONCE, lora::cpu::Device, lora::bf16)            \
  LORA_KERNELS(ONCE, lora::cpu::Device, lora::f16)             \
  LORA_KERNELS_OF_HALVES(ONCE, lora::cpu::Device, lora::bf16)  \
  LORA_KERNELS_OF_HALVES(ONCE, lora::cpu::Device, lora::f16)   \
  LORA_KERNELS_OF_SUMS(ONCE, lora::cpu::Device, float)         \
  LORA_KERNELS_OF_SOFTMAX(ONCE, lora::cpu::Device, float)      \
  LORA_KERNELS_OF_SOFTMAX(ONCE, lora::cpu::Device, lora::bf16) \
  LORA_KERNELS_OF_SOFTMAX(ONCE, lora::cpu::Device, lora::f16)

#ifdef LORA_COMPILED
LORA_CPU_KERNELS(extern template)
#endif
