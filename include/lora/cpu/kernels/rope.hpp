#pragma once

#include <complex>
#include <cstdint>

#include "lora/cpu/runtime/device.hpp"
#include "lora/kernel/rope.hpp"

namespace lora::kernel {

template <>
struct Rope<cpu::Device> {
  template <class T>
  static void run(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const Accum<T>> cos,
                  View<cpu::Device, const Accum<T>> sin, View<cpu::Device, const std::int32_t> positions,
                  Rotation rotation, View<cpu::Device, T> y);
};

template <class T>
void Rope<cpu::Device>::run(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const Accum<T>> cos,
                            View<cpu::Device, const Accum<T>> sin, View<cpu::Device, const std::int32_t> positions,
                            Rotation rotation, View<cpu::Device, T> y) {
  using A = Accum<T>;
  const Index half = cos.cols();
  const Index heads = x.cols() / (2 * half);
  const A sign = rotation == Rotation::forward ? A(1) : A(-1);
  dev.parallel_for(x.rows(), cpu::rows_per_task(x.cols()), [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const std::int32_t position = positions.data()[i];
      const A* const c = cos.row(position);
      const A* const s = sin.row(position);
      for (Index k = 0; k < heads; ++k) {
        const T* const in = x.row(i) + k * 2 * half;
        T* const out = y.row(i) + k * 2 * half;
        LORA_SIMD
        for (Index j = 0; j < half; ++j) {
          const auto first = static_cast<A>(in[j]);
          const auto second = static_cast<A>(in[half + j]);
          const A turn = sign * s[j];
          out[j] = narrowed<T>(first * c[j] - second * turn);
          out[half + j] = narrowed<T>(second * c[j] + first * turn);
        }
      }
    }
  });
}

}  // namespace lora::kernel
