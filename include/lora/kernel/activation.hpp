#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

template <class D>
struct SwiGlu;

template <class D, class T>
concept HasSwiGlu = requires(D& dev, View<D, const T> x, View<D, T> y) {
  SwiGlu<D>::run(dev, x, y);
  SwiGlu<D>::backward(dev, x, x, y, y);
};

/// Whether a backend writes d_gate_up over gate_up without memory of its own. Modules then spare theirs.
template <class D>
constexpr bool swiglu_backward_in_place = true;

/// y = silu(gate) ∘ up,   silu(z) = z / (1 + e^(−z))
/// Shapes   gate_up (N, 2F), gate in the left half, up in the right · y (N, F)
/// Writes   y
/// Source   Shazeer 2020
template <class D, class T>
void swiglu(D& dev, View<D, const T> gate_up, OutView<D, T> y) {
  static_assert(HasSwiGlu<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("swiglu", "gate_up", gate_up, y.rows(), 2 * y.cols());
  const Span span(dev, "activation", "swiglu", 0, bytes_of(gate_up, y));
  SwiGlu<D>::run(dev, gate_up, y);
}

/// d_gate = dy ∘ up ∘ σ(gate) (1 + gate (1 − σ(gate))),   d_up = dy ∘ silu(gate)
/// Shapes   gate_up, d_gate_up (N, 2F) · dy, y (N, F)
/// Writes   d_gate_up; it may be gate_up. y: swiglu's output, recomputed in the same pass; it may be dy, or empty
///          if it is not needed
template <class D, class T>
void swiglu_backward(D& dev, View<D, const T> gate_up, ConstView<D, T> dy, OutView<D, T> d_gate_up,
                     OutView<D, T> y = {}) {
  static_assert(HasSwiGlu<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("swiglu_backward", "gate_up", gate_up, dy.rows(), 2 * dy.cols());
  expect_shape("swiglu_backward", "d_gate_up", d_gate_up, dy.rows(), 2 * dy.cols());
  if (!y.empty()) expect_shape("swiglu_backward", "y", y, dy.rows(), dy.cols());
  const Span span(dev, "activation", "swiglu_backward", 0, bytes_of(gate_up, dy, d_gate_up, y));
  SwiGlu<D>::backward(dev, gate_up, dy, d_gate_up, y);
}

}  // namespace lora::kernel
