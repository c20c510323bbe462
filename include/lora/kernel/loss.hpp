#pragma once

#include <cstdint>

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// Softmax cross entropy over a vocabulary that is visited in blocks of columns, the first of them first, with the
/// gradient of x = what the logits l = x Wᵀ are formed of: neither logits nor exponentials (N, V) ever exist. Per row
/// i, over the columns j seen so far:
///   top_i = max_j l_ij,   e_ij = exp(l_ij − top_i),   others_i = Σ_{j ≠ label} e_ij,   sums_i = Σ_{j ≠ label} e_ij W_j
/// where a new top shrinks others and sums, and at the end, with s_i = others_i + exp(l_i,label − top_i)
///   loss_i = top_i + log s_i − l_i,label,   dx_i = scale / s_i · (sums_i − others_i W_label)
/// The label is left out of the sums since p − 1 = −others / s keeps its digits where p is near 1. Where e is rounded
/// to T, dx takes others as the sum of rounded e, so that what all rows of W have in common cancels, as it does without
/// rounding. Source   Milakov and Gimelshein 2018 for the running top
/// With a cap > 0 the logits are those behind soft_cap, and gradients those of what it was given: with the slope
/// c_ij = 1 − (l_ij / cap)², sums_i = Σ_{j ≠ label} e_ij c_ij W_j and dx_i = scale / s_i · (sums_i − others_i c_i,label
/// W_label).
template <class D>
struct Softmax;

template <class D, class T>
concept HasSoftmax = requires(D& dev, View<D, Accum<T>> logits, View<D, const Accum<T>> in,
                              View<D, const std::int32_t> labels, View<D, Accum<T>> out, View<D, T> e) {
  Softmax<D>::block(dev, logits, labels, Index{}, out, out, out, e, out, out, 0.0);
  Softmax<D>::finish(dev, in, in, in, out);
  Softmax<D>::gradient(dev, in, in, in, in, View<D, const T>(e), 1.0, in, e, 0.0);
  Softmax<D>::logit_gradient(dev, in, labels, Index{}, in, in, in, 1.0, e, 0.0);
};

