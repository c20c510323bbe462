#pragma once

#include <algorithm>
#include <utility>

#include "lora/kernel/loss.hpp"
#include "lora/nn/linear.hpp"

namespace lora::nn {

/// What the head tells of each row.
template <Device D, class T>
struct LossRows {
  View<D, Accum<T>> loss;    // (n) −log p of the label
  View<D, Accum<T>> target;  // (n) the label's logit
  View<D, Accum<T>> top;     // (n) the largest logit
};

/// How the head cuts its work: loss and dx change by the order of sums only.
struct HeadTiles {
  Index rows = 512;  ///< at most so many share a pass over W,
  /// or, where their exponentials (rows, V) are held, as many as these bytes have room for, but 32 at least.
  Index bytes = Index{320} << 20;
  Index columns = 4096;  ///< of a block of the vocabulary
};

/// The vocabulary projection with its loss. Frozen, so that its backward is made in the pass of its forward: one pass
/// over chunks of rows and blocks of the vocabulary yields the loss and dx, and (N, V) logits never exist.
///   logits = x Wᵀ,   loss_i = logsumexp(logits_i) − logits_{i, label_i},   dx = scale · (softmax(logits) −
///   onehot(labels)) W
/// Shapes   x, dx (n, E), labelled rows only · W (V, E), stored as any dtype · labels (n), each in [0, V)
template <Device D, class T>
class Head {
 public:
  explicit Head(Weight<D> weight, HeadTiles tiles = {}) : weight_(std::move(weight)), tiles_(tiles) {}

  const Weight<D>& weight() const { return weight_; }
  Index vocabulary() const { return weight_.rows(); }

  /// Writes   rows; dx = the gradient of scale · Σ loss, or nothing where dx is empty
  void loss(D& dev, View<D, const T> x, View<D, const std::int32_t> labels, double scale, View<D, T> dx,
            const LossRows<D, T>& rows) const {
    expect_shape("head", "labels", labels, 1, x.rows());
    if (!dx.empty()) expect_shape("head", "dx", dx, x.rows(), x.cols());
    const auto use = weight_.use(dev);
    for_row_tiles(x.rows(), rows_of_a_chunk(!dx.empty()), [&](Index begin, Index count) {
      chunk(dev, use.view(), x.row_slice(begin, count), labels.col_slice(begin, count), scale,
            dx.empty() ? dx : dx.row_slice(begin, count),
            {rows.loss.col_slice(begin, count), rows.target.col_slice(begin, count), rows.top.col_slice(begin, count)});
    });
  }

  /// logits (n, V) of a few rows, for generation.
  void logits(D& dev, View<D, const T> x, View<D, Accum<T>> out) const {
    expect_shape("head", "logits", out, x.rows(), vocabulary());
    const auto use = weight_.use(dev);
    for_blocks([&](Index first, Index count) {
      const Arena::Scope scope(dev.arena());
      kernel::gemm(dev, kernel::Form::nt, x, widened<T>(dev, use.view().row_slice(first, count)),
                   out.col_slice(first, count));
    });
  }

  /// The most scratch that `loss` takes for n labelled rows.
  Index scratch_bytes(Index n, bool gradient) const {
    const Index chunk = std::min(n, rows_of_a_chunk(gradient));
    const Index block = std::min(tiles_.columns, vocabulary());
    const Index wide = stores<T>(weight_.dtype()) ? 0 : block * weight_.cols() * static_cast<Index>(sizeof(T));
    const Index sums = gradient ? chunk * weight_.cols() * static_cast<Index>(sizeof(Accum<T>)) : 0;
    const Index exponentials = gradient ? chunk * vocabulary() * static_cast<Index>(sizeof(T)) : 0;
    return exponentials + sums + chunk * block * static_cast<Index>(sizeof(Accum<T>)) + wide;
  }

 private:
  Index rows_of_a_chunk(bool gradient) const {
    if (!gradient) return tiles_.rows;
    const Index row_bytes = std::max<Index>(1, vocabulary()) * static_cast<Index>(sizeof(T));
    return std::min(tiles_.rows, std::max<Index>(tiles_.bytes / row_bytes / 32 * 32, 32));
  }

  template <class F>
  void for_blocks(F&& f) const {
    for (Index first = 0; first < vocabulary(); first += tiles_.columns)
      f(first, std::min(tiles_.columns, vocabulary() - first));
  }

  void chunk(D& dev, const StoredView<D>& weight, View<D, const T> x, View<D, const std::int32_t> labels, double scale,
             View<D, T> dx, const LossRows<D, T>& rows) const {
    const Index n = x.rows(), e = x.cols(), v = vocabulary();
    const bool gradient = !dx.empty();
    const Arena::Scope scope(dev.arena());
    const Index blocks = (v + tiles_.columns - 1) / tiles_.columns;
    const View<D, Accum<T>> max = scratch<Accum<T>>(dev, blocks, n);
    const View<D, Accum<T>> sum = scratch<Accum<T>>(dev, blocks, n);
    const View<D, Accum<T>> lse = scratch<Accum<T>>(dev, 1, n);
    const View<D, T> exponentials = gradient ? scratch<T>(dev, n, v) : View<D, T>();
    for_blocks([&](Index first, Index count) {
      const Arena::Scope inner(dev.arena());
      const Index b = first / tiles_.columns;
      const View<D, Accum<T>> logits = scratch<Accum<T>>(dev, n, count);
      kernel::gemm(dev, kernel::Form::nt, x, widened<T>(dev, weight.row_slice(first, count)), logits);
      kernel::softmax_block<T>(dev, logits, labels, first, max.row_slice(b, 1), sum.row_slice(b, 1), rows.target,
                               gradient ? exponentials.col_slice(first, count) : View<D, T>());
    });
    kernel::softmax_finish<T>(dev, max, sum, rows.target, lse, rows.loss, rows.top);
    if (!gradient) return;

    View<D, Accum<T>> dx_sum;  // (n, E)
    if constexpr (std::same_as<T, Accum<T>>) {
      dx_sum = dx;
    } else {
      dx_sum = scratch<Accum<T>>(dev, n, e);
    }
    for_blocks([&](Index first, Index count) {
      const Arena::Scope inner(dev.arena());
      const View<D, T> dlogits = exponentials.col_slice(first, count);
      kernel::softmax_gradient(dev, dlogits, max.row_slice(first / tiles_.columns, 1), lse, labels, first, scale);
      kernel::gemm(dev, kernel::Form::nn, View<D, const T>(dlogits), widened<T>(dev, weight.row_slice(first, count)),
                   dx_sum, 1.0, first > 0);
    });
    if constexpr (!std::same_as<T, Accum<T>>) kernel::convert(dev, dx_sum, dx);
  }

  Weight<D> weight_;  // (V, E)
  HeadTiles tiles_;
};

}  // namespace lora::nn
