#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>

#include "lora/cpu/kernels/attention_step.hpp"
#include "lora/cpu/kernels/attention_tile.hpp"

namespace lora::cpu::detail {

/// The operands of a call, and the work on one tile.
template <class T, class L>
struct AttentionForward {
  using A = Accum<T>;
  using Tile = AttentionTile<T, L>;

  AttentionShape shape;
  In<T> q, k, v;
  std::span<const Segment> queries, keys;
  Rows<T> out;
  Rows<A> lse;  // empty: not needed

  /// out and lse of the queries from `begin` on, a tile of them, for all heads that share key head g.
  void run(Tile& t, std::size_t segment, Index g, Index begin) const {
    const Segment& of_q = queries[segment];
    const Index lead = kernel::sequence_rows(keys, static_cast<Index>(segment)) - of_q.size();
    const QueryTile tile{begin, std::min(begin + t.queries, of_q.size()), t.repeat, lead, shape.window};
    const Index rows = tile.rows(), all = padded(rows, 8), pad = t.pad;
    const auto row_of = [&](const auto& x, Index r) {
      return x.row(of_q.begin + begin + r / t.repeat) + (g * t.repeat + r % t.repeat) * t.width;
    };
    L::rows(
        rows, all, t.width, pad, [&](Index r) { return row_of(q, r); }, t.q);
    std::fill_n(t.o, all * pad, A(0));
    std::fill_n(t.total, all, A(0));
    std::fill_n(t.top, all, -std::numeric_limits<typename Tile::R>::infinity());

    for_key_tiles(keys, segment, tile.first_key(0), tile.keys_seen(rows - 1), [&](const KeyTile& of_k) {
      const Index key = of_k.key, count = of_k.count;
      L::transposed(k.row(of_k.row) + g * t.width, k.stride(), count, t.width, pad, t.spare, t.k_columns, key_tile);
      Index v_row = 0;
      const auto* const values = t.stacked(v.row(of_k.row) + g * t.width, v.stride(), count, t.v_stacked_copy, v_row);
      tile_product<L>(all, t.q, pad / L::pairing, Index{1}, t.k_columns, key_tile, t.s, key_tile, false,
                      t.columns_seen(tile, key, count));
      const Index first = tile.first_block_seeing(key);
      for (Index r = first; r < all; ++r) {
        t.prefetch_keys(k, v, g, of_k.row + key_tile, r - first, of_k.rows_end);
        probabilities(t, r, r < rows ? tile.seen_keys(r, key, count) : SeenKeys{});
      }
      tile_product<L>(all, t.p, key_tile / L::pairing, Index{1}, values, v_row, t.o, pad, true,
                      t.keys_seen(tile, key, count));
    });
    for (Index r = 0; r < rows; ++r) {
      if (r + prefetch_distance < rows) prefetch_row(row_of(out, r + prefetch_distance), t.width);
      const A share = A(1) / t.total[r];
      T* const to = row_of(out, r);
      const A* const from = t.o + r * pad;
      LORA_SIMD
      for (Index c = 0; c < t.width; ++c) to[c] = narrowed<T>(from[c] * share);
      if (!lse.empty())
        lse.row(of_q.begin + begin + r / t.repeat)[g * t.repeat + r % t.repeat] = t.top[r] + std::log(t.total[r]);
    }
  }

 private:
  /// Row r of scores becomes exp(score − top) of the keys that it sees, 0 of others; a new top rescales the sums so
  /// far.
  static void probabilities(Tile& t, Index r, const SeenKeys& seen) {
    A* const row = t.s + r * key_tile;
    if (seen.end > 0) {
      const Index wide = padded(seen.end);
      const A scale = t.score_scale();
      if (t.caps) cap_scores(row, seen.end, t.scale, t.cap, t.cap_inverse);
      for (Index j = seen.end; j < wide; ++j) row[j] = row[seen.first];
      for (Index j = 0; j < seen.first; ++j) row[j] = row[seen.first];
      const auto top = largest(row, wide) * real_part(scale);
      if (top > t.top[r]) {
        const auto shrink = cpu::exp(t.top[r] - top);
        t.total[r] *= shrink;
        A* const o = t.o + r * t.pad;
        LORA_SIMD
        for (Index c = 0; c < t.pad; ++c) o[c] *= shrink;
        t.top[r] = top;
      }
      exponentials(row, seen.end, key_tile, scale, t.top[r]);
      std::fill_n(row, seen.first, A(0));
      t.total[r] += sum(row, wide);
    } else {
      std::fill_n(row, key_tile, A(0));
    }
#if defined(LORA_BF16_PAIRS)
    if constexpr (L::pairing == 2) round_to_words(row, key_tile, t.p + r * key_tile / 2);
#endif
  }
};

template <class T, class L>
void attention(Device& dev, const AttentionForward<T, L>& work) {
  using Tile = AttentionTile<T, L>;
  constexpr bool has_steps = std::same_as<Accum<T>, float>;
  if constexpr (has_steps)
    attention_of_steps(
        dev, AttentionStep<T>{work.shape, work.q, work.k, work.v, work.queries, work.keys, work.out, work.lse});
  Arena::Scope scope(dev.arena());
  Pieces counted(nullptr);
  const Tile sizes(Tile::Use::forward, work.shape, counted);
  const auto items = attention_items(dev, work.queries, work.shape.kv_heads, sizes.queries,
                                     [&](std::size_t b) { return !has_steps || !is_step(work.queries, work.keys, b); });
  if (items.cols() == 0) return;
  std::byte* const memory = thread_scratch(dev, counted.used());
  const auto form = [&](Index i) {
    Pieces pieces(memory + omp_get_thread_num() * counted.used());
    Tile tile(Tile::Use::forward, work.shape, pieces);
    const AttentionItem& item = items.data()[i];
    work.run(tile, item.segment, item.head, item.begin);
  };
  dev.parallel_items(items.cols(), form, attention_work(work.queries, work.keys, work.shape, items.cols()));
}

}  // namespace lora::cpu::detail
