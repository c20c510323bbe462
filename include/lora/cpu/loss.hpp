#pragma once

#include <cmath>

#include "lora/cpu/device.hpp"
#include "lora/cpu/exp.hpp"
#include "lora/cpu/reduce.hpp"
#include "lora/kernel/loss.hpp"

namespace lora::kernel {

template <>
struct Softmax<cpu::Device> {
  template <class T>
  static void block(cpu::Device& dev, View<cpu::Device, const Accum<T>> logits,
                    View<cpu::Device, const std::int32_t> labels, Index first, View<cpu::Device, Accum<T>> max,
                    View<cpu::Device, Accum<T>> sum, View<cpu::Device, Accum<T>> target, View<cpu::Device, T> e) {
    using A = Accum<T>;
    const Index width = logits.cols();
    dev.parallel_for(logits.rows(), 2048 / (width + 1) + 1, [=](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const A* const in = logits.row(i);
        const A largest = cpu::ordered_max(width, in);
        max.data()[i] = largest;
        if (e.empty()) {
          sum.data()[i] = cpu::ordered_sum<A>(width, [=](Index j) { return cpu::exp(in[j] - largest); });
        } else {
          T* const out = e.row(i);
          sum.data()[i] = cpu::ordered_sum<A>(width, [=](Index j) {
            const A value = cpu::exp(in[j] - largest);
            out[j] = static_cast<T>(value);
            return value;
          });
        }
        const Index label = labels.data()[i] - first;
        if (label >= 0 && label < width) target.data()[i] = in[label];
      }
    });
  }

  template <class A>
  static void finish(cpu::Device&, View<cpu::Device, const A> max, View<cpu::Device, const A> sum,
                     View<cpu::Device, const A> target, View<cpu::Device, A> lse, View<cpu::Device, A> loss,
                     View<cpu::Device, A> top) {
    for (Index i = 0; i < max.cols(); ++i) {
      A largest = max.row(0)[i];
      for (Index b = 1; b < max.rows(); ++b) {
        if (cpu::real_part(max.row(b)[i]) > cpu::real_part(largest)) largest = max.row(b)[i];
      }
      A total = 0;
      for (Index b = 0; b < max.rows(); ++b) total += sum.row(b)[i] * std::exp(max.row(b)[i] - largest);
      const A normaliser = largest + std::log(total);
      lse.data()[i] = normaliser;
      loss.data()[i] = normaliser - target.data()[i];
      top.data()[i] = largest;
    }
  }

  template <class T>
  static void gradient(cpu::Device& dev, View<cpu::Device, T> e, View<cpu::Device, const Accum<T>> max,
                       View<cpu::Device, const Accum<T>> lse, View<cpu::Device, const std::int32_t> labels, Index first,
                       double scale) {
    using A = Accum<T>;
    const Index width = e.cols();
    dev.parallel_for(e.rows(), 8192 / (width + 1) + 1, [=](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        T* const out = e.row(i);
        const A factor = static_cast<A>(scale) * std::exp(max.data()[i] - lse.data()[i]);
        const Index label = labels.data()[i] - first;
        const bool here = label >= 0 && label < width;
        const A at_label = here ? factor * static_cast<A>(out[label]) - static_cast<A>(scale) : A(0);
        LORA_SIMD
        for (Index j = 0; j < width; ++j) out[j] = static_cast<T>(factor * static_cast<A>(out[j]));
        if (here) out[label] = static_cast<T>(at_label);
      }
    });
  }
};

}  // namespace lora::kernel
