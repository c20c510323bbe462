#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

template <class D>
struct LowRank;

template <class D, class T>
concept HasLowRank = requires(D& dev, View<D, const T> x, View<D, T> dh, View<D, Accum<T>> db) {
  LowRank<D>::backward(dev, x, x, x, dh, db);
};

/// The gradients of y = h b on its way back. One call, so that a backend may read dy once for both:
///   dh = dy bᵀ,   db += hᵀ dy
/// Shapes   dy (N, O) · h, dh (N, R) · b, db (R, O)
/// Types    db, and all sums, in Accum<T>
/// Writes   dh overwritten; db added to
template <class D, class T>
void low_rank_backward(D& dev, View<D, const T> dy, ConstView<D, T> h, ConstView<D, T> b, OutView<D, T> dh,
                       OutView<D, Accum<T>> db) {
  static_assert(HasLowRank<D, T>, "include lora/<backend>/kernels.hpp");
  const Index rank = b.rows();
  expect_shape("low_rank_backward", "h", h, dy.rows(), rank);
  expect_shape("low_rank_backward", "b", b, rank, dy.cols());
  expect_shape("low_rank_backward", "dh", dh, dy.rows(), rank);
  expect_shape("low_rank_backward", "db", db, rank, dy.cols());
  const Span span(profile_of(dev), "low-rank", "low_rank_backward", 4 * count_of(dy.rows(), dy.cols(), rank),
                  bytes_of(dy, h, b, dh, db, db));
  LowRank<D>::backward(dev, dy, h, b, dh, db);
}

}  // namespace lora::kernel
