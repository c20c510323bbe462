#pragma once

#include <concepts>

#include "lora/kernel/cost.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::kernel {

template <class D>
struct Quantize;

template <class D, class T>
concept HasQuantize = requires(D& dev, StoredView<D> w, View<D, T> y, View<D, Accum<T>> wide) {
  Quantize<D>::decode(dev, w, y);
  Quantize<D>::decode_with_update(dev, w, View<D, const Accum<T>>(wide), View<D, const Accum<T>>(wide), wide);
};

/// y = w decoded to T: copied, converted, or its blocks dequantized and rounded to T once.
/// Shapes   w, y (O, I)
template <class D, class T>
void decode(D& dev, const StoredView<D>& w, View<D, T> y) {
  static_assert(HasQuantize<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("decode", "y", y, w.rows(), w.cols());
  const ProfileScope span(dev, "quantize", "decode", 0, bytes_of(y) + static_cast<double>(w.bytes()));
  Quantize<D>::decode(dev, w, y);
}

/// y = w decoded, plus bᵀ a. In one pass, so that y is written once.
/// Shapes   w, y (O, I) · b (R, O) · a (R, I)
/// Types    w stored as any number; b, a, y and sums in A
/// Throws   FormatError where w is stored as integers
template <class D, class A>
  requires(std::same_as<A, Accum<A>>)
void decode_with_update(D& dev, const StoredView<D>& w, ConstView<D, A> b, ConstView<D, A> a, View<D, A> y) {
  static_assert(HasQuantize<D, A>, "include lora/<backend>/kernels.hpp");
  expect_shape("decode_with_update", "y", y, w.rows(), w.cols());
  expect_shape("decode_with_update", "b", b, a.rows(), w.rows());
  expect_shape("decode_with_update", "a", a, a.rows(), w.cols());
  const ProfileScope span(dev, "quantize", "decode_with_update", 2 * count_of(w.rows(), w.cols(), a.rows()),
                          bytes_of(y, a, b) + static_cast<double>(w.bytes()));
  Quantize<D>::decode_with_update(dev, w, b, a, y);
}

}  // namespace lora::kernel
