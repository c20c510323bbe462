#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

template <class D>
struct RmsNorm;

template <class D, class T>
concept HasRmsNorm =
    requires(D& dev, View<D, const T> x, View<D, const Accum<T>> weight, View<D, T> y, View<D, Accum<T>> rstd) {
      RmsNorm<D>::run(dev, x, weight, 0.0, 1e-6, y, rstd, y);
      RmsNorm<D>::backward(dev, x, weight, 0.0, View<D, const Accum<T>>(rstd), x, y, true, y, 1e-6);
      RmsNorm<D>::weight_gradient(dev, x, View<D, const Accum<T>>(rstd), x, rstd);
    };

/// y = x · rstd ∘ (offset + w),   rstd = (mean(x²) + eps)^(−½),   over each group of C adjacent columns
/// Shapes   x, y, copy (N, K·C) · weight (C) · rstd (N, K); K = 1 for a layer's norm, K = heads for q and k norms
/// Types    sums in Accum<T>; y rounded to T once
/// Writes   y (may be x), rstd (empty: not needed), copy: x for the residual sum, read once for both (empty: not
///          needed)
/// Source   Zhang and Sennrich 2019; Gemma's weights are stored less an offset of 1
template <class D, class T>
void rms_norm(D& dev, View<D, const T> x, ConstView<D, Accum<T>> weight, double eps, OutView<D, T> y,
              OutView<D, Accum<T>> rstd, OutView<D, T> copy = {}, double offset = 0) {
  static_assert(HasRmsNorm<D, T>, "include lora/<backend>/kernels.hpp");
  if (weight.cols() == 0 || x.cols() % weight.cols() != 0)
    fail<ShapeError>("[rms_norm] x is ", to_string(x.shape()), " but the weight has ", weight.cols(), " columns");
  expect_shape("rms_norm", "y", y, x.rows(), x.cols());
  if (!rstd.empty()) expect_shape("rms_norm", "rstd", rstd, x.rows(), x.cols() / weight.cols());
  if (!copy.empty()) expect_shape("rms_norm", "copy", copy, x.rows(), x.cols());
  const ProfileScope span(dev, "norm", "rms_norm", 0, bytes_of(x, y, copy));
  RmsNorm<D>::run(dev, x, weight, offset, eps, y, rstd, copy);
}

/// dx = rstd · (v ∘ dy − x · rstd² · mean(v ∘ dy ∘ x))   (+ dx if accumulate), per group, with v = offset + w
/// Shapes   as in rms_norm; dy, dx, y as x
/// Writes   dx overwritten, or added to; it may be dy. y: rms_norm's output with its eps, recomputed in the same pass
///          (empty: not needed); it may be dy, but not dx
template <class D, class T>
void rms_norm_backward(D& dev, View<D, const T> x, ConstView<D, Accum<T>> weight, ConstView<D, Accum<T>> rstd,
                       ConstView<D, T> dy, OutView<D, T> dx, bool accumulate, OutView<D, T> y, double eps,
                       double offset = 0) {
  static_assert(HasRmsNorm<D, T>, "include lora/<backend>/kernels.hpp");
  if (weight.cols() == 0 || x.cols() % weight.cols() != 0)
    fail<ShapeError>("[rms_norm_backward] x is ", to_string(x.shape()), " but the weight has ", weight.cols(),
                     " columns");
  expect_shape("rms_norm_backward", "rstd", rstd, x.rows(), x.cols() / weight.cols());
  expect_shape("rms_norm_backward", "dy", dy, x.rows(), x.cols());
  expect_shape("rms_norm_backward", "dx", dx, x.rows(), x.cols());
  if (!y.empty()) expect_shape("rms_norm_backward", "y", y, x.rows(), x.cols());
  const ProfileScope span(dev, "norm", "rms_norm_backward", 0,
                          bytes_of(x, dy, dx, y) + (accumulate ? bytes_of(dx) : 0));
  RmsNorm<D>::backward(dev, x, weight, offset, rstd, dy, dx, accumulate, y, eps);
}

/// The same without y.
template <class D, class T>
void rms_norm_backward(D& dev, View<D, const T> x, ConstView<D, Accum<T>> weight, ConstView<D, Accum<T>> rstd,
                       ConstView<D, T> dy, OutView<D, T> dx, bool accumulate, double offset = 0) {
  rms_norm_backward<D, T>(dev, x, weight, rstd, dy, dx, accumulate, {}, 0, offset);
}

/// dw_j += Σ dy_ij · x_ij · rstd_i over all rows and groups, added up in an order that depends on their number alone.
/// Shapes   as in rms_norm; dy as x, dw as weight
/// Writes   dw, added to
template <class D, class T>
void rms_norm_weight_gradient(D& dev, View<D, const T> x, ConstView<D, Accum<T>> rstd, ConstView<D, T> dy,
                              OutView<D, Accum<T>> dw) {
  static_assert(HasRmsNorm<D, T>, "include lora/<backend>/kernels.hpp");
  if (dw.cols() == 0 || x.cols() % dw.cols() != 0)
    fail<ShapeError>("[rms_norm_weight_gradient] x is ", to_string(x.shape()), " but the weight has ", dw.cols(),
                     " columns");
  expect_shape("rms_norm_weight_gradient", "rstd", rstd, x.rows(), x.cols() / dw.cols());
  expect_shape("rms_norm_weight_gradient", "dy", dy, x.rows(), x.cols());
  expect_shape("rms_norm_weight_gradient", "dw", dw, 1, dw.cols());
  const ProfileScope span(dev, "norm", "rms_norm_weight_gradient", 0, bytes_of(x, dy));
  RmsNorm<D>::weight_gradient(dev, x, rstd, dy, dw);
}

}  // namespace lora::kernel
