#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// Softmax cross entropy over a vocabulary that is visited block by block, so that (N, V) logits never exist in
/// Accum<T>. Per row i and block b of columns [first, first + v):
///   m_ib = max_j l_ij,   s_ib = Σ_j exp(l_ij − m_ib),   e_ij = exp(l_ij − m_ib), rounded to T
/// and over all blocks
///   lse_i = log Σ_b s_ib exp(m_ib),   loss_i = lse_i − l_i,label,   dl_ij = scale · (e_ij exp(m_ib − lse_i) − [j =
///   label])
/// A relative rounding of e is a relative rounding of the gradient: storing logits instead would lose |l| times more.
template <class D>
struct Softmax;

template <class D, class T>
concept HasSoftmax = requires(D& dev, View<D, const Accum<T>> logits, View<D, const std::int32_t> labels,
                              View<D, Accum<T>> out, View<D, T> e) {
  Softmax<D>::block(dev, logits, labels, Index{}, out, out, out, e);
  Softmax<D>::finish(dev, logits, logits, logits, out, out, out);
  Softmax<D>::gradient(dev, e, logits, logits, labels, Index{}, 1.0);
};

/// Shapes   logits (n, v) · labels (n), columns of the whole vocabulary · max, sum (n) · target (n) · e (n, v)
/// Writes   max, sum and e (empty: not wanted); target only for rows whose label lies in the block
template <class T, class D>
void softmax_block(D& dev, ConstView<D, Accum<T>> logits, ConstView<D, std::int32_t> labels, Index first,
                   OutView<D, Accum<T>> max, OutView<D, Accum<T>> sum, OutView<D, Accum<T>> target, OutView<D, T> e) {
  static_assert(HasSoftmax<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("softmax_block", "labels", labels, 1, logits.rows());
  expect_shape("softmax_block", "max", max, 1, logits.rows());
  expect_shape("softmax_block", "sum", sum, 1, logits.rows());
  expect_shape("softmax_block", "target", target, 1, logits.rows());
  if (!e.empty()) expect_shape("softmax_block", "e", e, logits.rows(), logits.cols());
  const Span span(profile_of(dev), "loss", "softmax_block", 0, bytes_of(logits, e));
  Softmax<D>::block(dev, logits, labels, first, max, sum, target, e);
}

/// Shapes   max, sum (blocks, n) · target, lse, loss, top (n)
/// Writes   lse; loss = lse − target; top = the largest logit of the row
template <class T, class D>
void softmax_finish(D& dev, ConstView<D, Accum<T>> max, ConstView<D, Accum<T>> sum, ConstView<D, Accum<T>> target,
                    OutView<D, Accum<T>> lse, OutView<D, Accum<T>> loss, OutView<D, Accum<T>> top) {
  static_assert(HasSoftmax<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("softmax_finish", "sum", sum, max.rows(), max.cols());
  expect_shape("softmax_finish", "target", target, 1, max.cols());
  expect_shape("softmax_finish", "lse", lse, 1, max.cols());
  expect_shape("softmax_finish", "loss", loss, 1, max.cols());
  expect_shape("softmax_finish", "top", top, 1, max.cols());
  const Span span(profile_of(dev), "loss", "softmax_finish", 0, bytes_of(max, sum));
  Softmax<D>::finish(dev, max, sum, target, lse, loss, top);
}

/// Shapes   e (n, v) · max, lse (n) · labels (n)
/// Writes   e becomes the gradient of scale · Σ loss with respect to the block's logits
template <class D, class T>
void softmax_gradient(D& dev, View<D, T> e, ConstView<D, Accum<T>> max, ConstView<D, Accum<T>> lse,
                      ConstView<D, std::int32_t> labels, Index first, double scale) {
  static_assert(HasSoftmax<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("softmax_gradient", "max", max, 1, e.rows());
  expect_shape("softmax_gradient", "lse", lse, 1, e.rows());
  expect_shape("softmax_gradient", "labels", labels, 1, e.rows());
  const Span span(profile_of(dev), "loss", "softmax_gradient", 0, 2 * bytes_of(e));
  Softmax<D>::gradient(dev, e, max, lse, labels, first, scale);
}

}  // namespace lora::kernel
