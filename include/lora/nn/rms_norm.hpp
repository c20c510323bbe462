#pragma once

#include <utility>

#include "lora/kernel/norm.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// kernel::rms_norm with a frozen weight. The weight is small, so that it is kept in Accum<T>.
template <AnyDevice D, class T>
struct RmsNorm {
  Tensor<D, Accum<T>> weight;  // (C)
  double eps = 1e-6;

  bool empty() const { return weight.empty(); }

  /// rstd (N, K) for backward and a copy of x, empty if nobody wants them.
  void forward(D& dev, View<D, const T> x, View<D, T> y, View<D, Accum<T>> rstd, View<D, T> copy = {}) const {
    kernel::rms_norm(dev, x, weight.view(), eps, y, rstd, copy);
  }
  /// y: forward's output again, empty if nobody wants it; it may be dy.
  void backward(D& dev, View<D, const T> x, View<D, const Accum<T>> rstd, View<D, const T> dy, View<D, T> dx,
                bool accumulate, View<D, T> y = {}) const {
    kernel::rms_norm_backward(dev, x, weight.view(), rstd, dy, dx, accumulate, y);
  }
};

}  // namespace lora::nn
