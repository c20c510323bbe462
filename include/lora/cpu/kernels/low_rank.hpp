#pragma once

#include <algorithm>
#include <concepts>
#include <span>

#include "lora/core/config.hpp"
#include "lora/cpu/kernels/elementwise.hpp"
#include "lora/cpu/kernels/gemm.hpp"
#include "lora/cpu/vectors/tile_layout.hpp"
#include "lora/cpu/vectors/tile_product.hpp"
#include "lora/kernel/low_rank.hpp"

namespace lora::cpu::detail {

/// All products of a tile of rows, so that x and dy are read from memory once. Each block of rows has sums of its own,
/// which are added up in order, so that bits don't depend on the thread that computes a block.
template <class A>
class LowRankGradients {
 public:
  using Term = kernel::LowRankTerm<Device, A>;

  /// At higher ranks plain products are faster, since reading dy takes a smaller part of the time.
  static constexpr Index most_rank = 32;

  /// Enough rows for a block a thread, small ranks, whole vectors of columns.
  static bool takes(Index rows, std::span<const Term> terms, int threads) {
    return rows >= tile_rows && (threads == 1 || blocks_of(rows) >= threads) &&
           std::all_of(terms.begin(), terms.end(), [](const Term& term) {
             return term.b.rows() > 0 && term.b.rows() <= most_rank && takes_columns(term.b.cols());
           });
  }
  static bool takes_columns(Index cols) { return cols > 0 && cols % tile_step == 0; }

  std::span<const Term> terms;
  View<Device, const A> h;     ///< as saved by forward, or empty: computed from x
  View<Device, A> dh;          ///< empty where it is not needed
  View<Device, const A> x, a;  ///< empty where the gradient of a isn't needed
  View<Device, A> da;

  void run(Device& dev) const {
    const Arena::Scope scope(dev.arena());
    const Index n = terms.front().dy.rows(), rows = block_extent(n), blocks = blocks_of(n);
    const View<Device, A> right = scratch<A>(dev, 1, size_of(tile_step)),
                          sums = scratch<A>(dev, blocks, size_of(group)),
                          tiles = scratch<A>(dev, blocks, 2 * tile_rows * tile_stride());
    lay_right(right.data());
    dev.parallel_items(blocks, [&](Index block) {
      std::fill_n(sums.row(block), sums.cols(), A(0));
      std::fill_n(tiles.row(block), tiles.cols(), A(0));
      const Index end = std::min((block + 1) * rows, n);
      for (Index i = block * rows; i < end; i += tile_rows)
        form_tile(i, std::min(tile_rows, end - i), right.data(), tiles.row(block), sums.row(block));
    });
    Index at = 0;
    for (const Term& term : terms) {
      add_sums(dev, sums, at, term.db);
      at += padded(term.b.rows(), group) * term.dy.cols();
    }
    if (!da.empty()) add_sums(dev, sums, at, da);
  }

 private:
  using Words = SingleWords<A>;
  static constexpr Index group = 8;  ///< rows that tile_product takes together
  static constexpr Index tile_rows = 32, tile_cols = 2048, most_sums = 32;

  /// Rows of a block: about 256, in blocks of even size and number.
  static Index block_extent(Index rows) {
    const Index blocks = std::min(most_sums, 2 * ((rows + 511) / 512));
    return padded((rows + blocks - 1) / blocks, tile_rows);
  }
  static Index blocks_of(Index rows) { return (rows + block_extent(rows) - 1) / block_extent(rows); }

  Index all_ranks() const {
    Index sum = 0;
    for (const Term& term : terms) sum += term.b.rows();
    return sum;
  }
  /// Of a row of h or dh, where the terms' columns lie side by side. A term's dh is formed in whole vectors, of which
  /// the next term, or the row's end, takes the last columns.
  Index tile_stride() const { return padded(all_ranks()) + tile_step; }
  /// Numbers of every b, and of a, their ranks padded to whole steps.
  Index size_of(Index step) const {
    Index size = padded(all_ranks(), step) * x.cols();
    for (const Term& term : terms) size += padded(term.b.rows(), step) * term.dy.cols();
    return size;
  }

  /// s_j B_jᵀ of every term (O, R_j padded), and then Aᵀ (I, ΣR padded), scaled likewise where h is computed from it.
  void lay_right(A* to) const {
    std::fill_n(to, size_of(tile_step), A(0));
    for (const Term& term : terms) {
      lay_transposed(term.b, static_cast<A>(term.scale), to, padded(term.b.rows()));
      to += padded(term.b.rows()) * term.dy.cols();
    }
    if (!h.empty()) return;
    Index first = 0;
    for (const Term& term : terms) {
      lay_transposed(a.row_slice(first, term.b.rows()), static_cast<A>(term.scale), to + first, padded(all_ranks()));
      first += term.b.rows();
    }
  }
  static void lay_transposed(View<Device, const A> from, A scale, A* to, Index stride) {
    transpose(from.data(), from.stride(), from.rows(), from.cols(), to, stride);
    if (scale == A(1)) return;
    for (Index j = 0; j < from.cols(); ++j)
      for (Index r = 0; r < from.rows(); ++r) to[j * stride + r] *= scale;
  }

  /// to += the blocks' sums in order.
  static void add_sums(Device& dev, View<Device, const A> sums, Index at, View<Device, A> to) {
    dev.parallel_for(to.rows(), 65536 / (sums.rows() * to.cols() + 1) + 1, [&](Index first, Index last) {
      for (Index r = first; r < last; ++r)
        for (Index block = 0; block < sums.rows(); ++block) {
          const A* const from = sums.row(block) + at + r * to.cols();
          A* const row = to.row(r);
          LORA_SIMD
          for (Index j = 0; j < to.cols(); ++j) row[j] += from[j];
        }
    });
  }

