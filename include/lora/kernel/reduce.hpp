#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

template <class D>
struct Reduce;

template <class D, class T>
concept HasReduce = requires(D& dev, View<D, const Accum<T>> x, View<D, typename D::Sum> out, View<D, const T> y,
                             View<D, Accum<T>> sums) {
  Reduce<D>::column_sums(dev, y, sums);
  Reduce<D>::block_sums_of_squares(dev, x, out);
  Reduce<D>::sum(dev, x, out);
};

/// Elements that are added up together in sums that must not depend on how their operands are cut.
inline constexpr Index sum_block = 1024;

/// out_b = Σ x² over the block of elements [1024 b, 1024 (b + 1)), summed in D::Sum in a fixed order: the same
/// however blocks are dealt out, and for every number of threads. Shapes   x (1, n) · out (1, ⌈n / 1024⌉)
template <class D, class T>
void block_sums_of_squares(D& dev, View<D, T> x, OutView<D, typename D::Sum> out) {
  expect_shape("block_sums_of_squares", "x", x, 1, x.size());
  expect_shape("block_sums_of_squares", "out", out, 1, (x.cols() + sum_block - 1) / sum_block);
  const ProfileScope span(dev, "reduce", "block_sums_of_squares", 0, bytes_of(x));
  Reduce<D>::block_sums_of_squares(dev, View<D, const T>(x), out);
}

/// out[0] += Σ x, summed in D::Sum in an order that does not depend on the number of threads. Shapes   out (1)
template <class D, class T>
void sum(D& dev, View<D, T> x, OutView<D, typename D::Sum> out) {
  expect_shape("sum", "out", out, 1, 1);
  const ProfileScope span(dev, "reduce", "sum", 0, bytes_of(x));
  Reduce<D>::sum(dev, View<D, const T>(x), out);
}

/// out_j += Σ_i x_ij, as the gradient of a bias, added up in an order that depends on the number of rows alone.
/// Shapes   x (N, O) · out (O)
template <class D, class T>
void column_sums(D& dev, View<D, const T> x, OutView<D, Accum<T>> out) {
  static_assert(HasReduce<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("column_sums", "out", out, 1, x.cols());
  const ProfileScope span(dev, "reduce", "column_sums", 0, bytes_of(x));
  Reduce<D>::column_sums(dev, x, out);
}

}  // namespace lora::kernel
