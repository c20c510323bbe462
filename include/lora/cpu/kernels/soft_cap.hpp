#pragma once

#include "lora/cpu/kernels/elementwise.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/tanh.hpp"
#include "lora/kernel/soft_cap.hpp"

namespace lora::cpu {

/// cap · tanh(x / cap)
template <class A>
[[gnu::always_inline]] inline A capped(A x, A cap, A inverse) {
  return cap * cpu::tanh(x * inverse);
}

/// Its derivative, by its value: 1 − (value / cap)².
template <class A>
[[gnu::always_inline]] inline A cap_slope(A value, A inverse) {
  const A share = value * inverse;
  return A(1) - share * share;
}

}  // namespace lora::cpu

namespace lora::kernel {

template <>
struct SoftCap<cpu::Device> {
  template <class A>
  static void run(cpu::Device& dev, View<cpu::Device, A> x, double cap) {
    const A limit = static_cast<A>(cap), inverse = static_cast<A>(1 / cap);
    cpu::detail::for_each_piece(dev, x.rows(), x.cols(), [=](Index row, Index begin, Index end) {
      A* const logits = x.row(row);
      LORA_SIMD
      for (Index j = begin; j < end; ++j) {
        A& logit = logits[j];
        logit = cpu::capped(logit, limit, inverse);
      }
    });
  }
};

}  // namespace lora::kernel