  /// Adds the contribution of rows [i, i + count) to the sums. A last group of fewer rows starts with rows of the one
  /// before, counted as zeros.
  void form_tile(Index i, Index count, const A* right, A* spare, A* sum) const {
    const Index ranks = all_ranks(), stride = tile_stride();
    const Index rows = padded(count, group), borrowed = rows - count;
    i -= borrowed;
    A *const h_tile = spare, *const dh_tile = spare + tile_rows * stride;
    if (h.empty()) {
      const Index wide = padded(ranks);
      const A* const a_transposed = right + size_of(tile_step) - wide * x.cols();
      for (Index j = 0; j < x.cols(); j += tile_cols)
        tile_product<Words>(rows, x.row(i) + j, x.stride(), 1, a_transposed + j * wide, wide, h_tile, stride, j > 0,
                            whole(std::min(tile_cols, x.cols() - j), wide));
    } else {
      for (Index r = 0; r < rows; ++r) load_row(h.row(i + r), ranks, ranks, h_tile + r * stride);
    }
    std::fill_n(h_tile, borrowed * stride, A(0));
    Index column = 0;
    for (const Term& term : terms) {
      const Index vectors = padded(term.b.rows()), groups = padded(term.b.rows(), group), cols = term.dy.cols();
      for (Index j = 0; j < cols; j += tile_cols) {
        const Index part = std::min(tile_cols, cols - j);
        const A* const dy = term.dy.row(i) + j;
        tile_product<Words>(rows, dy, term.dy.stride(), 1, right + j * vectors, vectors, dh_tile + column, stride,
                            j > 0, whole(part, vectors));
        tile_product<Words>(groups, h_tile + column, 1, stride, dy, term.dy.stride(), sum + j, cols, true,
                            whole(rows, part));
      }
      right += vectors * cols;
      sum += groups * cols;
      column += term.b.rows();
    }
    if (!dh.empty())
      for (Index r = borrowed; r < rows; ++r) std::copy_n(dh_tile + r * stride, ranks, dh.row(i + r));
    if (da.empty()) return;
    std::fill_n(dh_tile, borrowed * stride, A(0));
    for (Index j = 0; j < x.cols(); j += tile_cols)
      tile_product<Words>(padded(ranks, group), dh_tile, 1, stride, x.row(i) + j, x.stride(), sum + j, x.cols(), true,
                          whole(rows, std::min(tile_cols, x.cols() - j)));
  }
};

}  // namespace lora::cpu::detail

namespace lora::kernel {

template <>
struct LowRank<cpu::Device> {
  using D = cpu::Device;

  template <class T>
  static void backward(D& dev, View<D, const T> h, LowRankTerms<D, T> terms, View<D, T> dh);

  template <class T>
  static void gradients(D& dev, View<D, const T> x, View<D, const T> a, View<D, Accum<T>> da, LowRankTerms<D, T> terms);

 private:
  template <class T>
  static void scale(D& dev, View<D, T> h, double factor) {
    if (factor != 1) Elementwise<D>::convert(dev, View<D, const T>(h), h, factor, false);
  }
};

template <class T>
void LowRank<cpu::Device>::backward(D& dev, View<D, const T> h, LowRankTerms<D, T> terms, View<D, T> dh) {
  if constexpr (std::same_as<T, Accum<T>>) {
    using Fused = cpu::detail::LowRankGradients<T>;
    if (Fused::takes(h.rows(), terms, dev.threads())) {
      Fused{.terms = terms, .h = h, .dh = dh, .x = {}, .a = {}, .da = {}}.run(dev);
      return;
    }
  }
  Index first = 0;
  for (const LowRankTerm<D, T>& term : terms) {
    const Index rank = term.b.rows();
    const View<D, const T> h_j = h.col_slice(first, rank);
    const View<D, T> dh_j = dh.col_slice(first, rank);
    // Plain products, for which every engine has fast kernels; scales are applied to the few columns of h and dh.
    Gemm<D>::run(dev, Form::nt, term.dy, term.b, dh_j, 1.0, false);
    scale(dev, dh_j, term.scale);
    Gemm<D>::run(dev, Form::tn, h_j, term.dy, term.db, 1.0, true);
    first += rank;
  }
}

template <class T>
void LowRank<cpu::Device>::gradients(D& dev, View<D, const T> x, View<D, const T> a, View<D, Accum<T>> da,
                                     LowRankTerms<D, T> terms) {
  if constexpr (std::same_as<T, Accum<T>>) {
    using Fused = cpu::detail::LowRankGradients<T>;
    if (Fused::takes_columns(x.cols()) && Fused::takes(x.rows(), terms, dev.threads())) {
      Fused{.terms = terms, .h = {}, .dh = {}, .x = x, .a = a, .da = da}.run(dev);
      return;
    }
  }
  const Arena::Scope scope(dev.arena());
  const View<D, T> h = scratch<T>(dev, x.rows(), a.rows()), dh = scratch<T>(dev, x.rows(), a.rows());
  Gemm<D>::run(dev, Form::nt, x, a, h, 1.0, false);
  Index first = 0;
  for (const LowRankTerm<D, T>& term : terms) {
    scale(dev, h.col_slice(first, term.b.rows()), term.scale);
    first += term.b.rows();
  }
  backward<T>(dev, h, terms, dh);
  Gemm<D>::run(dev, Form::tn, View<D, const T>(dh), x, da, 1.0, true);
}

}  // namespace lora::kernel
