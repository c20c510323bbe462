#pragma once

#include <cmath>
#include <limits>
#include <span>

#include "lora/cpu/attention_tile.hpp"
#include "lora/cpu/device.hpp"
#include "lora/cpu/stored_row.hpp"
#include "lora/kernel/attention.hpp"

namespace lora::cpu::detail {

using kernel::AttentionShape;
using kernel::Segment;

template <class T>
using In = View<Device, const T>;
template <class T>
using Rows = View<Device, T>;

/// Hands out pieces of one thread's scratch; with no memory behind it, only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class V>
  void take(V*& piece, Index count) {
    piece = memory_ == nullptr ? nullptr : reinterpret_cast<V*>(memory_ + used_);
    used_ += padded(count * static_cast<Index>(sizeof(V)), 64);
  }
  Index used() const { return used_; }

 private:
  std::byte* memory_;
  Index used_ = 0;
};

/// Scratch of one thread and the steps on a tile that forward and backward share.
template <class T, class L>
struct AttentionTile {
  using A = Accum<T>;
  using R = decltype(real_part(A{}));
  using Word = typename L::Word;
  static constexpr Index pairing = L::pairing;

  /// What is wanted of the memory.
  enum class Use { forward, backward };

  AttentionTile(Use use, const AttentionShape& attention, Pieces& pieces)
      : width(attention.width),
        pad(padded(width)),
        words((width + pairing - 1) / pairing),
        repeat(attention.heads / attention.kv_heads),
        queries(std::max<Index>(1, query_rows / repeat)),
        scale(static_cast<A>(attention.scale)) {
    const Index rows = padded(queries * repeat);
    pieces.take(spare, key_tile * pad);
    pieces.take(q, rows * pad / pairing);
    pieces.take(k_columns, words * key_tile);
    pieces.take(s, rows * key_tile);
    p = s_as_words();
    if (use == Use::forward) {
      pieces.take(v_stacked_copy, key_tile * pad / pairing);
      pieces.take(o, rows * pad);
      pieces.take(top, rows);
      pieces.take(total, rows);
      if constexpr (pairing > 1) pieces.take(p, rows * key_tile / pairing);
      return;
    }
    pieces.take(v_columns, words * key_tile);
    pieces.take(k_stacked_copy, key_tile * pad / pairing);
    pieces.take(dout, rows * pad / pairing);
    pieces.take(dp, rows * key_tile);
    pieces.take(o, rows * pad);
    pieces.take(lse, rows);
    pieces.take(delta, rows);
    q_stacked = q;
    dout_stacked = dout;
    ds = ds_stacked = dp_as_words();
    if constexpr (pairing > 1) {
      pieces.take(q_stacked, rows * pad / pairing);
      pieces.take(dout_stacked, rows * pad / pairing);
      pieces.take(p, rows * key_tile / pairing);
      pieces.take(ds, rows * key_tile / pairing);
      pieces.take(ds_stacked, rows * key_tile / pairing);
    }
  }

  /// Where `count` rows of this head begin: keys or values from `from`, `stride` apart, as the inner extent of a
  /// product. They stay where they are if they can be read there.
  const Word* stacked(const T* from, Index stride, Index count, Word* copy, Index& row) const {
    if constexpr (std::same_as<T, Word>) {
      if (width == pad) {
        row = stride;
        return from;
      }
    }
    row = pad;
    L::stacked(
        count, padded(count, pairing), width, pad, [=](Index r) { return from + r * stride; }, copy);
    return copy;
  }

  /// What rows [r, r + n) of a product with the keys' columns need: all of the inner extent, the columns they see.
  auto columns_seen(const QueryTile& tile, Index key, Index count) const {
    return [&tile, key, count, depth = words](Index r, Index n) {
      return TileRange{0, depth, tile.seen(r + n - 1, key, count)};
    };
  }
  /// What they need of a product over the keys: those they see, all columns.
  auto keys_seen(const QueryTile& tile, Index key, Index count) const {
    return [&tile, key, count, columns = width](Index r, Index n) {
      return TileRange{0, (tile.seen(r + n - 1, key, count) + pairing - 1) / pairing, columns};
    };
  }
  /// What the keys [j, j + n) of the tile need of a product over the queries: those that see the first of them.
  auto queries_seeing(const QueryTile& tile, Index key) const {
    return [&tile, key, columns = width](Index j, Index) {
      return TileRange{tile.first_seeing(key + j) / pairing, (tile.rows() + pairing - 1) / pairing, columns};
    };
  }

