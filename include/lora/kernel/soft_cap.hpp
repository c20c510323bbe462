#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

template <class D>
struct SoftCap;

template <class D, class T>
concept HasSoftCap = requires(D& dev, View<D, Accum<T>> x) { SoftCap<D>::run(dev, x, 1.0); };

/// x = cap · tanh(x / cap), in place.
/// Shapes   x (N, V)
/// Source   Bello et al. 2016; Gemma Team 2024, Gemma 2
template <class T, class D>
void soft_cap(D& dev, View<D, Accum<T>> x, double cap) {
  static_assert(HasSoftCap<D, T>, "include lora/<backend>/kernels.hpp");
  const ProfileScope span(dev, "loss", "soft_cap", 0, 2 * bytes_of(x));
  SoftCap<D>::run(dev, x, cap);
}

}  // namespace lora::kernel
