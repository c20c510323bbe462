#pragma once

#include <cstddef>

#include "lora/ascend/kernels/gemm.hpp"
#include "lora/kernel/low_rank.hpp"

namespace lora::kernel {

/// Plain products; scales are applied to the few columns of h and dh.
template <>
struct LowRank<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void backward(D& dev, View<D, const T> h, LowRankTerms<D, T> terms, View<D, T> dh) {
    Index first = 0;
    for (const LowRankTerm<D, T>& term : terms) {
      const Index rank = term.b.rows();
      Gemm<D>::run(dev, Form::nt, term.dy, term.b, dh.col_slice(first, rank), 1.0, false);
      Gemm<D>::run(dev, Form::tn, h.col_slice(first, rank), term.dy, term.db, 1.0, true);
      first += rank;
    }
    scale<T>(dev, dh, terms);
  }

  template <class T>
  static void gradients(D& dev, View<D, const T> x, View<D, const T> a, View<D, Accum<T>> da,
                        LowRankTerms<D, T> terms) {
    const Arena::Scope scope(dev.arena());
    const View<D, T> h = scratch<T>(dev, x.rows(), a.rows()), dh = scratch<T>(dev, x.rows(), a.rows());
    Gemm<D>::run(dev, Form::nt, x, a, h, 1.0, false);
    scale<T>(dev, h, terms);
    backward<T>(dev, h, terms, dh);
    Gemm<D>::run(dev, Form::tn, View<D, const T>(dh), x, da, 1.0, true);
  }

 private:
  /// Each term's columns by its scale, neighbors with the same one at once.
  template <class T>
  static void scale(D& dev, View<D, T> h, LowRankTerms<D, T> terms) {
    Index first = 0;
    for (std::size_t j = 0, end = 0; j < terms.size(); j = end) {
      const double factor = terms[j].scale;
      Index count = 0;
      for (; end < terms.size() && terms[end].scale == factor; ++end) count += terms[end].b.rows();
      const View<D, T> columns = h.col_slice(first, count);
      if (factor != 1) Elementwise<D>::convert(dev, View<D, const T>(columns), columns, factor, false);
      first += count;
    }
  }
};

}  // namespace lora::kernel
