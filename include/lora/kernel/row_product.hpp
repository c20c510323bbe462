#pragma once

#include <span>

#include "lora/kernel/cost.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::kernel {

/// One of the weights that rows are multiplied by, and where its products go.
template <class D, class A>
struct RowProductTerm {
  StoredView<D> w;
  View<D, A> y;
};

template <class D, class A>
using RowProductTerms = std::span<const RowProductTerm<D, A>>;

/// Rows that a low-rank factor takes to where they are added, scaled.
template <class D, class A>
struct RowUpdateTerm {
  View<D, const A> h;
  A scale;
  StoredView<D> b;
  View<D, A> y;
};

template <class D, class A>
using RowUpdateTerms = std::span<const RowUpdateTerm<D, A>>;

/// Products of the few rows of a decoding step, which read weights once, as they are stored. A backend that has them
/// specializes it with
///   static void run(D&, View<D,const T> x, RowProductTerms<D,Accum<T>> terms, bool accumulate)
///   static void update(D&, RowUpdateTerms<D,Accum<T>> terms)
template <class D>
struct RowProduct;

/// Whether device D has them for T; elsewhere decoding uses products of any shape.
template <class D, class T>
concept HasRowProduct = requires(D& dev, View<D, const T> x, RowProductTerms<D, Accum<T>> terms) {
  RowProduct<D>::run(dev, x, terms, false);
};

/// y_j = x w_jᵀ  (+ y_j if accumulate)
/// Shapes   x (N, I) · w_j (O_j, I) → y_j (N, O_j)
/// Types    w_j stored as any number; sums in Accum<T>. Against blocks of integers (Q8_0 and the like) x is rounded
///          to 8 bits, with a scale for each 32 values, so that products are those of integers
/// Bits     a row's do not depend on other rows, nor on the number of threads
/// Throws   FormatError where a w is stored as integers without a scale
template <class D, class T>
  requires HasRowProduct<D, T>
void row_products(D& dev, View<D, const T> x, RowProductTerms<D, Accum<T>> terms, bool accumulate = false) {
  double flops = 0, bytes = bytes_of(x);
  for (const auto& [w, y] : terms) {
    expect_shape("row_product", "x", x, x.rows(), w.cols());
    expect_shape("row_product", "y", y, x.rows(), w.rows());
    flops += 2 * count_of(x.rows(), w.rows(), w.cols());
    bytes += static_cast<double>(w.bytes()) + (accumulate ? 2 : 1) * bytes_of(y);
  }
  const ProfileScope span(dev, "gemm", "row_product", flops, bytes);
  RowProduct<D>::run(dev, x, terms, accumulate);
}

/// The same by one weight.
template <class D, class T>
  requires HasRowProduct<D, T>
void row_product(D& dev, View<D, const T> x, const StoredView<D>& w, View<D, Accum<T>> y, bool accumulate = false) {
  const RowProductTerm<D, Accum<T>> term{w, y};
  row_products<D, T>(dev, x, {&term, 1}, accumulate);
}

/// y_j += s_j h_j b_j
/// Shapes   h_j (N, R_j) · b_j (R_j, O_j) → y_j (N, O_j)
/// Types    b_j stored as floating point numbers of 32 or 16 bits
/// Bits     a row's do not depend on other rows, nor on the number of threads
/// Throws   FormatError where a b is stored otherwise
template <class D, class A>
void row_updates(D& dev, RowUpdateTerms<D, A> terms) {
  double flops = 0, bytes = 0;
  for (const auto& [h, scale, b, y] : terms) {
    expect_shape("row_update", "h", h, y.rows(), b.rows());
    expect_shape("row_update", "y", y, h.rows(), b.cols());
    flops += 2 * count_of(h.rows(), b.rows(), b.cols());
    bytes += bytes_of(h) + static_cast<double>(b.bytes()) + 2 * bytes_of(y);
  }
  const ProfileScope span(dev, "low-rank", "row_update", flops, bytes);
  RowProduct<D>::update(dev, terms);
}

}  // namespace lora::kernel
