#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// What one AdamW step needs besides the tensors.
struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< of clipping
  Index step = 1;             ///< t, from 1
};

template <class D>
struct AdamW;

template <class D, class T>
concept HasAdamW = requires(D& dev, AdamWStep step, View<D, const Accum<T>> g, View<D, Accum<T>> w) {
  AdamW<D>::run(dev, step, g, w, w, w);
};

/// g = gradient_scale · grad;  w −= lr · weight_decay · w;  m = β₁ m + (1 − β₁) g;  v = β₂ v + (1 − β₂) g²
/// w −= lr / (1 − β₁ᵗ) · m / (√(v / (1 − β₂ᵗ)) + ε)
/// Shapes   all alike and contiguous; grad may be strided
/// Writes   value, m, v
/// Source   Loshchilov and Hutter 2019, in PyTorch's order of operations
template <class T, class D>
void adamw(D& dev, const AdamWStep& step, ConstView<D, Accum<T>> grad, OutView<D, Accum<T>> value,
           OutView<D, Accum<T>> m, OutView<D, Accum<T>> v) {
  static_assert(HasAdamW<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("adamw", "grad", grad, value.rows(), value.cols());
  expect_shape("adamw", "m", m, value.rows(), value.cols());
  expect_shape("adamw", "v", v, value.rows(), value.cols());
  const ProfileScope span(dev, "optimizer", "adamw", 0, bytes_of(grad) + 2 * bytes_of(value, m, v));
  AdamW<D>::run(dev, step, grad, value, m, v);
}

}  // namespace lora::kernel