  Index width, pad, words, repeat, queries;
  A scale;
  Word *q = nullptr, *q_stacked = nullptr, *dout = nullptr, *dout_stacked = nullptr;
  Word *k_columns = nullptr, *v_columns = nullptr, *k_stacked_copy = nullptr, *v_stacked_copy = nullptr;
  Word *p = nullptr, *ds = nullptr, *ds_stacked = nullptr, *spare = nullptr;
  A *s = nullptr, *dp = nullptr, *o = nullptr, *total = nullptr, *lse = nullptr, *delta = nullptr;
  R* top = nullptr;

 private:
  Word* s_as_words() { return as_words(s); }
  Word* dp_as_words() { return as_words(dp); }
  static Word* as_words(A* sums) {
    if constexpr (std::same_as<A, Word>) {
      return sums;
    } else {
      return nullptr;
    }
  }
};

/// One call's operands, and its work on one tile.
template <class T, class L>
struct AttentionForward {
  using A = Accum<T>;
  using Tile = AttentionTile<T, L>;

  AttentionShape shape;
  In<T> q, k, v;
  std::span<const Segment> queries, keys;
  Rows<T> out;
  Rows<A> lse;  // empty: not wanted

  /// out and lse of the queries from `begin` on, as many as a tile takes, for all heads that share key head g.
  void run(Tile& t, std::size_t segment, Index g, Index begin) const {
    const Segment &of_q = queries[segment], &of_k = keys[segment];
    const QueryTile tile{begin, std::min(begin + t.queries, of_q.size()), t.repeat, of_k.size() - of_q.size()};
    const Index rows = tile.rows(), all = padded(rows, 8), pad = t.pad;
    const auto row_of = [&](const auto& x, Index r) {
      return x.row(of_q.begin + begin + r / t.repeat) + (g * t.repeat + r % t.repeat) * t.width;
    };
    L::rows(
        rows, all, t.width, pad, [&](Index r) { return row_of(q, r); }, t.q);
    std::fill_n(t.o, all * pad, A(0));
    std::fill_n(t.total, all, A(0));
    std::fill_n(t.top, all, -std::numeric_limits<typename Tile::R>::infinity());

    const Index end = tile.keys_seen(rows - 1);
    for (Index key = 0; key < end; key += key_tile) {
      const Index count = std::min(key_tile, end - key);
      L::transposed(k.row(of_k.begin + key) + g * t.width, k.stride(), count, t.width, pad, t.spare, t.k_columns,
                    key_tile);
      Index v_row = 0;
      const auto* const values =
          t.stacked(v.row(of_k.begin + key) + g * t.width, v.stride(), count, t.v_stacked_copy, v_row);
      tile_product<L>(all, t.q, pad / L::pairing, Index{1}, t.k_columns, key_tile, t.s, key_tile, false,
                      t.columns_seen(tile, key, count));
      for (Index r = tile.first_block_seeing(key); r < all; ++r)
        probabilities(t, r, r < rows ? tile.seen(r, key, count) : 0);
      tile_product<L>(all, t.p, key_tile / L::pairing, Index{1}, values, v_row, t.o, pad, true,
                      t.keys_seen(tile, key, count));
    }
    for (Index r = 0; r < rows; ++r) {
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
  /// Row r of scores, of which the first `seen` count, becomes exp(score − top); a new top shrinks what is there.
  static void probabilities(Tile& t, Index r, Index seen) {
    A* const row = t.s + r * key_tile;
    if (seen > 0) {
      const Index wide = padded(seen);
      for (Index j = seen; j < wide; ++j) row[j] = row[0];
      const auto top = largest(row, wide) * real_part(t.scale);
      if (top > t.top[r]) {
        const auto shrink = cpu::exp(t.top[r] - top);
        t.total[r] *= shrink;
        A* const o = t.o + r * t.pad;
        LORA_SIMD
        for (Index c = 0; c < t.pad; ++c) o[c] *= shrink;
        t.top[r] = top;
      }
      exponentials(row, seen, key_tile, t.scale, t.top[r]);
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
struct AttentionBackward {
  using A = Accum<T>;
  using Tile = AttentionTile<T, L>;

  AttentionShape shape;
  In<T> q, k, v, out, dout;
  std::span<const Segment> segments;
  In<A> lse;

  /// Queries from `begin` on with their gradient, laid out; delta = Σ dout ∘ out.
  QueryTile load_queries(Tile& t, const Segment& segment, Index g, Index begin) const {
    const QueryTile tile{begin, std::min(begin + t.queries, segment.size()), t.repeat, 0};
    const Index rows = tile.rows(), all = padded(rows, 8);
    const auto of = [&](const In<T>& x) { return [&](Index r) { return row_of(t, x, segment, g, begin, r); }; };
    L::rows(rows, all, t.width, t.pad, of(q), t.q);
    L::rows(rows, all, t.width, t.pad, of(dout), t.dout);
    if constexpr (L::pairing > 1) {
      L::stacked(rows, all, t.width, t.pad, of(q), t.q_stacked);
      L::stacked(rows, all, t.width, t.pad, of(dout), t.dout_stacked);
    }
    for (Index r = 0; r < rows; ++r) {
      t.delta[r] = L::dot(of(out)(r), of(dout)(r), t.width, t.pad, t.spare);
      t.lse[r] = lse.row(segment.begin + begin + r / t.repeat)[g * t.repeat + r % t.repeat];
    }
    return tile;
  }

  /// Adds what the loaded queries and the keys [key, key + count) give each other: dk, dv (rows of `pad` sums from
  /// `key` on) and t.o, the gradient of the queries; either may be unwanted.
  void add(Tile& t, const QueryTile& tile, const Segment& segment, Index g, Index key, A* dk, A* dv, bool dq) const {
    const Index rows = tile.rows(), all = padded(rows, 8), pad = t.pad;
    const Index count = std::min(key_tile, tile.keys_seen(rows - 1) - key);
    const T* const keys = k.row(segment.begin + key) + g * t.width;
    L::transposed(keys, k.stride(), count, t.width, pad, t.spare, t.k_columns, key_tile);
    L::transposed(v.row(segment.begin + key) + g * t.width, v.stride(), count, t.width, pad, t.spare, t.v_columns,
                  key_tile);
    tile_product<L>(all, t.q, pad / L::pairing, Index{1}, t.k_columns, key_tile, t.s, key_tile, false,
                    t.columns_seen(tile, key, count));
    tile_product<L>(all, t.dout, pad / L::pairing, Index{1}, t.v_columns, key_tile, t.dp, key_tile, false,
                    t.columns_seen(tile, key, count));
    for (Index r = tile.first_block_seeing(key); r < all; ++r)
      score_gradient(t, r, r < rows ? tile.seen(r, key, count) : 0);
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

  /// The gradient of one tile of queries, and with dk, dv its part of the keys'.
  void queries(Tile& t, const Segment& segment, Index g, Index begin, Rows<T> dq, A* dk, A* dv) const {
    const QueryTile tile = load_queries(t, segment, g, begin);
    std::fill_n(t.o, padded(tile.rows(), 8) * t.pad, A(0));
    for (Index key = 0; key < tile.end; key += key_tile)
      add(t, tile, segment, g, key, dk == nullptr ? nullptr : dk + key * t.pad,
          dv == nullptr ? nullptr : dv + key * t.pad, true);
    for (Index r = 0; r < tile.rows(); ++r) store_row(t.o + r * t.pad, t.width, row_of(t, dq, segment, g, begin, r));
  }

  /// The gradients of one tile of keys, from all queries that see them.
  void keys(Tile& t, const Segment& segment, Index g, Index key, Rows<T> dk, Rows<T> dv, A* dk_sums, A* dv_sums) const {
    std::fill_n(dk_sums, key_tile * t.pad, A(0));
    std::fill_n(dv_sums, key_tile * t.pad, A(0));
    for (Index begin = key / t.queries * t.queries; begin < segment.size(); begin += t.queries)
      add(t, load_queries(t, segment, g, begin), segment, g, key, dk_sums, dv_sums, false);
    store_keys(t, segment, g, key, std::min(key_tile, segment.size() - key), dk, dv, dk_sums, dv_sums);
  }

  void store_keys(Tile& t, const Segment& segment, Index g, Index key, Index count, Rows<T> dk, Rows<T> dv,
                  const A* dk_sums, const A* dv_sums) const {
    for (Index j = 0; j < count; ++j) {
      store_row(dk_sums + j * t.pad, t.width, dk.row(segment.begin + key + j) + g * t.width);
      store_row(dv_sums + j * t.pad, t.width, dv.row(segment.begin + key + j) + g * t.width);
    }
  }

 private:
  template <class X>
  static auto row_of(const Tile& t, const X& x, const Segment& segment, Index g, Index begin, Index r) {
    return x.row(segment.begin + begin + r / t.repeat) + (g * t.repeat + r % t.repeat) * t.width;
  }

  static void store_row(const A* from, Index count, T* to) {
    LORA_SIMD
    for (Index c = 0; c < count; ++c) to[c] = narrowed<T>(from[c]);
  }

  /// Row r, of which the first `seen` keys count: p = exp(score − lse), ds = scale · p ∘ (dp − delta).
  static void score_gradient(Tile& t, Index r, Index seen) {
    A *const p = t.s + r * key_tile, *const ds = t.dp + r * key_tile;
    exponentials(p, seen, key_tile, t.scale, t.lse[r]);
    softmax_gradient(p, ds, seen, key_tile, t.scale, t.delta[r]);
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

/// A piece of work: a tile, or all, of one segment under one key head.
struct AttentionItem {
  std::size_t segment = 0;
  Index head = 0;
  Index begin = 0;
};

/// Items of `step` rows of every segment and key head; step 0: one item for all rows. The last rows, whose work is
/// the most, come first.
inline View<Device, AttentionItem> attention_items(Device& dev, std::span<const Segment> segments, Index heads,
                                                   Index step) {
  Index count = 0;
  for (const Segment& segment : segments)
    count += heads * (step == 0 ? (segment.size() > 0 ? 1 : 0) : (segment.size() + step - 1) / step);
  auto items = scratch<AttentionItem>(dev, 1, count);
  AttentionItem* next = items.data();
  for (std::size_t b = 0; b < segments.size(); ++b) {
    const Index size = segments[b].size();
    if (size == 0) continue;
    for (Index begin = step == 0 ? 0 : (size - 1) / step * step; begin >= 0; begin -= std::max<Index>(step, 1))
      for (Index head = 0; head < heads; ++head) *next++ = AttentionItem{b, head, begin};
  }
  return items;
}

/// Scratch for every thread: `bytes` each, adjacent.
inline std::byte* thread_scratch(Device& dev, Index bytes) {
  return scratch<std::byte>(dev, dev.threads(), bytes).data();
}

template <class T, class L>
void attention(Device& dev, const AttentionForward<T, L>& work) {
  using Tile = AttentionTile<T, L>;
  Arena::Scope scope(dev.arena());
  Pieces counted(nullptr);
  const Tile sizes(Tile::Use::forward, work.shape, counted);
  const auto items = attention_items(dev, work.queries, work.shape.kv_heads, sizes.queries);
  std::byte* const memory = thread_scratch(dev, counted.used());
  dev.parallel_items(items.cols(), [&](Index i) {
    Pieces pieces(memory + omp_get_thread_num() * counted.used());
    Tile tile(Tile::Use::forward, work.shape, pieces);
    const AttentionItem& item = items.data()[i];
    work.run(tile, item.segment, item.head, item.begin);
  });
}

/// The gradients. Two ways with the same bits: where there are segments and key heads enough for all threads, one item
/// makes all gradients of a segment under one key head, and every tile of scores is formed once; else one pass makes
/// the keys' gradients tile by tile and a second one the queries', forming scores twice.
template <class T, class L>
void attention_backward(Device& dev, const AttentionBackward<T, L>& work, Rows<T> dq, Rows<T> dk, Rows<T> dv) {
  using A = Accum<T>;
  using Tile = AttentionTile<T, L>;
  Arena::Scope scope(dev.arena());
  double total = 0, largest_item = 0;
  Index longest = 0;
  for (const Segment& segment : work.segments) {
    const double scores = static_cast<double>(segment.size()) * static_cast<double>(segment.size());
    total += scores * static_cast<double>(work.shape.kv_heads);
    largest_item = std::max(largest_item, scores);
    longest = std::max(longest, segment.size());
  }
  // Products per tile: 5 in one pass, 4 + 3 in two.
  const double share = total / dev.threads();
  const bool one_pass = 5 * std::max(share, largest_item) <= 7 * share;

  Pieces counted(nullptr);
  const Tile sizes(Tile::Use::backward, work.shape, counted);
  const Index sums = (one_pass ? padded(longest, key_tile) : key_tile) * sizes.pad;
  const Index tile_bytes = counted.used(), sum_bytes = padded(sums * static_cast<Index>(sizeof(A)), 64);
  const Index bytes = tile_bytes + 2 * sum_bytes;
  std::byte* const memory = thread_scratch(dev, bytes);
  const auto each = [&](const View<Device, AttentionItem>& items, const auto& body) {
    dev.parallel_items(items.cols(), [&](Index i) {
      std::byte* const own = memory + omp_get_thread_num() * bytes;
      Pieces pieces(own);
      Tile tile(Tile::Use::backward, work.shape, pieces);
      const AttentionItem& item = items.data()[i];
      body(tile, work.segments[item.segment], item, reinterpret_cast<A*>(own + tile_bytes),
           reinterpret_cast<A*>(own + tile_bytes + sum_bytes));
    });
  };

  if (one_pass) {
    each(attention_items(dev, work.segments, work.shape.kv_heads, 0),
         [&](Tile& t, const Segment& segment, const AttentionItem& item, A* dk_sums, A* dv_sums) {
           std::fill_n(dk_sums, padded(segment.size(), key_tile) * t.pad, A(0));
           std::fill_n(dv_sums, padded(segment.size(), key_tile) * t.pad, A(0));
           for (Index begin = 0; begin < segment.size(); begin += t.queries)
             work.queries(t, segment, item.head, begin, dq, dk_sums, dv_sums);
           work.store_keys(t, segment, item.head, 0, segment.size(), dk, dv, dk_sums, dv_sums);
         });
    return;
  }
  // The second pass still reads the keys and values, whose memory the gradients may share.
  const auto dk_apart = scratch<T>(dev, dk.rows(), dk.cols()), dv_apart = scratch<T>(dev, dv.rows(), dv.cols());
  each(attention_items(dev, work.segments, work.shape.kv_heads, key_tile),
       [&](Tile& t, const Segment& segment, const AttentionItem& item, A* dk_sums, A* dv_sums) {
         work.keys(t, segment, item.head, item.begin, dk_apart, dv_apart, dk_sums, dv_sums);
       });
  each(attention_items(dev, work.segments, work.shape.kv_heads, sizes.queries),
       [&](Tile& t, const Segment& segment, const AttentionItem& item, A*, A*) {
         work.queries(t, segment, item.head, item.begin, dq, nullptr, nullptr);
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

namespace lora::kernel {

/// Tiles of about 192 query rows (queries times the heads that share a key head) against 64 keys. Each tile's result
/// depends on its own segment alone, and sums are formed in one order, so that bits depend neither on the number of
/// threads nor on the other segments. Memory grows linearly with the longest segment.
///
/// In backward dq may share memory with q, out or dout, dk with k and dv with v, row for row. Rows of no segment stay
/// untouched.
template <>
struct Attention<cpu::Device> {
  /// The log of each row's sum of exponentials.
  template <class T>
  struct Saved {
    View<cpu::Device, Accum<T>> lse;  // (N, H)
  };

  template <class T>
  static Saved<T> save(cpu::Device& dev, Index rows, Index heads) {
    return {lora::save<Accum<T>>(dev, rows, heads)};
  }

  template <class T>
  static void run(cpu::Device& dev, const AttentionShape& shape, View<cpu::Device, const T> q,
                  View<cpu::Device, const T> k, View<cpu::Device, const T> v, std::span<const Segment> queries,
                  std::span<const Segment> keys, View<cpu::Device, T> out, Saved<T>* saved) {
    cpu::detail::with_layout<T>([&]<class L>() {
      const View<cpu::Device, Accum<T>> lse = saved == nullptr ? View<cpu::Device, Accum<T>>() : saved->lse;
      cpu::detail::attention(dev, cpu::detail::AttentionForward<T, L>{shape, q, k, v, queries, keys, out, lse});
    });
  }

  template <class T>
  static void backward(cpu::Device& dev, const AttentionShape& shape, View<cpu::Device, const T> q,
                       View<cpu::Device, const T> k, View<cpu::Device, const T> v, View<cpu::Device, const T> out,
                       std::span<const Segment> segments, const Saved<T>& saved, View<cpu::Device, const T> dout,
                       View<cpu::Device, T> dq, View<cpu::Device, T> dk, View<cpu::Device, T> dv) {
    cpu::detail::with_layout<T>([&]<class L>() {
      cpu::detail::attention_backward(
          dev, cpu::detail::AttentionBackward<T, L>{shape, q, k, v, out, dout, segments, saved.lse}, dq, dk, dv);
    });
  }
};

}  // namespace lora::kernel
