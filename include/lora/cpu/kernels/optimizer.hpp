#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/eigen.hpp"
#include "lora/kernel/optimizer.hpp"

namespace lora::kernel {

template <>
struct AdamW<cpu::Device> {
  template <class A>
  static void run(cpu::Device& dev, const AdamWStep& step, View<cpu::Device, const A> grad, View<cpu::Device, A> value,
                  View<cpu::Device, A> m, View<cpu::Device, A> v);
};

template <class A>
void AdamW<cpu::Device>::run(cpu::Device& dev, const AdamWStep& step, View<cpu::Device, const A> grad,
                             View<cpu::Device, A> value, View<cpu::Device, A> m, View<cpu::Device, A> v) {
  const auto t = static_cast<double>(step.step);
  const auto scale = static_cast<A>(step.gradient_scale);
  const auto keep = static_cast<A>(1 - step.learning_rate * step.weight_decay);
  const auto fresh1 = static_cast<A>(1 - step.beta1);
  const auto beta2 = static_cast<A>(step.beta2);
  const auto fresh2 = static_cast<A>(1 - step.beta2);
  const auto stride = static_cast<A>(-step.learning_rate / (1 - std::pow(step.beta1, t)));
  const auto correction2 = static_cast<A>(std::sqrt(1 - std::pow(step.beta2, t)));
  const auto epsilon = static_cast<A>(step.epsilon);
  constexpr Index piece = 1024;  // columns, so that one long row has work for every thread
  const Index cols = value.cols();
  const Index pieces = (cols + piece - 1) / piece;
  dev.parallel_for(value.rows() * pieces, cpu::rows_per_task(std::min(piece - 1, cols)), [=](Index first, Index last) {
    std::array<A, static_cast<std::size_t>(piece)> storage;
    A* const root = storage.data();
    for (Index task = first; task < last; ++task) {
      const Index row = task / pieces;
      const Index begin = task % pieces * piece;
      const Index count = std::min(piece, cols - begin);
      const A* const gs = grad.row(row) + begin;
      A* const ws = value.row(row) + begin;
      A* const ms = m.row(row) + begin;
      A* const vs = v.row(row) + begin;
      LORA_SIMD
      for (Index j = 0; j < count; ++j) {
        const A g = scale * gs[j];
        ms[j] += fresh1 * (g - ms[j]);
        vs[j] = beta2 * vs[j] + fresh2 * g * g;
      }
      // std::sqrt may set errno, which keeps a loop from being vectorized; Eigen's doesn't.
      Eigen::Map<Eigen::Array<A, Eigen::Dynamic, 1>>(root, count) =
          Eigen::Map<const Eigen::Array<A, Eigen::Dynamic, 1>>(vs, count).sqrt();
      LORA_SIMD
      for (Index j = 0; j < count; ++j) ws[j] = keep * ws[j] + stride * ms[j] / (root[j] / correction2 + epsilon);
    }
  });
}

}  // namespace lora::kernel
