#pragma once

#include <complex>

#include "lora/cpu/kernels/activation.hpp"
#include "lora/cpu/kernels/attention.hpp"
#include "lora/cpu/kernels/buffers.hpp"
#include "lora/cpu/kernels/elementwise.hpp"
#include "lora/cpu/kernels/embedding.hpp"
#include "lora/cpu/kernels/gemm.hpp"
#include "lora/cpu/kernels/loss.hpp"
#include "lora/cpu/kernels/low_rank.hpp"
#include "lora/cpu/kernels/norm.hpp"
#include "lora/cpu/kernels/optimizer.hpp"
#include "lora/cpu/kernels/quantize.hpp"
#include "lora/cpu/kernels/reduce.hpp"
#include "lora/cpu/kernels/rope.hpp"
#include "lora/cpu/kernels/row_product.hpp"
#include "lora/cpu/kernels/soft_cap.hpp"
#include "lora/cpu/runtime/device.hpp"
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

/// All that models compute with on processors; ONCE as in kernel/instantiate.hpp.
#define LORA_CPU_KERNELS(ONCE)                                                                \
  LORA_KERNELS_OF_MODELS(ONCE, lora::cpu::Device, LORA_KERNELS_OF_SOFTMAX)                    \
  namespace lora::kernel {                                                                    \
  ONCE void SoftCap<cpu::Device>::run<float>(cpu::Device&, View<cpu::Device, float>, double); \
  }

#ifdef LORA_COMPILED
LORA_CPU_KERNELS(extern template)
#endif
