#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

#include "lora/cpu/kernels/reduce.hpp"
#include "lora/cpu/kernels/soft_cap.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/exp.hpp"
#include "lora/kernel/loss.hpp"

namespace lora::kernel {

template <>
struct Softmax<cpu::Device> {
  template <class T>
  static void block(cpu::Device& dev, View<cpu::Device, Accum<T>> logits, View<cpu::Device, const std::int32_t> labels,
                    Index first, View<cpu::Device, Accum<T>> top, View<cpu::Device, Accum<T>> others,
                    View<cpu::Device, Accum<T>> target, View<cpu::Device, T> e, View<cpu::Device, Accum<T>> rounded,
                    View<cpu::Device, Accum<T>> sums, double cap);

  template <class A>
  static void finish(cpu::Device&, View<cpu::Device, const A> top, View<cpu::Device, const A> others,
                     View<cpu::Device, const A> target, View<cpu::Device, A> loss);

  template <class T>
  static void gradient(cpu::Device& dev, View<cpu::Device, const Accum<T>> top,
                       View<cpu::Device, const Accum<T>> others, View<cpu::Device, const Accum<T>> target,
                       View<cpu::Device, const Accum<T>> rounded, View<cpu::Device, const T> w_label, double scale,
                       View<cpu::Device, const Accum<T>> sums, View<cpu::Device, T> dx, double cap);

  template <class T>
  static void logit_gradient(cpu::Device& dev, View<cpu::Device, const Accum<T>> logits,
                             View<cpu::Device, const std::int32_t> labels, Index first,
                             View<cpu::Device, const Accum<T>> top, View<cpu::Device, const Accum<T>> others,
                             View<cpu::Device, const Accum<T>> target, double scale, View<cpu::Device, T> dl,
                             double cap);
};

template <class T>
void Softmax<cpu::Device>::block(cpu::Device& dev, View<cpu::Device, Accum<T>> logits,
                                 View<cpu::Device, const std::int32_t> labels, Index first,
                                 View<cpu::Device, Accum<T>> top, View<cpu::Device, Accum<T>> others,
                                 View<cpu::Device, Accum<T>> target, View<cpu::Device, T> e,
                                 View<cpu::Device, Accum<T>> rounded, View<cpu::Device, Accum<T>> sums, double cap) {
  using A = Accum<T>;
  const Index width = logits.cols();
  const A nothing = static_cast<A>(-std::numeric_limits<double>::infinity()), inverse = static_cast<A>(1 / cap);
  dev.parallel_for(logits.rows(), 2048 / (width + 1) + 1, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      A* const in = logits.row(i);
      const A before = first == 0 ? nothing : top.data()[i];
      const A here = cpu::ordered_max(width, in);
      const A now = cpu::real_part(here) > cpu::real_part(before) ? here : before;
      const Index label = labels.data()[i] - first;
      if (label >= 0 && label < width) {
        target.data()[i] = in[label];
        in[label] = nothing;  // so that its exponential is 0
      }
      A sum;
      if (e.empty()) {
        sum = cpu::ordered_sum<A>(width, [=](Index j) { return cpu::exp(in[j] - now); });
      } else if (cap > 0) {
        T* const out = e.row(i);
        sum = cpu::ordered_sum<A>(width, [=](Index j) {
          const A logit = in[j], value = cpu::exp(logit - now);
          // The label's logit is infinite by now, and its exponential 0.
          out[j] = static_cast<T>(cpu::kept_if(value != A(0), value * cpu::cap_slope(logit, inverse)));
          return value;
        });
      } else {
        T* const out = e.row(i);
        sum = cpu::ordered_sum<A>(width, [=](Index j) {
          const A value = cpu::exp(in[j] - now);
          out[j] = static_cast<T>(value);
          return value;
        });
      }
      A of_rounded = sum;
      if constexpr (!std::same_as<T, A>)
        if (!rounded.empty() && cap == 0)
          of_rounded = cpu::ordered_sum<A>(width, [out = e.row(i)](Index j) { return static_cast<A>(out[j]); });
      if (first > 0) {
        const A shrink = std::exp(before - now);
        sum += others.data()[i] * shrink;
        if (!rounded.empty()) of_rounded += rounded.data()[i] * shrink;
        if (!sums.empty() && shrink != A(1)) {
          A* const row = sums.row(i);
          LORA_SIMD
          for (Index k = 0; k < sums.cols(); ++k) row[k] *= shrink;
        }
      }
      if (!rounded.empty()) rounded.data()[i] = of_rounded;
      others.data()[i] = sum;
      top.data()[i] = now;
    }
  });
}

