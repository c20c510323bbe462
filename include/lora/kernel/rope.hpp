#pragma once

#include <cstdint>

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

enum class Rotation { forward, inverse };

template <class D>
struct Rope;

template <class D, class T>
concept HasRope =
    requires(D& dev, View<D, const T> x, View<D, const Accum<T>> table, View<D, const std::int32_t> positions,
             View<D, T> y) { Rope<D>::run(dev, x, table, table, positions, Rotation::forward, y); };

/// Rotates the pairs (i, i + C/2) of every head by the angle of their row's position:
///   y_i = x_i cos − x_{i+C/2} sin,   y_{i+C/2} = x_{i+C/2} cos + x_i sin;   inverse: with −sin, which is the backward
/// Shapes   x, y (N, K·C) · cos, sin (P, C/2), one row per position · positions (N), each in [0, P)
/// Writes   y; it may be x
/// Source   Su et al. 2021, in the half-split order of Hugging Face checkpoints
template <class D, class T>
void rope(D& dev, View<D, const T> x, ConstView<D, Accum<T>> cos, ConstView<D, Accum<T>> sin,
          ConstView<D, std::int32_t> positions, Rotation rotation, OutView<D, T> y) {
  static_assert(HasRope<D, T>, "include lora/<backend>/kernels.hpp");
  if (cos.cols() == 0 || x.cols() % (2 * cos.cols()) != 0)
    fail<ShapeError>("[rope] x is ", to_string(x.shape()), " but heads of ", 2 * cos.cols(), " columns were expected");
  expect_shape("rope", "sin", sin, cos.rows(), cos.cols());
  expect_shape("rope", "positions", positions, 1, x.rows());
  expect_indices("rope", "position", positions, cos.rows());
  expect_shape("rope", "y", y, x.rows(), x.cols());
  const ProfileScope span(dev, "rope", rotation == Rotation::forward ? "rope" : "rope_backward", 0, bytes_of(x, y));
  Rope<D>::run(dev, x, cos, sin, positions, rotation, y);
}

}  // namespace lora::kernel
