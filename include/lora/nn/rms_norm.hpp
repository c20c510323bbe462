#pragma once

#include <utility>

#include "lora/kernel/norm.hpp"
#include "lora/nn/own_tensor.hpp"

namespace lora::nn {

/// kernel::rms_norm with its weight, which is frozen unless it is a parameter, and what is added to that.
template <AnyDevice D, class T>
struct RmsNorm {
  OwnVector<D, T> weight;  // (C)
  double eps = 1e-6;
  double offset = 0;

  bool empty() const { return weight.empty(); }
  bool trains() const { return weight.trains(); }

  /// rstd (N, K) for backward; copy: x again, for a residual sum. Both may be empty.
  void forward(D& dev, View<D, const T> x, View<D, T> y, View<D, Accum<T>> rstd, View<D, T> copy = {}) const {
    kernel::rms_norm(dev, x, weight.view(), eps, y, rstd, copy, offset);
  }
  /// dx is overwritten; it may be dy. The weight's gradient is added to.
  void backward(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, const T> dy, View<D, T> dx) const {
    add_weight_gradient(dev, x, rstd, dy);
    kernel::rms_norm_backward(dev, x, weight.view(), rstd, dy, dx, false, offset);
  }

  /// For y = x + f(norm(x)), when `normed` holds the gradient of norm(x) and dx that of y: completes dx, and overwrites
  /// `normed` with norm(x), which f's parameters need. Where dx is empty, `normed` needs to hold its gradient only if
  /// the weight trains.
  void backward_residual(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, T> normed,
                         View<D, T> dx) const {
    add_weight_gradient(dev, x, rstd, normed);
    if (dx.empty()) return forward(dev, x, normed, {});
    kernel::rms_norm_backward(dev, x, weight.view(), rstd, View<D, const T>(normed), dx, true, normed, eps, offset);
  }

 private:
  void add_weight_gradient(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, const T> dy) const {
    if (trains()) kernel::rms_norm_weight_gradient(dev, x, rstd, dy, weight.param().grad());
  }
};

}  // namespace lora::nn