template <class A>
void Softmax<cpu::Device>::finish(cpu::Device&, View<cpu::Device, const A> top, View<cpu::Device, const A> others,
                                  View<cpu::Device, const A> target, View<cpu::Device, A> loss) {
  for (Index i = 0; i < top.cols(); ++i) {
    const A below = top.data()[i] - target.data()[i];
    if constexpr (std::floating_point<A>) {
      loss.data()[i] = below + std::log1p(others.data()[i] + std::expm1(-below));
    } else {
      loss.data()[i] = below + std::log(others.data()[i] + std::exp(-below));
    }
  }
}

template <class T>
void Softmax<cpu::Device>::gradient(cpu::Device& dev, View<cpu::Device, const Accum<T>> top,
                                    View<cpu::Device, const Accum<T>> others, View<cpu::Device, const Accum<T>> target,
                                    View<cpu::Device, const Accum<T>> rounded, View<cpu::Device, const T> w_label,
                                    double scale, View<cpu::Device, const Accum<T>> sums, View<cpu::Device, T> dx,
                                    double cap) {
  using A = Accum<T>;
  const A inverse = static_cast<A>(1 / cap);
  dev.parallel_for(dx.rows(), cpu::rows_per_task(dx.cols()), [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const A rest = cap > 0 ? others.data()[i] * cpu::cap_slope(target.data()[i], inverse) : rounded.data()[i];
      const A factor = static_cast<A>(scale) / (others.data()[i] + std::exp(target.data()[i] - top.data()[i]));
      const A* const sum = sums.row(i);
      const T* const w = w_label.row(i);
      T* const out = dx.row(i);
      LORA_SIMD
      for (Index k = 0; k < dx.cols(); ++k) out[k] = narrowed<T>(factor * (sum[k] - rest * static_cast<A>(w[k])));
    }
  });
}

template <class T>
void Softmax<cpu::Device>::logit_gradient(cpu::Device& dev, View<cpu::Device, const Accum<T>> logits,
                                          View<cpu::Device, const std::int32_t> labels, Index first,
                                          View<cpu::Device, const Accum<T>> top,
                                          View<cpu::Device, const Accum<T>> others,
                                          View<cpu::Device, const Accum<T>> target, double scale,
                                          View<cpu::Device, T> dl, double cap) {
  using A = Accum<T>;
  const A inverse = static_cast<A>(1 / cap);
  const Index width = logits.cols();
  dev.parallel_for(logits.rows(), 2048 / (width + 1) + 1, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const A* const in = logits.row(i);
      T* const out = dl.row(i);
      const A largest = top.data()[i], rest = others.data()[i];
      const A factor = static_cast<A>(scale) / (rest + std::exp(target.data()[i] - largest));
      const Index label = labels.data()[i] - first;
      const bool here = label >= 0 && label < width;
      const A of_label = here && cap > 0 ? -factor * rest * cpu::cap_slope(in[label], inverse) : -factor * rest;
      if (cap > 0) {
        LORA_SIMD
        for (Index j = 0; j < width; ++j)
          out[j] = narrowed<T>(factor * cpu::exp(in[j] - largest) * cpu::cap_slope(in[j], inverse));
      } else {
        LORA_SIMD
        for (Index j = 0; j < width; ++j) out[j] = narrowed<T>(factor * cpu::exp(in[j] - largest));
      }
      if (here) out[label] = narrowed<T>(of_label);
    }
  });
}

}  // namespace lora::kernel