/// Shapes   logits, e (n, v), the columns [first, first + v) · labels (n), of the whole vocabulary ·
///          top, others, target, rounded (n) · sums (n, E)
/// Writes   top and others: set by the block with first = 0, updated by those after it
///          rounded: like others, but the sum of e after rounding to T; empty if not wanted
///          target: the label's logit, in rows whose label lies in this block
///          e: rounded to T, and 0 at the label; with a cap e ∘ c; empty if not wanted; it may share memory with logits
///          sums: scaled down where top has grown; the caller then adds e W; empty if not wanted
///          logits: overwritten
template <class T, class D>
void softmax_block(D& dev, OutView<D, Accum<T>> logits, ConstView<D, std::int32_t> labels, Index first,
                   OutView<D, Accum<T>> top, OutView<D, Accum<T>> others, OutView<D, Accum<T>> target, OutView<D, T> e,
                   OutView<D, Accum<T>> rounded, OutView<D, Accum<T>> sums, double cap = 0) {
  static_assert(HasSoftmax<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("softmax_block", "labels", labels, 1, logits.rows());
  expect_shape("softmax_block", "top", top, 1, logits.rows());
  expect_shape("softmax_block", "others", others, 1, logits.rows());
  expect_shape("softmax_block", "target", target, 1, logits.rows());
  if (!e.empty() || !rounded.empty()) expect_shape("softmax_block", "e", e, logits.rows(), logits.cols());
  if (!rounded.empty()) expect_shape("softmax_block", "rounded", rounded, 1, logits.rows());
  if (!sums.empty()) expect_shape("softmax_block", "sums", sums, logits.rows(), sums.cols());
  const ProfileScope span(dev, "loss", "softmax_block", 0, bytes_of(logits, e));
  Softmax<D>::block(dev, logits, labels, first, top, others, target, e, rounded, sums, cap);
}

/// Shapes   top, others, target, loss (n)
/// Writes   loss
template <class T, class D>
void softmax_finish(D& dev, ConstView<D, Accum<T>> top, ConstView<D, Accum<T>> others, ConstView<D, Accum<T>> target,
                    OutView<D, Accum<T>> loss) {
  static_assert(HasSoftmax<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("softmax_finish", "others", others, 1, top.cols());
  expect_shape("softmax_finish", "target", target, 1, top.cols());
  expect_shape("softmax_finish", "loss", loss, 1, top.cols());
  const ProfileScope span(dev, "loss", "softmax_finish", 0, 2 * bytes_of(top, others));
  Softmax<D>::finish(dev, top, others, target, loss);
}

/// Shapes   top, others, target, rounded (n) · w_label, sums, dx (n, E): row i of w_label is row label_i of W
/// Writes   dx = the gradient of scale · Σ loss; it may be sums
template <class T, class D>
void softmax_gradient(D& dev, ConstView<D, Accum<T>> top, ConstView<D, Accum<T>> others, ConstView<D, Accum<T>> target,
                      ConstView<D, Accum<T>> rounded, ConstView<D, T> w_label, double scale,
                      ConstView<D, Accum<T>> sums, OutView<D, T> dx, double cap = 0) {
  static_assert(HasSoftmax<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("softmax_gradient", "top", top, 1, dx.rows());
  expect_shape("softmax_gradient", "others", others, 1, dx.rows());
  expect_shape("softmax_gradient", "target", target, 1, dx.rows());
  expect_shape("softmax_gradient", "rounded", rounded, 1, dx.rows());
  expect_shape("softmax_gradient", "w_label", w_label, dx.rows(), dx.cols());
  expect_shape("softmax_gradient", "sums", sums, dx.rows(), dx.cols());
  const ProfileScope span(dev, "loss", "softmax_gradient", 0, bytes_of(w_label, sums, dx));
  Softmax<D>::gradient(dev, top, others, target, rounded, w_label, scale, sums, dx, cap);
}

/// The gradient of scale · Σ loss by a block of logits, for that of W: dl_ij = scale · (p_ij − [j = label_i]) (· c_ij
/// with a cap), with p_ij = exp(l_ij − top_i) / s_i. Called once more for each block, when top, others and target are
/// those of all.
/// Shapes   logits, dl (n, v), the columns [first, first + v) · labels, top, others, target (n)
/// Writes   dl; it may share memory with logits
template <class T, class D>
void softmax_logit_gradient(D& dev, ConstView<D, Accum<T>> logits, ConstView<D, std::int32_t> labels, Index first,
                            ConstView<D, Accum<T>> top, ConstView<D, Accum<T>> others, ConstView<D, Accum<T>> target,
                            double scale, OutView<D, T> dl, double cap = 0) {
  static_assert(HasSoftmax<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("softmax_logit_gradient", "labels", labels, 1, logits.rows());
  expect_shape("softmax_logit_gradient", "top", top, 1, logits.rows());
  expect_shape("softmax_logit_gradient", "others", others, 1, logits.rows());
  expect_shape("softmax_logit_gradient", "target", target, 1, logits.rows());
  expect_shape("softmax_logit_gradient", "dl", dl, logits.rows(), logits.cols());
  const ProfileScope span(dev, "loss", "softmax_logit_gradient", 0, bytes_of(logits, dl));
  Softmax<D>::logit_gradient(dev, logits, labels, first, top, others, target, scale, dl, cap);
}

/// Softmax cross entropy where the logits of a whole row exist at once, for devices with room for that: one pass
/// instead of one for each block. A backend that has it needs no Softmax.
template <class D>
struct CrossEntropy;

template <class D, class T>
concept HasCrossEntropy =
    requires(D& dev, View<D, Accum<T>> logits, View<D, const std::int32_t> labels, View<D, T> d_logits) {
      CrossEntropy<D>::run(dev, logits, labels, 1.0, logits, logits, logits, d_logits);
    };

/// loss_i = log Σ_j exp(l_ij) − l_i,label,   dl_ij = scale · (softmax(l_i)_j − [j = label_i])
/// Shapes   logits, d_logits (n, V) · labels, loss, target, top (n)
/// Writes   loss; target, the label's logit, and top, the largest (empty: not wanted); d_logits, the gradient of
///          scale · Σ loss, rounded to T once (empty: not wanted); it may share memory with logits, which are
///          overwritten
template <class T, class D>
void cross_entropy(D& dev, OutView<D, Accum<T>> logits, ConstView<D, std::int32_t> labels, double scale,
                   OutView<D, Accum<T>> loss, OutView<D, Accum<T>> target, OutView<D, Accum<T>> top,
                   OutView<D, T> d_logits) {
  static_assert(HasCrossEntropy<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("cross_entropy", "labels", labels, 1, logits.rows());
  expect_shape("cross_entropy", "loss", loss, 1, logits.rows());
  expect_indices("cross_entropy", "label", labels, logits.cols());
  if (!target.empty()) expect_shape("cross_entropy", "target", target, 1, logits.rows());
  if (!top.empty()) expect_shape("cross_entropy", "top", top, 1, logits.rows());
  if (!d_logits.empty()) expect_shape("cross_entropy", "d_logits", d_logits, logits.rows(), logits.cols());
  const ProfileScope span(dev, "loss", "cross_entropy", 0, bytes_of(logits, d_logits));
  CrossEntropy<D>::run(dev, logits, labels, scale, loss, target, top, d_logits);
}

}  // namespace lora::kernel
