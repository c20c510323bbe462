#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// The function g of a gated unit's gate, z σ(a(z)) either way:
///   silu         a(z) = z
///   gelu_tanh    a(z) = 2 √(2/π) (z + 0.044715 z³),   which makes it ½ z (1 + tanh(½ a(z)))
/// Source   Hendrycks and Gimpel 2016
enum class Gate { silu, gelu_tanh };

template <class D>
struct GatedUnit;

template <class D, class T>
concept HasGatedUnit = requires(D& dev, View<D, const T> x, View<D, T> y) {
  GatedUnit<D>::run(dev, Gate::silu, x, y);
  GatedUnit<D>::backward(dev, Gate::silu, x, x, y, y);
};

/// Whether a backend writes d_gate_up over gate_up without memory of its own. Modules then spare theirs.
template <class D>
constexpr bool gated_unit_backward_in_place = true;

/// y = g(gate) ∘ up
/// Shapes   gate_up (N, 2F), gate in the left half, up in the right · y (N, F)
/// Writes   y
/// Source   Shazeer 2020, SwiGLU and GEGLU
template <class D, class T>
void gated_unit(D& dev, Gate gate, View<D, const T> gate_up, OutView<D, T> y) {
  static_assert(HasGatedUnit<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("gated_unit", "gate_up", gate_up, y.rows(), 2 * y.cols());
  const ProfileScope span(dev, "activation", "gated_unit", 0, bytes_of(gate_up, y));
  GatedUnit<D>::run(dev, gate, gate_up, y);
}

/// d_gate = dy ∘ up ∘ σ(a) (1 + gate a'(gate) (1 − σ(a))),   d_up = dy ∘ g(gate)
/// Shapes   gate_up, d_gate_up (N, 2F) · dy, y (N, F)
/// Writes   d_gate_up; it may be gate_up. y: gated_unit's output, recomputed in the same pass; it may be dy, or empty
///          if it is not needed
template <class D, class T>
void gated_unit_backward(D& dev, Gate gate, View<D, const T> gate_up, ConstView<D, T> dy, OutView<D, T> d_gate_up,
                         OutView<D, T> y = {}) {
  static_assert(HasGatedUnit<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("gated_unit_backward", "gate_up", gate_up, dy.rows(), 2 * dy.cols());
  expect_shape("gated_unit_backward", "d_gate_up", d_gate_up, dy.rows(), 2 * dy.cols());
  if (!y.empty()) expect_shape("gated_unit_backward", "y", y, dy.rows(), dy.cols());
  const ProfileScope span(dev, "activation", "gated_unit_backward", 0, bytes_of(gate_up, dy, d_gate_up, y));
  GatedUnit<D>::backward(dev, gate, gate_up, dy, d_gate_up, y);
}

}  // namespace lora::kernel
