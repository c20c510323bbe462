#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

#include "lora/cpu/kernels/soft_cap.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/exp.hpp"
#include "lora/cpu/vectors/stored_row.hpp"
#include "lora/cpu/vectors/tile_layout.hpp"
#include "lora/kernel/attention.hpp"

/// What attention's forward and backward have in common: a tile (rows of queries against `key_tile` keys of one key
/// head), its scratch, and the items of work for the threads.
namespace lora::cpu::detail {

using kernel::AttentionShape;
using kernel::Segment;

template <class T>
using In = View<Device, const T>;
template <class T>
using Rows = View<Device, T>;

inline constexpr Index key_tile = 64;
inline constexpr Index query_rows = 192;

/// Keys [first, end) of a tile; none where both are 0.
struct SeenKeys {
  Index first = 0, end = 0;
};

/// The queries [begin, end) of one segment for all heads that share key head g. Row r is query begin + r / repeat under
/// head g · repeat + r % repeat, so that what a row sees neither begins nor ends before what the row above it sees.
struct QueryTile {
  Index begin = 0, end = 0;  ///< within the segment
  Index repeat = 1;          ///< H / G
  Index lead = 0;            ///< keys of the sequence minus queries of the segment
  Index window = 0;          ///< of the shape

  Index rows() const { return (end - begin) * repeat; }
  /// Keys [first_key, keys_seen) of the sequence are seen by row r.
  Index keys_seen(Index row) const { return lead + begin + row / repeat + 1; }
  Index first_key(Index row) const { return window > 0 ? std::max<Index>(0, keys_seen(row) - window) : 0; }
  /// How many of the `count` keys from `key` on row r sees or has behind it; rows past the last count as the last.
  Index seen(Index row, Index key, Index count) const {
    return std::clamp<Index>(keys_seen(std::min(row, rows() - 1)) - key, 0, count);
  }
  /// How many of them lie before its window.
  Index passed(Index row, Index key, Index count) const {
    return std::clamp<Index>(first_key(std::min(row, rows() - 1)) - key, 0, count);
  }
  /// Which of them it sees.
  SeenKeys seen_keys(Index row, Index key, Index count) const {
    const SeenKeys keys{passed(row, key, count), seen(row, key, count)};
    return keys.first < keys.end ? keys : SeenKeys{};
  }
  /// The first row that sees `key`, and the one behind the last.
  Index first_seeing(Index key) const { return std::clamp<Index>((key - lead - begin) * repeat, 0, rows()); }
  Index end_seeing(Index key) const {
    return window > 0 ? std::clamp<Index>((key + window - lead - begin) * repeat, 0, rows()) : rows();
  }
  /// The first row of its block: products of earlier blocks need neither this key nor later ones.
  Index first_block_seeing(Index key) const { return first_seeing(key) / 8 * 8; }
};

/// The largest real part of `count` numbers, a multiple of 16.
template <class A>
auto largest(const A* x, Index count) {
  if constexpr (std::floating_point<A>) {
    using Vector = typename Eigen::internal::packet_traits<A>::type;
    constexpr Index size = Eigen::internal::packet_traits<A>::size;
    auto top = Eigen::internal::ploadu<Vector>(x);
    for (Index j = size; j < count; j += size) top = Eigen::internal::pmax(top, Eigen::internal::ploadu<Vector>(x + j));
    return Eigen::internal::predux_max(top);
  } else {
    auto top = real_part(x[0]);
    for (Index j = 1; j < count; ++j) top = std::max(top, real_part(x[j]));
    return top;
  }
}

template <class A>
A sum(const A* x, Index count) {
  using Vector = typename Eigen::internal::packet_traits<A>::type;
  constexpr Index size = Eigen::internal::packet_traits<A>::size;
  auto total = Eigen::internal::ploadu<Vector>(x);
  for (Index j = size; j < count; j += size)
    total = Eigen::internal::padd(total, Eigen::internal::ploadu<Vector>(x + j));
  return Eigen::internal::predux(total);
}

/// x = exp(scale · x − shift) below `count`, 0 from there to `width`. Whole vectors are written, then the rest is
/// cleared: rows of a tile end anywhere.
template <class A, class Shift>
void exponentials(A* x, Index count, Index width, A scale, Shift shift) {
  for (Index j = 0; j < count; j += tile_step) {
    LORA_SIMD
    for (Index i = j; i < j + tile_step; ++i) x[i] = cpu::exp(x[i] * scale - shift);
  }
  std::fill(x + count, x + width, A(0));
}

/// x = cap · tanh(scale · x / cap) likewise, but that the rest is left as it comes.
template <class A>
void cap_scores(A* x, Index count, A scale, A cap, A inverse) {
  for (Index j = 0; j < count; j += tile_step) {
    LORA_SIMD
    for (Index i = j; i < j + tile_step; ++i) x[i] = cpu::capped(x[i] * scale, cap, inverse);
  }
}

/// x = (x − delta) ∘ the slope of the cap where its value is `capped`, likewise.
template <class A>
void add_cap_slopes(const A* capped, A* x, Index count, A delta, A inverse) {
  for (Index j = 0; j < count; j += tile_step) {
    LORA_SIMD
    for (Index i = j; i < j + tile_step; ++i) x[i] = (x[i] - delta) * cpu::cap_slope(capped[i], inverse);
  }
}

/// ds = scale · p ∘ (ds − delta) likewise.
template <class A>
void softmax_gradient(const A* p, A* ds, Index count, Index width, A scale, A delta) {
  for (Index j = 0; j < count; j += tile_step) {
    LORA_SIMD
    for (Index i = j; i < j + tile_step; ++i) ds[i] = scale * p[i] * (ds[i] - delta);
  }
  std::fill(ds + count, ds + width, A(0));
}

/// Hands out pieces of one thread's scratch; without memory it only counts bytes.
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

