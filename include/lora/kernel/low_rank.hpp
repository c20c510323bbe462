#pragma once

#include <span>

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

template <class D>
struct LowRank;

/// What a projection adds to its output, y += s x aᵀ b, on its way back.
template <class D, class T>
struct LowRankTerm {
  View<D, const T> dy;   ///< (N, O)
  View<D, const T> b;    ///< (R, O): B lies transposed
  View<D, Accum<T>> db;  ///< (R, O)
  double scale = 1;      ///< s
};

template <class D, class T>
concept HasLowRank = requires(D& dev, View<D, const T> x, View<D, T> dh, View<D, Accum<T>> da, LowRankTerm<D, T> term) {
  LowRank<D>::backward(dev, x, term, dh);
  LowRank<D>::gradients(dev, x, x, da, std::span<const LowRankTerm<D, T>>());
};

/// The way back through one projection, given h = s x aᵀ. One call, so that a backend may read dy once for both:
///   dh = s dy bᵀ,   db += hᵀ dy
/// Shapes   h, dh (N, R); the term's as it says
/// Types    db, and all sums, in Accum<T>
/// Writes   dh overwritten; db added to
template <class D, class T>
void low_rank_backward(D& dev, View<D, const T> h, const LowRankTerm<D, T>& term, OutView<D, T> dh) {
  static_assert(HasLowRank<D, T>, "include lora/<backend>/kernels.hpp");
  const Index n = h.rows(), rank = h.cols(), cols = term.dy.cols();
  expect_shape("low_rank_backward", "dy", term.dy, n, cols);
  expect_shape("low_rank_backward", "b", term.b, rank, cols);
  expect_shape("low_rank_backward", "db", term.db, rank, cols);
  expect_shape("low_rank_backward", "dh", dh, n, rank);
  const Span span(profile_of(dev), "low-rank", "low_rank_backward", 4 * count_of(n, cols, rank),
                  bytes_of(term.dy, h, term.b, dh, term.db, term.db));
  LowRank<D>::backward(dev, h, term, dh);
}

/// The gradients of both factors of every projection of x. One call, so that a backend may read x and dy once for all:
///   h_j = s_j x a_jᵀ,   dh_j = s_j dy_j b_jᵀ,   db_j += h_jᵀ dy_j,   da_j += dh_jᵀ x
/// Shapes   x (N, I) · a, da (ΣR, I), the rows of all a_j in the order of `terms` · dy_j (N, O_j) · b, db (R_j, O_j),
///          R_j > 0
/// Types    da, db, and all sums, in Accum<T>; h and dh may be rounded to T
/// Writes   da, db added to
template <class D, class T>
void low_rank_gradients(D& dev, View<D, const T> x, ConstView<D, T> a, OutView<D, Accum<T>> da,
                        std::span<const LowRankTerm<D, T>> terms) {
  static_assert(HasLowRank<D, T>, "include lora/<backend>/kernels.hpp");
  Index rank = 0;
  double flops = 0, bytes = bytes_of(x, a, da, da);
  for (const LowRankTerm<D, T>& term : terms) {
    expect_shape("low_rank_gradients", "dy", term.dy, x.rows(), term.b.cols());
    expect_shape("low_rank_gradients", "db", term.db, term.b.rows(), term.b.cols());
    rank += term.b.rows();
    flops += 4 * count_of(x.rows(), term.b.rows(), x.cols() + term.b.cols());
    bytes += bytes_of(term.dy, term.b, term.db, term.db);
  }
  expect_shape("low_rank_gradients", "a", a, rank, x.cols());
  expect_shape("low_rank_gradients", "da", da, rank, x.cols());
  const Span span(profile_of(dev), "low-rank", "low_rank_gradients", flops, bytes);
  if (x.rows() > 0 && rank > 0) LowRank<D>::gradients(dev, x, a, da, terms);
}

}  // namespace lora::kernel
