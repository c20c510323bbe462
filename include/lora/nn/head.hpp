#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>

#include "lora/core/assert.hpp"
#include "lora/kernel/gemm.hpp"
#include "lora/kernel/loss.hpp"
#include "lora/kernel/row_product.hpp"
#include "lora/kernel/soft_cap.hpp"
#include "lora/nn/footprint.hpp"
#include "lora/nn/own_tensor.hpp"
#include "lora/nn/tiles.hpp"

namespace lora::nn {

/// Per-row outputs of the loss.
template <AnyDevice D, class T>
struct LossRows {
  View<D, Accum<T>> loss;    // (n) −log p of the label
  View<D, Accum<T>> target;  // (n) the label's logit
  View<D, Accum<T>> top;     // (n) the largest logit

  /// Whether target and top must be allocated even if the caller does not read them.
  static constexpr bool needs_scores = !kernel::HasCrossEntropy<D, T>;
};

/// The vocabulary projection with its loss. Backward is part of the forward pass: a block of logits is overwritten with
/// its exponentials, which are multiplied by the same block of W, and then dropped. Where W trains, a second pass over
/// the blocks computes the logits again, for W's gradient needs the finished sums.
///   logits = x Wᵀ, or with a cap cap · tanh(x Wᵀ / cap),   loss_i = logsumexp(logits_i) − logits_{i, label_i}
///   dlogits = scale · (softmax(logits) − onehot(labels)), with a cap ∘ (1 − (logits / cap)²),   dx = dlogits W,
///   dW += dlogitsᵀ x
/// Shapes   x, dx (n, E), labeled rows only · W (V, E), stored as any dtype · labels (n), each in [0, V)
template <AnyDevice D, class T>
class Head {
 public:
  /// `tiling`: the device's. `cap`: 0: none, as it must be where there is no kernel::soft_cap.
  Head(OwnMatrix<D, T> weight, const Tiling& tiling, double cap = 0)
      : weight_(std::move(weight)), tiling_(tiling), cap_(cap) {
    LORA_ASSERT(cap_ == 0 || caps_logits);
  }

  const OwnMatrix<D, T>& weight() const { return weight_; }
  OwnMatrix<D, T>& weight() { return weight_; }
  Index vocabulary() const { return weight_.rows(); }
  const Tiling& tiling() const { return tiling_; }

  /// Writes   rows; dx = the gradient of scale · Σ loss, if wanted; it must not be x. With dx, W's gradient is added to
  void loss(D& dev, View<D, const T> x, View<D, const std::int32_t> labels, double scale, View<D, T> dx,
            const LossRows<D, T>& rows) const {
    expect_shape("head", "labels", labels, 1, x.rows());
    if (!dx.empty()) expect_shape("head", "dx", dx, x.rows(), x.cols());
    const auto use = weight_.use(dev);
    for_row_tiles(x.rows(), tiling_.head_rows, [&](Index begin, Index count) {
      const auto part = [&](View<D, Accum<T>> all) { return all.empty() ? all : all.col_slice(begin, count); };
      chunk(dev, use, x.row_slice(begin, count), labels.col_slice(begin, count), scale,
            dx.empty() ? dx : dx.row_slice(begin, count), {part(rows.loss), part(rows.target), part(rows.top)});
    });
  }

  /// logits (n, V) of a few rows, for generation; `decodes`: of a decoding step (Pass::decodes).
  void logits(D& dev, View<D, const T> x, View<D, Accum<T>> out, bool decodes = false) const {
    expect_shape("head", "logits", out, x.rows(), vocabulary());
    const auto use = weight_.use(dev);
    if constexpr (kernel::HasRowProduct<D, T>)
      if (decodes) {
        kernel::row_product<D, T>(dev, x, use.stored(), out);
        return cap(dev, out);
      }
    for_blocks([&](Index first, Index count) {
      const Arena::Scope scope(dev.arena());
      kernel::gemm(dev, kernel::Form::nt, x, use.rows(dev, first, count), out.col_slice(first, count));
    });
    cap(dev, out);
  }

  /// Scratch of `loss` for n rows.
  static Index footprint(const Machine& machine, const HeadShape& shape, Index n, bool gradient) {
    const PassShape chunk{machine, largest_row_tile(n, machine.tiling.head_rows)};
    const bool rounds = gradient && !std::same_as<T, Accum<T>>;
    const auto block = [&](Index columns) {
      return (shape.decodes ? chunk.piece<T>(columns, shape.width) : 0) + chunk.rows_of<Accum<T>>(columns) +
             (rounds ? chunk.rows_of<T>(columns) : 0);
    };
    if (kernel::HasCrossEntropy<D, T>)  // with log p of every logit, which the kernel takes
      return block(shape.vocabulary) + chunk.rows_of<Accum<T>>(shape.vocabulary);
    const Index blocks = block(std::min(machine.tiling.head_columns, shape.vocabulary)),
                row = chunk.piece<Accum<T>>(1, chunk.rows);
    if (!gradient) return row + blocks;
    return 2 * row + (rounds ? chunk.rows_of<Accum<T>>(shape.width) : 0) +
           std::max(blocks, chunk.rows_of<T>(shape.width));
  }

 private:
  template <class F>
  void for_blocks(F&& f) const {
    for (Index first = 0; first < vocabulary(); first += tiling_.head_columns)
      f(first, std::min(tiling_.head_columns, vocabulary() - first));
  }