  /// What the scratch is laid out for.
  enum class Use { forward, backward };

  AttentionTile(Use use, const AttentionShape& attention, Pieces& pieces)
      : width(attention.width),
        pad(padded(width)),
        words((width + pairing - 1) / pairing),
        repeat(attention.heads / attention.kv_heads),
        queries(std::max<Index>(1, query_rows / repeat)),
        scale(static_cast<A>(attention.scale)),
        caps(attention.cap > 0),
        cap(static_cast<A>(attention.cap)),
        cap_inverse(static_cast<A>(caps ? 1 / attention.cap : 0)) {
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
  /// product. They are read in place where the layout allows it.
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

  /// Prefetches row `turn` of the tile of keys that begins at row `next` of k and v, if it lies before `end`.
  void prefetch_keys(const In<T>& k, const In<T>& v, Index g, Index next, Index turn, Index end) const {
    if (turn >= std::min(key_tile, end - next)) return;
    prefetch_row(k.row(next + turn) + g * width, width);
    prefetch_row(v.row(next + turn) + g * width, width);
  }

  /// The range that rows [r, r + n) need of a product with the keys: the whole inner extent, the visible columns.
  auto columns_seen(const QueryTile& tile, Index key, Index count) const {
    return [&tile, key, count, depth = words](Index r, Index n) {
      return TileRange{0, depth, tile.passed(r, key, count) < count ? tile.seen(r + n - 1, key, count) : 0};
    };
  }
  /// The range that they need of a product over the keys: the visible keys, all columns.
  auto keys_seen(const QueryTile& tile, Index key, Index count) const {
    return [&tile, key, count, columns = width](Index r, Index n) {
      return TileRange{tile.passed(r, key, count) / pairing, (tile.seen(r + n - 1, key, count) + pairing - 1) / pairing,
                       columns};
    };
  }
  /// The range that the keys [j, j + n) of the tile need of a product over the queries: those that see any of them.
  auto queries_seeing(const QueryTile& tile, Index key) const {
    return [&tile, key, columns = width](Index j, Index n) {
      return TileRange{tile.first_seeing(key + j) / pairing, (tile.end_seeing(key + j + n - 1) + pairing - 1) / pairing,
                       columns};
    };
  }

  /// Of what is in the tile of scores once they are capped, where they are.
  A score_scale() const { return caps ? A(1) : scale; }

  Index width, pad, words, repeat, queries;
  A scale;
  bool caps;
  A cap, cap_inverse;
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

/// An item of work: a tile of one segment, or a whole tree, and one key head.
struct AttentionItem {
  std::size_t segment = 0;
  Index head = 0;
  Index begin = 0;
};

/// Keys of one part of a sequence: number `key` of the sequence lies in row `row`, and is the first of `count`.
struct KeyTile {
  Index key = 0, row = 0, count = 0;
  Index rows_end = 0;  ///< of what is seen of the part
};

/// Calls use(KeyTile) for the keys [begin, end) of the sequence that ends with segment b, in their order. A tile lies
/// in one part, and begins whole tiles behind the part's beginning whatever `begin` is.
template <class Use>
void for_key_tiles(std::span<const Segment> keys, std::size_t b, Index begin, Index end, const Use& use) {
  kernel::for_each_part(keys, static_cast<Index>(b), [&](Index first, const Segment& part) {
    const Index seen = std::min(end, first + part.size());
    for (Index key = first + std::max<Index>(0, begin - first) / key_tile * key_tile; key < seen; key += key_tile)
      use(KeyTile{key, part.begin + key - first, std::min(key_tile, seen - key), part.begin + seen - first});
  });
}

/// Whether segment b has one query, whose keys lie one behind another: a step's.
inline bool is_step(std::span<const Segment> queries, std::span<const Segment> keys, std::size_t b) {
  return queries[b].size() == 1 && keys[b].parent < 0;
}

/// Items of `step` rows of every segment and key head. The last rows, which have the most work, come first. `takes(b)`:
/// whether segment b has any.
template <class Takes>
View<Device, AttentionItem> attention_items(Device& dev, std::span<const Segment> segments, Index heads, Index step,
                                            const Takes& takes) {
  Index count = 0;
  for (std::size_t b = 0; b < segments.size(); ++b)
    if (takes(b)) count += heads * ((segments[b].size() + step - 1) / step);
  auto items = scratch<AttentionItem>(dev, 1, count);
  AttentionItem* next = items.data();
  for (std::size_t b = 0; b < segments.size(); ++b) {
    if (!takes(b)) continue;
    for (Index begin = (segments[b].size() + step - 1) / step * step - step; begin >= 0; begin -= step)
      for (Index head = 0; head < heads; ++head) *next++ = AttentionItem{b, head, begin};
  }
  return items;
}

/// The average work of an item of the forward pass, as Threads::parallel_items counts it: two products over each
/// score, an element's work for 12 multiplications, and about 4 for its exponential.
inline double attention_work(std::span<const Segment> queries, std::span<const Segment> keys,
                             const AttentionShape& shape, Index items) {
  double scores = 0, reads = 0;
  for (std::size_t b = 0; b < queries.size(); ++b) {
    const Index rows = queries[b].size(), all = kernel::sequence_rows(keys, static_cast<Index>(b));
    const Index seen = shape.window > 0 ? std::min(all, shape.window) : all, read = std::min(all, seen + rows);
    scores += static_cast<double>(shape.heads * rows) * static_cast<double>(seen);
    reads += static_cast<double>(2 * shape.kv_heads * read * shape.width);
  }
  return (scores * (static_cast<double>(shape.width) / 6 + 4) + reads) / static_cast<double>(std::max<Index>(items, 1));
}

/// Scratch for every thread: `bytes` each, adjacent.
inline std::byte* thread_scratch(Device& dev, Index bytes) {
  return scratch<std::byte>(dev, dev.threads(), bytes).data();
}

}  // namespace lora::cpu::detail
