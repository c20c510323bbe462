#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::kernel {

/// Products of the few rows of a decoding step, which read a weight once, as it is stored. A backend that has them
/// specialises it with
///   static void run(D&, View<D,const T> x, StoredView<D> w, View<D,Accum<T>> y, bool accumulate)
template <class D>
struct RowProduct;

/// Whether device D has them for T; elsewhere decoding uses products of any shape.
template <class D, class T>
concept HasRowProduct = requires(D& dev, View<D, const T> x, StoredView<D> w, View<D, Accum<T>> y) {
  RowProduct<D>::run(dev, x, w, y, false);
};

/// y = x wᵀ  (+ y if accumulate)
/// Shapes   x (N, I) · w (O, I) → y (N, O)
/// Types    w stored as any number; sums in Accum<T>. Against blocks of integers (Q8_0 and the like) x is rounded to 8
///          bits, with a scale for each 32 values, so that products are those of integers
/// Bits     a row's do not depend on other rows, nor on the number of threads
/// Throws   FormatError where w is stored as integers without a scale
template <class D, class T>
  requires HasRowProduct<D, T>
void row_product(D& dev, View<D, const T> x, const StoredView<D>& w, View<D, Accum<T>> y, bool accumulate = false) {
  expect_shape("row_product", "x", x, x.rows(), w.cols());
  expect_shape("row_product", "y", y, x.rows(), w.rows());
  const Span span(dev, "gemm", "row_product", 2 * count_of(x.rows(), w.rows(), w.cols()),
                  static_cast<double>(w.bytes()) + bytes_of(x, y) + (accumulate ? bytes_of(y) : 0));
  RowProduct<D>::run(dev, x, w, y, accumulate);
}

}  // namespace lora::kernel
