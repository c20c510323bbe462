#pragma once

#include <utility>

#include "lora/kernel/norm.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// kernel::rms_norm with a frozen weight. The weight is small, so it is kept in Accum<T>.
template <AnyDevice D, class T>
struct RmsNorm {
  Tensor<D, Accum<T>> weight;  // (C)
  double eps = 1e-6;

  bool empty() const { return weight.empty(); }

  /// rstd (N, K) for backward; copy: x again, for a residual sum. Both may be empty.
  void forward(D& dev, View<D, const T> x, View<D, T> y, View<D, Accum<T>> rstd, View<D, T> copy = {}) const {
    kernel::rms_norm(dev, x, weight.view(), eps, y, rstd, copy);
  }
  /// dx is overwritten; it may be dy.
  void backward(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, const T> dy, View<D, T> dx) const {
    kernel::rms_norm_backward(dev, x, weight.view(), rstd, dy, dx, false);
  }

  /// For y = x + f(norm(x)), when `normed` holds the gradient of norm(x) and dx that of y: completes dx, and overwrites
  /// `normed` with norm(x), which f's parameters need. Where dx is empty, only the latter.
  void backward_residual(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, T> normed,
                         View<D, T> dx) const {
    if (dx.empty()) return forward(dev, x, normed, {});
    kernel::rms_norm_backward(dev, x, weight.view(), rstd, View<D, const T>(normed), dx, true, normed);
  }
};

}  // namespace lora::nn
