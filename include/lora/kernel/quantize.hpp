#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::kernel {

template <class D>
struct Quantize;

template <class D, class T>
concept HasQuantize = requires(D& dev, StoredView<D> w, View<D, T> y) {
  Quantize<D>::widen(dev, w, y);
};

/// y = w decoded to T: copied, converted, or its blocks dequantised and rounded to T once.
/// Shapes   w, y (O, I)
template <class D, class T>
void widen(D& dev, const StoredView<D>& w, View<D, T> y) {
  static_assert(HasQuantize<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("widen", "y", y, w.rows(), w.cols());
  const Span span(profile_of(dev), "quantize", "widen", 0, bytes_of(y) + static_cast<double>(w.bytes()));
  Quantize<D>::widen(dev, w, y);
}

}  // namespace lora::kernel
