#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

template <class D>
struct Reduce;

template <class D, class T>
concept HasReduce = requires(D& dev, View<D, const Accum<T>> x, View<D, double> out) {
  Reduce<D>::sum_of_squares(dev, x, out);
  Reduce<D>::sum(dev, x, out);
};

/// out[0] += Σ x², formed in double in an order that does not depend on the number of threads. Shapes   out (1)
template <class D, class T>
void sum_of_squares(D& dev, View<D, T> x, OutView<D, double> out) {
  expect_shape("sum_of_squares", "out", out, 1, 1);
  const Span span(profile_of(dev), "reduce", "sum_of_squares", 0, bytes_of(x));
  Reduce<D>::sum_of_squares(dev, View<D, const T>(x), out);
}

/// out[0] += Σ x, likewise.
template <class D, class T>
void sum(D& dev, View<D, T> x, OutView<D, double> out) {
  expect_shape("sum", "out", out, 1, 1);
  const Span span(profile_of(dev), "reduce", "sum", 0, bytes_of(x));
  Reduce<D>::sum(dev, View<D, const T>(x), out);
}

}  // namespace lora::kernel
