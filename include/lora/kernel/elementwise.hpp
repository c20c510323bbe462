#pragma once

#include <concepts>
#include <cstdint>

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// The random choices of one dropout: column j of the row at (place, position) is kept if
///   philox(counter = (j / 4, position, place, 0), key)[j mod 4] ≥ p · 2³²,   and then scaled by 1 / (1 − p)
/// so that the mask depends neither on how a step is split nor on recomputation.
struct Dropout {
  double p = 0;
  std::uint64_t key = 0;  ///< of seed, step and module
};

/// One dropout's choices for the rows of a pass, which forward and backward share.
template <class D>
struct DropoutMask {
  Dropout rule{};
  View<D, const std::int32_t> sequence_index{}, positions{};  // (N)
  View<D, const std::uint8_t> drawn{};  ///< for all rows, as the backend has it; empty: drawn where it is applied

  DropoutMask row_slice(Index begin, Index count) const {
    if (count == positions.size()) return *this;
    return {rule, sequence_index.col_slice(begin, count), positions.col_slice(begin, count)};
  }
};

/// What dropout takes for an element of x, in bytes.
struct DropoutBytes {
  double kept = 0;     ///< from forward to backward: of a mask that is drawn ahead
  double scratch = 0;  ///< where a result is added to
};

template <class D>
struct Elementwise;

template <class D, class T>
concept HasElementwise =
    requires(D& dev, View<D, const T> x, View<D, T> y, View<D, Accum<T>> wide, View<D, const std::int32_t> index) {
      Elementwise<D>::fill(dev, y, 0.0);
      Elementwise<D>::convert(dev, x, y, 1.0, false);
      Elementwise<D>::convert(dev, x, wide, 1.0, false);
      Elementwise<D>::convert(dev, View<D, const Accum<T>>(wide), y, 1.0, false);
      Elementwise<D>::add_bias(dev, View<D, const Accum<T>>(wide), y);
      Elementwise<D>::gather_rows(dev, x, index, y);
      Elementwise<D>::scatter_rows(dev, x, index, y);
      {
        Elementwise<D>::draw_dropout(dev, Dropout{}, index, index, Index{}, false)
      } -> std::same_as<View<D, const std::uint8_t>>;
      Elementwise<D>::dropout(dev, DropoutMask<D>{}, x, y, false);
      { Elementwise<D>::template dropout_bytes<T>() } -> std::same_as<DropoutBytes>;
    };

/// y = value everywhere.
template <class D, class T>
void fill(D& dev, View<D, T> y, double value) {
  const ProfileScope span(dev, "elementwise", "fill", 0, bytes_of(y));
  Elementwise<D>::fill(dev, y, value);
}

/// y = scale · x  (+ y if accumulate), rounded to y's type. Shapes alike; y may be x where the types are the same.
template <class D, class From, class To>
void convert(D& dev, View<D, From> x, View<D, To> y, double scale = 1, bool accumulate = false) {
  expect_shape("convert", "y", y, x.rows(), x.cols());
  const ProfileScope span(dev, "elementwise", "convert", 0, bytes_of(x, y) + (accumulate ? bytes_of(y) : 0));
  Elementwise<D>::convert(dev, View<D, const From>(x), y, scale, accumulate);
}

/// y_ij += bias_j. Shapes   bias (O) · y (N, O)
template <class D, class T>
void add_bias(D& dev, ConstView<D, Accum<T>> bias, View<D, T> y) {
  expect_shape("add_bias", "bias", bias, 1, y.cols());
  const ProfileScope span(dev, "elementwise", "add_bias", 0, 2 * bytes_of(y));
  Elementwise<D>::add_bias(dev, bias, y);
}

/// y_i = x_{index_i}. Shapes   x (M, E) · index (n) · y (n, E)
template <class D, class T>
void gather_rows(D& dev, View<D, const T> x, ConstView<D, std::int32_t> index, OutView<D, T> y) {
  expect_shape("gather_rows", "index", index, 1, y.rows());
  expect_shape("gather_rows", "y", y, y.rows(), x.cols());
  expect_indices("gather_rows", "index", index, x.rows());
  const ProfileScope span(dev, "elementwise", "gather_rows", 0, 2 * bytes_of(y));
  Elementwise<D>::gather_rows(dev, x, index, y);
}

/// y_{index_i} = x_i; other rows of y stay. Shapes   x (n, E) · index (n), no value twice · y (M, E)
template <class D, class T>
void scatter_rows(D& dev, View<D, const T> x, ConstView<D, std::int32_t> index, OutView<D, T> y) {
  expect_shape("scatter_rows", "index", index, 1, x.rows());
  expect_shape("scatter_rows", "x", x, x.rows(), y.cols());
  expect_indices("scatter_rows", "index", index, y.rows());
  const ProfileScope span(dev, "elementwise", "scatter_rows", 0, 2 * bytes_of(x));
  Elementwise<D>::scatter_rows(dev, x, index, y);
}

/// The mask of a dropout of `cols` columns. A backend that draws it ahead keeps it where backward will find it, if
/// `saved`, or in scratch of the enclosing scope. Shapes   sequence_index, positions (N)
template <class D>
DropoutMask<D> draw_dropout(D& dev, const Dropout& rule, ConstView<D, std::int32_t> sequence_index,
                            ConstView<D, std::int32_t> positions, Index cols, bool saved) {
  expect_shape("draw_dropout", "positions", positions, 1, sequence_index.size());
  return {rule, sequence_index, positions,
          Elementwise<D>::draw_dropout(dev, rule, sequence_index, positions, cols, saved)};
}

/// y = mask ∘ x / (1 − p)  (+ y if accumulate). Its backward is itself on the gradient.
/// Shapes   x, y (N, I) · mask of N rows and, if it is drawn, I columns
template <class D, class T>
void dropout(D& dev, const DropoutMask<D>& mask, View<D, const T> x, OutView<D, T> y, bool accumulate = false) {
  static_assert(HasElementwise<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("dropout", "sequence_index", mask.sequence_index, 1, x.rows());
  expect_shape("dropout", "positions", mask.positions, 1, x.rows());
  expect_shape("dropout", "y", y, x.rows(), x.cols());
  const ProfileScope span(dev, "elementwise", "dropout", 0, bytes_of(x, y) + (accumulate ? bytes_of(y) : 0));
  Elementwise<D>::dropout(dev, mask, x, y, accumulate);
}

/// The same with a mask that is drawn for this call. Shapes   x, y (N, I) · sequence_index, positions (N)
template <class D, class T>
void dropout(D& dev, const Dropout& rule, View<D, const T> x, ConstView<D, std::int32_t> sequence_index,
             ConstView<D, std::int32_t> positions, OutView<D, T> y, bool accumulate = false) {
  dropout<D, T>(dev, DropoutMask<D>{rule, sequence_index, positions}, x, y, accumulate);
}

}  // namespace lora::kernel
