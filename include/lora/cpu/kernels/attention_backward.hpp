#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "lora/cpu/kernels/attention_tile.hpp"

namespace lora::cpu::detail {

template <class T, class L>
struct AttentionBackward {
  using A = Accum<T>;
  using Tile = AttentionTile<T, L>;

  AttentionShape shape;
  In<T> q, k, v, out, dout;
  std::span<const Segment> segments;
  In<A> lse;

  /// The queries of segment b from `begin` on.
  QueryTile tile_of(const Tile& t, std::size_t b, Index begin) const {
    return {begin, std::min(begin + t.queries, segments[b].size()), t.repeat, lead_of(b), shape.window};
  }

  /// Packs them and their gradient; delta = Σ dout ∘ out.
  void load_queries(Tile& t, std::size_t b, Index g, const QueryTile& tile) const {
    const Segment& segment = segments[b];
    const Index begin = tile.begin, rows = tile.rows(), all = padded(rows, 8);
    const auto of = [&](const In<T>& x) { return [&](Index r) { return row_of(t, x, segment, g, begin, r); }; };
    L::rows(rows, all, t.width, t.pad, of(q), t.q);
    L::rows(rows, all, t.width, t.pad, of(dout), t.dout);
    if constexpr (L::pairing > 1) {
      L::stacked(rows, all, t.width, t.pad, of(q), t.q_stacked);
      L::stacked(rows, all, t.width, t.pad, of(dout), t.dout_stacked);
    }
    for (Index r = 0; r < rows; ++r) {
      if (r + prefetch_distance < rows) prefetch_row(of(out)(r + prefetch_distance), t.width);
      t.delta[r] = L::dot(of(out)(r), of(dout)(r), t.width, t.pad, t.spare);
      t.lse[r] = lse.row(segment.begin + begin + r / t.repeat)[g * t.repeat + r % t.repeat];
    }
  }

  /// Adds the gradients of the loaded queries and a tile of keys: dk, dv (rows of `pad` sums of these keys) and t.o,
  /// the gradient of the queries; either may be left out.
  void add(Tile& t, const QueryTile& tile, Index g, const KeyTile& of_k, A* dk, A* dv, bool dq) const {
    const Index rows = tile.rows(), all = padded(rows, 8), pad = t.pad;
    const Index key = of_k.key, count = of_k.count;
    const T* const keys = k.row(of_k.row) + g * t.width;
    L::transposed(keys, k.stride(), count, t.width, pad, t.spare, t.k_columns, key_tile);
    L::transposed(v.row(of_k.row) + g * t.width, v.stride(), count, t.width, pad, t.spare, t.v_columns, key_tile);
    tile_product<L>(all, t.q, pad / L::pairing, Index{1}, t.k_columns, key_tile, t.s, key_tile, false,
                    t.columns_seen(tile, key, count));
    tile_product<L>(all, t.dout, pad / L::pairing, Index{1}, t.v_columns, key_tile, t.dp, key_tile, false,
                    t.columns_seen(tile, key, count));
    const Index first = tile.first_block_seeing(key);
    for (Index r = first; r < all; ++r) {
      // With the keys' gradients alone, the next tile has other queries, not other keys.
      if (dq) t.prefetch_keys(k, v, g, of_k.row + key_tile, r - first, of_k.rows_end);
      score_gradient(t, r, r < rows ? tile.seen_keys(r, key, count) : SeenKeys{});
    }
    if (dk != nullptr) {
      tile_product<L>(padded(count, 8), t.p, Index{1}, key_tile, t.dout_stacked, pad, dv, pad, true,
                      t.queries_seeing(tile, key));
      tile_product<L>(padded(count, 8), t.ds_stacked, Index{1}, key_tile, t.q_stacked, pad, dk, pad, true,
                      t.queries_seeing(tile, key));
    }
    if (dq) {
      Index k_row = 0;
      const auto* const stacked = t.stacked(keys, k.stride(), count, t.k_stacked_copy, k_row);
      tile_product<L>(all, t.ds, key_tile / L::pairing, Index{1}, stacked, k_row, t.o, pad, true,
                      t.keys_seen(tile, key, count));
    }
  }

  /// The gradient of one tile of queries of segment b, and with dk, dv its contribution to the keys' of its tree, whose
  /// sums begin with row `first`.
  void queries(Tile& t, std::size_t b, Index g, Index begin, Rows<T> dq, Index first, A* dk, A* dv) const {
    const QueryTile tile = tile_of(t, b, begin);
    load_queries(t, b, g, tile);
    std::fill_n(t.o, padded(tile.rows(), 8) * t.pad, A(0));
    for_key_tiles(segments, b, tile.first_key(0), tile.keys_seen(tile.rows() - 1), [&](const KeyTile& of_k) {
      const Index place = (of_k.row - first) * t.pad;
      add(t, tile, g, of_k, dk == nullptr ? nullptr : dk + place, dv == nullptr ? nullptr : dv + place, true);
    });
    for (Index r = 0; r < tile.rows(); ++r)
      store_row(t.o + r * t.pad, t.width, row_of(t, dq, segments[b], g, begin, r));
  }

