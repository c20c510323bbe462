#pragma once

#include <algorithm>

#include "lora/core/config.hpp"
#include "lora/cpu/gemm.hpp"
#include "lora/cpu/tile_layout.hpp"
#include "lora/cpu/tile_product.hpp"
#include "lora/kernel/low_rank.hpp"

namespace lora::cpu::detail {

/// Both products of a tile of dy while it is in cache. Each block of rows has a sum of db of its own, and these are
/// added in order, so that bits don't depend on the thread that forms a block.
template <class A>
class LowRankBackward {
 public:
  /// At higher ranks two plain products are faster: dy is then read seldom enough.
  static constexpr Index most_rank = 32;

  /// A small rank, whole vectors of columns, and rows enough for every thread to have a block.
  static bool takes(Index rows, Index cols, Index rank, int threads) {
    return rank > 0 && rank <= most_rank && rows >= group && cols >= tile_step && cols % tile_step == 0 &&
           (threads == 1 || blocks_of(rows) >= threads);
  }

  View<Device, const A> dy, h, b;
  View<Device, A> dh, db;

  void run(Device& dev) const {
    const Arena::Scope scope(dev.arena());
    const Index rank = b.rows(), wide = padded(rank), cols = dy.cols();
    const View<Device, A> b_transposed = scratch<A>(dev, cols, wide);
    if (wide > rank) std::fill_n(b_transposed.data(), b_transposed.size(), A(0));
    transpose(b.data(), b.stride(), rank, cols, b_transposed.data(), wide);
    const Index rows = block_extent(dy.rows()), blocks = blocks_of(dy.rows());
    const View<Device, A> sums = scratch<A>(dev, blocks, wide * cols);
    const View<Device, A> tiles = scratch<A>(dev, blocks, 2 * tile_rows * wide);
    dev.parallel_items(blocks, [&](Index block) {
      std::fill_n(sums.row(block), wide * cols, A(0));
      const Index end = std::min((block + 1) * rows, dy.rows());
      for (Index i = block * rows; i < end; i += tile_rows)
        form_tile(i, std::min(tile_rows, end - i), b_transposed, tiles.row(block), sums.row(block));
    });
    dev.parallel_for(rank, 65536 / (blocks * cols + 1) + 1, [&](Index first, Index last) {
      for (Index r = first; r < last; ++r)
        for (Index block = 0; block < blocks; ++block) {
          const A* const from = sums.row(block) + r * cols;
          A* const to = db.row(r);
          LORA_SIMD
          for (Index j = 0; j < cols; ++j) to[j] += from[j];
        }
    });
  }

 private:
  static constexpr Index group = 8;  ///< rows that tile_product takes together
  static constexpr Index tile_rows = 32, tile_cols = 256, most_sums = 32;

  /// Rows of a block: about 256, in blocks of even size and number.
  static Index block_extent(Index rows) {
    const Index blocks = std::min(most_sums, 2 * ((rows + 511) / 512));
    return padded((rows + blocks - 1) / blocks, tile_rows);
  }
  static Index blocks_of(Index rows) { return (rows + block_extent(rows) - 1) / block_extent(rows); }

  /// Rows [i, i + count) of dh, and what they add to db.
  void form_tile(Index i, Index count, View<Device, A> b_transposed, A* spare, A* sum) const {
    const Index rank = b.rows(), wide = padded(rank), cols = dy.cols();
    A *const h_tile = spare, *const dh_tile = spare + tile_rows * wide;
    for (Index r = 0; r < count; ++r) load_row(h.row(i + r), rank, wide, h_tile + r * wide);
    // A last group of fewer rows is formed from the eight that end with it.
    const Index whole_rows = count / group * group, rest = i + count - group;
    for (Index j = 0; j < cols; j += tile_cols) {
      const Index width = std::min(tile_cols, cols - j);
      const A* const right = b_transposed.row(j);
      tile_product<SingleWords<A>>(whole_rows, dy.row(i) + j, dy.stride(), 1, right, wide, dh_tile, wide, j > 0,
                                   whole(width, wide));
      tile_product<SingleWords<A>>(wide, h_tile, 1, wide, dy.row(i) + j, dy.stride(), sum + j, cols, true,
                                   whole(count, width));
    }
    for (Index r = 0; r < whole_rows; ++r) std::copy_n(dh_tile + r * wide, rank, dh.row(i + r));
    if (whole_rows == count) return;
    tile_product<SingleWords<A>>(group, dy.row(rest), dy.stride(), 1, b_transposed.data(), wide, dh_tile, wide, false,
                                 whole(cols, wide));
    for (Index r = whole_rows - (rest - i); r < group; ++r) std::copy_n(dh_tile + r * wide, rank, dh.row(rest + r));
  }
};

}  // namespace lora::cpu::detail

namespace lora::kernel {

template <>
struct LowRank<cpu::Device> {
  template <class T>
  static void backward(cpu::Device& dev, View<cpu::Device, const T> dy, View<cpu::Device, const T> h,
                       View<cpu::Device, const T> b, View<cpu::Device, T> dh, View<cpu::Device, Accum<T>> db) {
    if constexpr (std::same_as<T, Accum<T>>) {
      using Fused = cpu::detail::LowRankBackward<T>;
      if (Fused::takes(dy.rows(), dy.cols(), b.rows(), dev.threads())) return Fused{dy, h, b, dh, db}.run(dev);
    }
    Gemm<cpu::Device>::run(dev, Form::nt, dy, b, dh, 1.0, false);
    Gemm<cpu::Device>::run(dev, Form::tn, h, dy, db, 1.0, true);
  }
};

}  // namespace lora::kernel
