#pragma once

#include <algorithm>
#include <cmath>
#include <complex>

#include "lora/cpu/kernels/reduce.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/kernel/norm.hpp"

namespace lora::kernel {

template <>
struct RmsNorm<cpu::Device> {
  template <class T>
  static void run(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const Accum<T>> weight,
                  double offset, double eps, View<cpu::Device, T> y, View<cpu::Device, Accum<T>> rstd,
                  View<cpu::Device, T> copy);

  template <class T>
  static void backward(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const Accum<T>> weight,
                       double offset, View<cpu::Device, const Accum<T>> rstd, View<cpu::Device, const T> dy,
                       View<cpu::Device, T> dx, bool accumulate, View<cpu::Device, T> y, double);

  template <class T>
  static void weight_gradient(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const Accum<T>> rstd,
                              View<cpu::Device, const T> dy, View<cpu::Device, Accum<T>> dw);

 private:
  template <class T, class A>
  static void write(const T* in, A scale, const A* w, A offset, Index width, T* out) {
    LORA_SIMD
    for (Index j = 0; j < width; ++j) out[j] = narrowed<T>(static_cast<A>(in[j]) * scale * (offset + w[j]));
  }

  /// Calls f(i, k) for every row i and group k of `width` of its columns.
  template <class F>
  static void for_groups(cpu::Device& dev, Index rows, Index cols, Index width, const F& f) {
    const Index groups = cols / width;
    dev.parallel_for(rows, cpu::rows_per_task(cols), [&f, groups](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        for (Index k = 0; k < groups; ++k) f(i, k);
    });
  }
};

template <class T>
void RmsNorm<cpu::Device>::run(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, const Accum<T>> weight,
                               double offset, double eps, View<cpu::Device, T> y, View<cpu::Device, Accum<T>> rstd,
                               View<cpu::Device, T> copy) {
  using A = Accum<T>;
  const Index width = weight.cols();
  const A* const w = weight.data();
  const auto added = static_cast<A>(offset);
  for_groups(dev, x.rows(), x.cols(), width, [=](Index i, Index k) {
    const T* const in = x.row(i) + k * width;
    T* const out = y.row(i) + k * width;
    const A squares = cpu::ordered_sum<A>(width, [=](Index j) {
      const auto value = static_cast<A>(in[j]);
      return value * value;
    });
    const A scale = A(1) / std::sqrt(squares / static_cast<A>(static_cast<double>(width)) + static_cast<A>(eps));
    if (!copy.empty()) std::copy_n(in, width, copy.row(i) + k * width);
    write(in, scale, w, added, width, out);
    if (!rstd.empty()) rstd.row(i)[k] = scale;
  });
}

template <class T>
void RmsNorm<cpu::Device>::backward(cpu::Device& dev, View<cpu::Device, const T> x,
                                    View<cpu::Device, const Accum<T>> weight, double offset,
                                    View<cpu::Device, const Accum<T>> rstd, View<cpu::Device, const T> dy,
                                    View<cpu::Device, T> dx, bool accumulate, View<cpu::Device, T> y, double) {
  using A = Accum<T>;
  const Index width = weight.cols();
  const A* const w = weight.data();
  const auto added = static_cast<A>(offset);
  for_groups(dev, x.rows(), x.cols(), width, [=](Index i, Index k) {
    const T* const in = x.row(i) + k * width;
    const T* const grad = dy.row(i) + k * width;
    T* const out = dx.row(i) + k * width;
    const A scale = rstd.row(i)[k];
    const A dot = cpu::ordered_sum<A>(
        width, [=](Index j) { return (added + w[j]) * static_cast<A>(grad[j]) * static_cast<A>(in[j]); });
    const A pull = scale * scale * dot / static_cast<A>(static_cast<double>(width));
    if (accumulate) {
      LORA_SIMD
      for (Index j = 0; j < width; ++j)
        out[j] = narrowed<T>(static_cast<A>(out[j]) +
                             scale * ((added + w[j]) * static_cast<A>(grad[j]) - static_cast<A>(in[j]) * pull));
    } else {
      LORA_SIMD
      for (Index j = 0; j < width; ++j)
        out[j] = narrowed<T>(scale * ((added + w[j]) * static_cast<A>(grad[j]) - static_cast<A>(in[j]) * pull));
    }
    if (!y.empty()) write(in, scale, w, added, width, y.row(i) + k * width);
  });
}

template <class T>
void RmsNorm<cpu::Device>::weight_gradient(cpu::Device& dev, View<cpu::Device, const T> x,
                                           View<cpu::Device, const Accum<T>> rstd, View<cpu::Device, const T> dy,
                                           View<cpu::Device, Accum<T>> dw) {
  using A = Accum<T>;
  const Index width = dw.cols(), groups = x.cols() / width;
  const auto add = [=](Index i, A* sums) {
    for (Index k = 0; k < groups; ++k) {
      const T* const in = x.row(i) + k * width;
      const T* const grad = dy.row(i) + k * width;
      const A scale = rstd.row(i)[k];
      LORA_SIMD
      for (Index j = 0; j < width; ++j) sums[j] += static_cast<A>(grad[j]) * (static_cast<A>(in[j]) * scale);
    }
  };
  cpu::ordered_column_sums<A>(dev, x.rows(), width, add, dw.data());
}

}  // namespace lora::kernel