  /// The gradients of the tile of keys of segment b from number `key` on, from all queries that see them: the
  /// segment's, then those of what descends from it.
  void keys(Tile& t, std::size_t b, Index g, Index key, Rows<T> dk, Rows<T> dv, A* dk_sums, A* dv_sums) const {
    const Segment& segment = segments[b];
    const Index lead = lead_of(b), row = segment.begin + key, count = std::min(key_tile, segment.size() - key);
    std::fill_n(dk_sums, key_tile * t.pad, A(0));
    std::fill_n(dv_sums, key_tile * t.pad, A(0));
    const auto add_queries = [&](std::size_t of, Index from) {
      for (Index begin = from; begin < segments[of].size(); begin += t.queries) {
        const QueryTile tile = tile_of(t, of, begin);
        if (tile.first_key(0) >= lead + key + count)
          break;  // the windows of these and later ones begin behind the keys
        load_queries(t, of, g, tile);
        const Index seen = std::min(count, tile.keys_seen(tile.rows() - 1) - lead - key);
        add(t, tile, g, {lead + key, row, seen, row + seen}, dk_sums, dv_sums, false);
      }
    };
    add_queries(b, key / t.queries * t.queries);
    const auto end = static_cast<std::size_t>(kernel::end_of_tree(segments, static_cast<Index>(b)));
    for (std::size_t of = b + 1; of < end; ++of) add_queries(of, 0);
    store_keys(t, g, {row, row + count}, dk, dv, dk_sums, dv_sums);
  }

  void store_keys(Tile& t, Index g, const Segment& rows, Rows<T> dk, Rows<T> dv, const A* dk_sums,
                  const A* dv_sums) const {
    for (Index j = 0; j < rows.size(); ++j) {
      store_row(dk_sums + j * t.pad, t.width, dk.row(rows.begin + j) + g * t.width);
      store_row(dv_sums + j * t.pad, t.width, dv.row(rows.begin + j) + g * t.width);
    }
  }

 private:
  Index lead_of(std::size_t b) const { return kernel::sequence_rows(segments, segments[b].parent); }

  template <class X>
  static auto row_of(const Tile& t, const X& x, const Segment& segment, Index g, Index begin, Index r) {
    return x.row(segment.begin + begin + r / t.repeat) + (g * t.repeat + r % t.repeat) * t.width;
  }

  static void store_row(const A* from, Index count, T* to) {
    LORA_SIMD
    for (Index c = 0; c < count; ++c) to[c] = narrowed<T>(from[c]);
  }