  using Use = typename OwnMatrix<D, T>::Use;
  // The gradient of rows that are taken whole knows no cap.
  static constexpr bool caps_logits = kernel::HasSoftCap<D, T> && !kernel::HasCrossEntropy<D, T>;

  void cap(D& dev, View<D, Accum<T>> logits) const {
    if constexpr (kernel::HasSoftCap<D, T>)
      if (cap_ > 0) kernel::soft_cap<T>(dev, logits, cap_);
  }

  void chunk(D& dev, const Use& weight, View<D, const T> x, View<D, const std::int32_t> labels, double scale,
             View<D, T> dx, const LossRows<D, T>& rows) const {
    if constexpr (kernel::HasCrossEntropy<D, T>) {
      whole_chunk(dev, weight, x, labels, scale, dx, rows);
    } else {
      chunk_by_blocks(dev, weight, x, labels, scale, dx, rows);
    }
  }

  // Where the device takes whole rows of logits.
  void whole_chunk(D& dev, const Use& weight, View<D, const T> x, View<D, const std::int32_t> labels, double scale,
                   View<D, T> dx, const LossRows<D, T>& rows) const {
    const bool gradient = !dx.empty();
    const Arena::Scope scope(dev.arena());
    const View<D, const T> w = weight.rows(dev, 0, vocabulary());
    const View<D, Accum<T>> logits = scratch<Accum<T>>(dev, x.rows(), vocabulary());
    kernel::gemm(dev, kernel::Form::nt, x, w, logits);
    const View<D, T> d_logits = gradient ? rounded_place(dev, logits) : View<D, T>();
    kernel::cross_entropy<T>(dev, logits, labels, scale, rows.loss, rows.target, rows.top, d_logits);
    if (!gradient) return;
    kernel::gemm(dev, kernel::Form::nn, View<D, const T>(d_logits), w, dx);
    if (weight_.trains())
      kernel::gemm(dev, kernel::Form::tn, View<D, const T>(d_logits), x, weight_.param().grad(), 1.0, true);
  }

  void chunk_by_blocks(D& dev, const Use& weight, View<D, const T> x, View<D, const std::int32_t> labels, double scale,
                       View<D, T> dx, const LossRows<D, T>& rows) const {
    const Index n = x.rows();
    const bool gradient = !dx.empty();
    const Arena::Scope scope(dev.arena());
    const View<D, Accum<T>> others = scratch<Accum<T>>(dev, 1, n);
    const View<D, Accum<T>> rounded = gradient ? scratch<Accum<T>>(dev, 1, n) : View<D, Accum<T>>();
    const View<D, Accum<T>> sums = gradient ? sum_for(dev, dx) : View<D, Accum<T>>();
    for_blocks([&](Index first, Index count) {
      const Arena::Scope inner(dev.arena());
      const View<D, const T> w = weight.rows(dev, first, count);
      const View<D, Accum<T>> logits = scratch<Accum<T>>(dev, n, count);
      kernel::gemm(dev, kernel::Form::nt, x, w, logits);
      cap(dev, logits);
      const View<D, T> exponentials = gradient ? rounded_place(dev, logits) : View<D, T>();
      kernel::softmax_block<T>(dev, logits, labels, first, rows.top, others, rows.target, exponentials, rounded, sums,
                               cap_);
      if (gradient) kernel::gemm(dev, kernel::Form::nn, View<D, const T>(exponentials), w, sums, 1.0, first > 0);
    });
    kernel::softmax_finish<T>(dev, rows.top, others, rows.target, rows.loss);
    if (!gradient) return;
    if (weight_.trains()) add_weight_gradient(dev, weight, x, labels, others, scale, rows);
    const View<D, T> w_label = scratch<T>(dev, n, x.cols());
    weight.gather(dev, labels, w_label);
    kernel::softmax_gradient<T>(dev, rows.top, others, rows.target, rounded, w_label, scale, sums, dx, cap_);
  }

  // The second pass of a chunk, whose row sums are finished.
  void add_weight_gradient(D& dev, const Use& weight, View<D, const T> x, View<D, const std::int32_t> labels,
                           View<D, const Accum<T>> others, double scale, const LossRows<D, T>& rows) const {
    const View<D, Accum<T>> grad = weight_.param().grad();
    for_blocks([&](Index first, Index count) {
      const Arena::Scope inner(dev.arena());
      const View<D, Accum<T>> logits = scratch<Accum<T>>(dev, x.rows(), count);
      kernel::gemm(dev, kernel::Form::nt, x, weight.rows(dev, first, count), logits);
      cap(dev, logits);
      const View<D, T> d_logits = rounded_place(dev, logits);
      kernel::softmax_logit_gradient<T>(dev, logits, labels, first, rows.top, others, rows.target, scale, d_logits,
                                        cap_);
      kernel::gemm(dev, kernel::Form::tn, View<D, const T>(d_logits), x, grad.row_slice(first, count), 1.0, true);
    });
  }

  // Memory for the exponentials: the logits' own if they have the same type.
  static View<D, T> rounded_place(D& dev, View<D, Accum<T>> logits) {
    if constexpr (std::same_as<T, Accum<T>>) {
      return logits;
    } else {
      return scratch<T>(dev, logits.rows(), logits.cols());
    }
  }

  OwnMatrix<D, T> weight_;  // (V, E)
  Tiling tiling_;
  double cap_;
};

}  // namespace lora::nn
