#pragma once

#include <cstdint>

#include "lora/kernel/elementwise.hpp"
#include "lora/nn/head.hpp"
#include "lora/nn/rms_norm.hpp"

namespace lora::nn {

/// Rows that a head looks at, and what they predict, on the device.
template <AnyDevice D>
struct Labeled {
  View<D, const std::int32_t> rows;    // (n)
  View<D, const std::int32_t> labels;  // (n)
};

/// What a model is trained for: the loss of the labeled rows of its stack's output, by the final norm and the head,
/// which see no other rows.
///   loss = Σ −log p(label | norm(hidden_row))
/// Shapes   hidden, d_hidden (N, E) · n labeled rows
template <AnyDevice D, class T>
struct Objective {
  const RmsNorm<D, T>& norm;
  const Head<D, T>& head;

  /// Scratch of `loss` for n labeled rows.
  static Index footprint(const Machine& machine, const HeadShape& shape, Index n, bool gradient) {
    const PassShape labeled{machine, n};
    return (gradient ? 3 : 2) * labeled.rows_of<T>(shape.width) + labeled.rows_of<Accum<T>>(1) +
           (wants_scores(gradient) ? 3 : 1) * labeled.piece<Accum<T>>(1, n) +
           Head<D, T>::footprint(machine, shape, n, gradient);
  }

  /// `see` gets the head's LossRows. d_hidden is overwritten, or not wanted where it is empty; with it the gradients of
  /// the norm's weight and the head's are added to.
  template <class See>
  void loss(D& dev, View<D, const T> hidden, const Labeled<D>& labeled, double scale, View<D, T> d_hidden,
            See&& see) const {
    const ProfileScope phase(dev, Profile::Kind::phase, "head");
    const Index n = labeled.rows.size(), e = hidden.cols();
    const bool gradient = !d_hidden.empty();
    const Arena::Scope scope(dev.arena());
    const View<D, T> x = scratch<T>(dev, n, e);
    const View<D, T> normed = scratch<T>(dev, n, e);
    const View<D, T> dx = gradient ? scratch<T>(dev, n, e) : View<D, T>();
    const View<D, Accum<T>> rstd = scratch<Accum<T>>(dev, n, 1);
    const bool scores = wants_scores(gradient);
    const auto per_row = [&](bool wanted) { return wanted ? scratch<Accum<T>>(dev, 1, n) : View<D, Accum<T>>(); };
    const LossRows<D, T> outcome{per_row(true), per_row(scores), per_row(scores)};
    kernel::gather_rows(dev, hidden, labeled.rows, x);
    norm.forward(dev, x, normed, rstd);
    head.loss(dev, View<D, const T>(normed), labeled.labels, scale, dx, outcome);
    see(outcome);
    if (gradient) {
      norm.backward(dev, x, rstd, dx, dx);
      kernel::fill(dev, d_hidden, 0.0);
      kernel::scatter_rows(dev, View<D, const T>(dx), labeled.rows, d_hidden);
    }
  }

 private:
  static constexpr bool wants_scores(bool gradient) { return !gradient || LossRows<D, T>::needs_scores; }
};

}  // namespace lora::nn
