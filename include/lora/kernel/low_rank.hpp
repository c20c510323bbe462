#pragma once

#include <span>
#include <type_traits>
#include <utility>

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
using LowRankTerms = std::span<const std::type_identity_t<LowRankTerm<D, T>>>;

template <class D, class T>
concept HasLowRank = requires(D& dev, View<D, const T> x, View<D, T> dh, View<D, Accum<T>> da) {
  LowRank<D>::backward(dev, x, LowRankTerms<D, T>(), dh);
  LowRank<D>::gradients(dev, x, x, da, LowRankTerms<D, T>());
};

namespace detail {

/// ΣR of the terms, whose shapes must agree with n rows.
template <class D, class T>
Index rank_of(const char* kernel, Index n, LowRankTerms<D, T> terms) {
  Index rank = 0;
  for (const auto& term : terms) {
    expect_shape(kernel, "dy", term.dy, n, term.b.cols());
    expect_shape(kernel, "db", term.db, term.b.rows(), term.b.cols());
    rank += term.b.rows();
  }
  return rank;
}

/// FLOPs and bytes of dh and db.
template <class D, class T>
std::pair<double, double> cost_of(LowRankTerms<D, T> terms) {
  double flops = 0, bytes = 0;
  for (const auto& term : terms) {
    flops += 4 * count_of(term.dy.rows(), term.b.rows(), term.b.cols());
    bytes += bytes_of(term.dy, term.b, term.db, term.db);
  }
  return {flops, bytes};
}

}  // namespace detail

/// The gradients of every projection's second factor, and of h, given h_j = s_j x a_jᵀ. One call, so that a backend may
/// read dy once for both:
///   dh_j = s_j dy_j b_jᵀ,   db_j += h_jᵀ dy_j
/// Shapes   h, dh (N, ΣR), the columns of all h_j in the order of `terms`; dy_j (N, O_j) · b_j, db_j (R_j, O_j)
/// Types    db, and all sums, in Accum<T>
/// Writes   dh overwritten; db added to
template <class D, class T>
void low_rank_backward(D& dev, View<D, const T> h, LowRankTerms<D, T> terms, OutView<D, T> dh) {
  static_assert(HasLowRank<D, T>, "include lora/<backend>/kernels.hpp");
  const Index rank = detail::rank_of<D, T>("low_rank_backward", h.rows(), terms);
  expect_shape("low_rank_backward", "h", h, h.rows(), rank);
  expect_shape("low_rank_backward", "dh", dh, h.rows(), rank);
  const auto [flops, bytes] = detail::cost_of<D, T>(terms);
  const ProfileScope span(dev, "low-rank", "low_rank_backward", flops, bytes + bytes_of(h, dh));
  if (rank > 0) LowRank<D>::backward(dev, h, terms, dh);
}

/// The gradients of both factors of every projection of x. One call, so that a backend may read x and dy once for all:
///   h_j = s_j x a_jᵀ,   dh_j = s_j dy_j b_jᵀ,   db_j += h_jᵀ dy_j,   da_j += dh_jᵀ x
/// Shapes   x (N, I) · a, da (ΣR, I), the rows of all a_j in the order of `terms`; dy_j (N, O_j) · b_j, db_j (R_j, O_j)
/// Types    da, db, and all sums, in Accum<T>; h and dh may be rounded to T
/// Writes   da, db added to
template <class D, class T>
void low_rank_gradients(D& dev, View<D, const T> x, ConstView<D, T> a, OutView<D, Accum<T>> da,
                        LowRankTerms<D, T> terms) {
  static_assert(HasLowRank<D, T>, "include lora/<backend>/kernels.hpp");
  const Index rank = detail::rank_of<D, T>("low_rank_gradients", x.rows(), terms);
  expect_shape("low_rank_gradients", "a", a, rank, x.cols());
  expect_shape("low_rank_gradients", "da", da, rank, x.cols());
  const auto [flops, bytes] = detail::cost_of<D, T>(terms);
  const ProfileScope span(dev, "low-rank", "low_rank_gradients", flops + 4 * count_of(x.rows(), rank, x.cols()),
                          bytes + bytes_of(x, a, da, da));
  if (rank > 0) LowRank<D>::gradients(dev, x, a, da, terms);
}

}  // namespace lora::kernel
