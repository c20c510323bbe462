#pragma once

#include <algorithm>
#include <cmath>
#include <complex>

#include "lora/cpu/device.hpp"
#include "lora/kernel/optimizer.hpp"

namespace lora::kernel {

template <>
struct AdamW<cpu::Device> {
  template <class A>
  static void run(cpu::Device& dev, const AdamWStep& step, View<cpu::Device, const A> grad, View<cpu::Device, A> value,
                  View<cpu::Device, A> m, View<cpu::Device, A> v) {
    const auto t = static_cast<double>(step.step);
    const auto scale = static_cast<A>(step.gradient_scale);
    const auto keep = static_cast<A>(1 - step.learning_rate * step.weight_decay);
    const auto fresh1 = static_cast<A>(1 - step.beta1);
    const auto beta2 = static_cast<A>(step.beta2);
    const auto fresh2 = static_cast<A>(1 - step.beta2);
    const auto stride = static_cast<A>(-step.learning_rate / (1 - std::pow(step.beta1, t)));
    const auto correction2 = static_cast<A>(std::sqrt(1 - std::pow(step.beta2, t)));
    const auto epsilon = static_cast<A>(step.epsilon);
    const Index cols = value.cols();
    const Index piece = 4096;  // columns, so that one long row has work for every thread
    const Index pieces = (cols + piece - 1) / piece;
    dev.parallel_for(value.rows() * pieces, 8192 / std::min(piece, cols + 1) + 1, [=](Index first, Index last) {
      for (Index task = first; task < last; ++task) {
        const Index row = task / pieces;
        const Index end = std::min(cols, (task % pieces + 1) * piece);
        const A* const gs = grad.row(row);
        A* const ws = value.row(row);
        A* const ms = m.row(row);
        A* const vs = v.row(row);
        LORA_SIMD
        for (Index j = task % pieces * piece; j < end; ++j) {
          const A g = scale * gs[j];
          const A mean = ms[j] + fresh1 * (g - ms[j]);
          const A square = beta2 * vs[j] + fresh2 * g * g;
          ms[j] = mean;
          vs[j] = square;
          ws[j] = keep * ws[j] + stride * mean / (std::sqrt(square) / correction2 + epsilon);
        }
      }
    });
  }
};

}  // namespace lora::kernel
