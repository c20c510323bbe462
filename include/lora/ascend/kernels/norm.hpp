#pragma once

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/kernel/norm.hpp"

namespace lora::kernel {

template <>
struct RmsNorm<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void run(D& dev, View<D, const T> x, View<D, const Accum<T>> stored, double offset, double eps, View<D, T> y,
                  View<D, Accum<T>> rstd, View<D, T> copy) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, const float> weight = moved(dev, stored, offset);
    if (!copy.empty()) Elementwise<D>::convert(dev, x, copy, 1, false);
    const Index groups = x.cols() / weight.cols();
    // The operator always writes rstd, and does not write over x.
    const View<D, float> reciprocals = rstd.empty() ? scratch<float>(dev, x.rows(), groups) : rstd;
    const bool in_place = y.data() == x.data();
    const View<D, T> out = in_place ? scratch<T>(dev, x.rows(), x.cols()) : y;
    const View<D, const T> from = ascend::aligned(dev, x);
    // It writes without gaps, whatever the strides of its results are.
    ascend::write_aligned(dev, reciprocals, false, true, [&](View<D, float> r) {
      ascend::write_aligned(dev, out, false, true, [&](View<D, T> to) {
        ascend::launch(dev, dev.toolkit().operators.rms_norm, ascend::heads(from, groups), ascend::vector(weight), eps,
                       ascend::heads(to, groups), statistics(r));
      });
    });
    if (in_place) Elementwise<D>::convert(dev, View<D, const T>(out), y, 1, false);
  }

  template <class T>
  static void backward(D& dev, View<D, const T> x, View<D, const Accum<T>> stored, double offset,
                       View<D, const Accum<T>> rstd, View<D, const T> dy, View<D, T> dx, bool accumulate, View<D, T> y,
                       double eps) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, const float> weight = moved(dev, stored, offset);
    const View<D, T> sum = scratch<T>(dev, x.rows(), x.cols());
    gradients<T>(dev, x, weight, rstd, dy, sum, scratch<float>(dev, 1, weight.cols()));
    if (!y.empty()) run<T>(dev, x, weight, 0, eps, y, {}, {});  // y may be dy, which has been read by now
    Elementwise<D>::convert(dev, View<D, const T>(sum), dx, 1, accumulate);
  }

  template <class T>
  static void weight_gradient(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, const T> dy,
                              View<D, Accum<T>> dw) {
    if (x.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    // The operator forms both gradients; dw does not depend on the weight.
    const View<D, float> weight = scratch<float>(dev, 1, dw.cols()), sum = scratch<float>(dev, 1, dw.cols());
    Elementwise<D>::fill(dev, weight, 1);
    gradients<T>(dev, x, weight, rstd, dy, scratch<T>(dev, x.rows(), x.cols()), sum);
    Elementwise<D>::convert(dev, View<D, const float>(sum), dw, 1, true);
  }

 private:
  /// offset + w, which the operators take as one.
  static View<D, const float> moved(D& dev, View<D, const float> weight, double offset) {
    if (offset == 0) return weight;
    const View<D, float> sum = scratch<float>(dev, 1, weight.cols());
    Elementwise<D>::fill(dev, sum, offset);
    Elementwise<D>::convert(dev, weight, sum, 1, true);
    return sum;
  }

  /// rstd (N, K) as (N, K, 1), the operator's shape.
  template <class A>
  static ascend::Operand statistics(View<D, A> rstd) {
    return ascend::Operand(rstd.data(), ascend::ACL_FLOAT, {rstd.rows(), rstd.cols(), 1}, {rstd.stride(), 1, 1});
  }

  template <class T>
  static void gradients(D& dev, View<D, const T> x, View<D, const Accum<T>> weight, View<D, const Accum<T>> rstd,
                        View<D, const T> dy, View<D, T> dx, View<D, float> dw) {
    const Index groups = x.cols() / weight.cols();
    ascend::launch(dev, dev.toolkit().operators.rms_norm_grad, ascend::heads(ascend::aligned(dev, dy), groups),
                   ascend::heads(ascend::aligned(dev, x), groups), statistics(ascend::aligned(dev, rstd)),
                   ascend::vector(weight), ascend::heads(dx, groups), ascend::vector(dw));
  }
};

}  // namespace lora::kernel