  /// Row r, of the keys that it sees: p = exp(score − lse), ds = scale · p ∘ (dp − delta), and with a cap times its
  /// slope; 0 of others.
  static void score_gradient(Tile& t, Index r, const SeenKeys& seen) {
    A *const p = t.s + r * key_tile, *const ds = t.dp + r * key_tile;
    A delta = t.delta[r];
    if (t.caps) {
      cap_scores(p, seen.end, t.scale, t.cap, t.cap_inverse);
      add_cap_slopes(p, ds, seen.end, std::exchange(delta, A(0)), t.cap_inverse);
    }
    exponentials(p, seen.end, key_tile, t.score_scale(), t.lse[r]);
    std::fill_n(p, seen.first, A(0));
    softmax_gradient(p, ds, seen.end, key_tile, t.scale, delta);
#if defined(LORA_BF16_PAIRS)
    if constexpr (L::pairing == 2) {
      round_to_words(ds, key_tile, t.ds + r * key_tile / 2);
      if (r % 2 == 1) {
        interleave(p - key_tile, p, key_tile, t.p + r / 2 * key_tile);
        interleave(ds - key_tile, ds, key_tile, t.ds_stacked + r / 2 * key_tile);
      }
    }
#endif
  }
};

/// The rows of the tree whose root is segment b.
inline Segment tree_rows(std::span<const Segment> segments, std::size_t b) {
  const Index end = kernel::end_of_tree(segments, static_cast<Index>(b));
  return {segments[b].begin, segments[static_cast<std::size_t>(end) - 1].end};
}

/// The gradients. Two ways with the same bits, of finite numbers: where there are trees and key heads enough for all
/// threads, one item computes all gradients of a tree and key head, and every tile of scores once; else one pass
/// computes the keys' gradients tile by tile and a second one the queries', which computes the scores twice.
template <class T, class L>
void attention_backward(Device& dev, const AttentionBackward<T, L>& work, Rows<T> dq, Rows<T> dk, Rows<T> dv) {
  using A = Accum<T>;
  using Tile = AttentionTile<T, L>;
  Arena::Scope scope(dev.arena());
  double total = 0, largest_item = 0, scores = 0;
  Index longest = 0, trees = 0, all_rows = 0;
  for (std::size_t b = 0; b < work.segments.size(); ++b) {
    const Segment& segment = work.segments[b];
    if (segment.parent < 0) {
      scores = 0;
      const Index rows = tree_rows(work.segments, b).size();
      if (rows > 0) ++trees;
      all_rows += rows;
      // Sums of whole blocks of rows, which begin anywhere where a part does.
      longest = std::max(longest, rows == segment.size() ? rows : rows + 7);
    }
    const double more = kernel::visible_pairs(work.segments, work.segments, b, work.shape.window);
    scores += more;
    total += more * static_cast<double>(work.shape.kv_heads);
    largest_item = std::max(largest_item, scores);
  }
  // Products per tile: 5 in one pass, 4 + 3 in two. A tree may have many rows for its work: the sums of one for every
  // thread must fit into what is allowed for those of all rows (kernel::Buffers).
  const double share = total / dev.threads();
  const bool one_pass =
      5 * std::max(share, largest_item) <= 7 * share &&
      static_cast<double>(dev.threads() * longest) <= 1.4 * static_cast<double>(work.shape.kv_heads * all_rows);

  Pieces counted(nullptr);
  const Tile sizes(Tile::Use::backward, work.shape, counted);
  const Index sums = (one_pass ? padded(longest, key_tile) : key_tile) * sizes.pad;
  const Index tile_bytes = counted.used(), sum_bytes = padded(sums * static_cast<Index>(sizeof(A)), 64);
  const Index bytes = tile_bytes + 2 * sum_bytes;
  std::byte* const memory = thread_scratch(dev, bytes);
  const auto each = [&](const View<Device, AttentionItem>& items, const auto& body) {
    const auto form = [&](Index i) {
      std::byte* const own = memory + omp_get_thread_num() * bytes;
      Pieces pieces(own);
      Tile tile(Tile::Use::backward, work.shape, pieces);
      body(tile, items.data()[i], reinterpret_cast<A*>(own + tile_bytes),
           reinterpret_cast<A*>(own + tile_bytes + sum_bytes));
    };
    dev.parallel_items(items.cols(), form, 2 * attention_work(work.segments, work.segments, work.shape, items.cols()));
  };

  if (one_pass) {
    const auto items = scratch<AttentionItem>(dev, 1, trees * work.shape.kv_heads);
    AttentionItem* next = items.data();
    for (std::size_t b = 0; b < work.segments.size(); ++b)
      if (work.segments[b].parent < 0 && tree_rows(work.segments, b).size() > 0)
        for (Index head = 0; head < work.shape.kv_heads; ++head) *next++ = {b, head, 0};
    each(items, [&](Tile& t, const AttentionItem& item, A* dk_sums, A* dv_sums) {
      const Segment tree = tree_rows(work.segments, item.segment);
      const auto end = static_cast<std::size_t>(kernel::end_of_tree(work.segments, static_cast<Index>(item.segment)));
      const Index rows = padded(tree.size() + (end - item.segment > 1 ? 7 : 0), key_tile);
      std::fill_n(dk_sums, rows * t.pad, A(0));
      std::fill_n(dv_sums, rows * t.pad, A(0));
      for (std::size_t b = item.segment; b < end; ++b)
        for (Index begin = 0; begin < work.segments[b].size(); begin += t.queries)
          work.queries(t, b, item.head, begin, dq, tree.begin, dk_sums, dv_sums);
      work.store_keys(t, item.head, tree, dk, dv, dk_sums, dv_sums);
    });
    return;
  }
  // The second pass still reads the keys and values, whose memory the gradients may share.
  const auto dk_apart = scratch<T>(dev, dk.rows(), dk.cols()), dv_apart = scratch<T>(dev, dv.rows(), dv.cols());
  const auto all = [](std::size_t) { return true; };
  each(attention_items(dev, work.segments, work.shape.kv_heads, key_tile, all),
       [&](Tile& t, const AttentionItem& item, A* dk_sums, A* dv_sums) {
         work.keys(t, item.segment, item.head, item.begin, dk_apart, dv_apart, dk_sums, dv_sums);
       });
  each(attention_items(dev, work.segments, work.shape.kv_heads, sizes.queries, all),
       [&](Tile& t, const AttentionItem& item, A*, A*) {
         work.queries(t, item.segment, item.head, item.begin, dq, 0, nullptr, nullptr);
       });
  for (const Segment& segment : work.segments)
    dev.parallel_for(segment.size(), 64, [&](Index begin, Index end) {
      for (Index i = segment.begin + begin; i < segment.begin + end; ++i) {
        std::copy_n(dk_apart.row(i), dk.cols(), dk.row(i));
        std::copy_n(dv_apart.row(i), dv.cols(), dv.row(i));
      }
    });
}

}  // namespace lora::cpu::detail
