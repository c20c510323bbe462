#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>

#include "lora/core/config.hpp"
#include "lora/cpu/kernels/attention_tile.hpp"
#include "lora/cpu/vectors/lanes.hpp"

/// Attention of a decoding step: of segments that have one query, whose keys and values are read where they lie, once.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
namespace lora::cpu::detail {

/// Keys of an item of work: a number that follows from how many the segment's query sees, as bits do; 32 items at most.
inline Index step_keys(Index keys) { return padded(std::max<Index>(128, (keys + 31) / 32), 8); }

/// s_j = q · k_j for eight keys, `stride` apart, of `width` numbers, a multiple of 16.
[[gnu::always_inline]] inline void eight_scores(const float* q, const float* keys, Index stride, Index width,
                                                float* s) {
  Floats16 sums[8];
  unrolled<8 / wide_sums>([&](auto part) __attribute__((always_inline)) {
    constexpr int first = part * wide_sums;
    Floats16 some[std::size_t{wide_sums}] = {};
    for (Index c = 0; c < width; c += 16) {
      Floats16 x;
      load_floats(q + c, x);
      unrolled<wide_sums>([&](auto j) {
        Floats16 y;
        load_floats(keys + (first + j) * stride + c, y);
        add_product(x, y, some[j]);
      });
    }
    unrolled<wide_sums>([&](auto j) { sums[first + j] = some[j]; });
  });
  Floats8 scores;
  totals(sums, scores);
  store_floats(scores, s);
}

/// o_r += Σ_j p_rj v_j for `rows` rows and 16 · vectors columns, over `count` values that lie `stride` apart.
template <int rows, int vectors>
[[gnu::always_inline]] inline void add_values(const float* p, Index p_stride, const float* values, Index stride,
                                              Index count, float* o, Index o_stride) {
  Floats16 sums[std::size_t{rows}][std::size_t{vectors}];
  unrolled<rows, vectors>([&](auto r, auto i) { load_floats(o + r * o_stride + 16 * i, sums[r][i]); });
  for (Index j = 0; j < count; ++j) {
    Floats16 v[std::size_t{vectors}], shares[std::size_t{rows}];
    unrolled<vectors>([&](auto i) { load_floats(values + j * stride + 16 * i, v[i]); });
    unrolled<rows>([&](auto r) { fill_lanes(p[r * p_stride + j], shares[r]); });
    unrolled<rows, vectors>([&](auto r, auto i) { add_product(shares[r], v[i], sums[r][i]); });
  }
  unrolled<rows, vectors>([&](auto r, auto i) { store_floats(sums[r][i], o + r * o_stride + 16 * i); });
}

/// The operands of a call, and the work on one part of a segment's keys, with sums in float.
template <class T>
struct AttentionStep {
  static constexpr Index group = 128;  // keys that are widened at a time

  AttentionShape shape;
  In<T> q, k, v;
  std::span<const Segment> queries, keys;
  Rows<T> out;
  Rows<float> lse;  // empty: not needed

  /// A part of the keys of one segment and key head, and where its results go: of each row `pad` sums, then the largest
  /// score and the total of exponentials.
  struct Item {
    std::size_t segment = 0;
    Index head = 0, begin = 0, end = 0;
    float* result = nullptr;
  };

  /// The keys that the query of segment b sees.
  Segment seen(std::size_t b) const {
    const Segment& all = keys[b];
    return {shape.window > 0 ? std::max(all.begin, all.end - shape.window) : all.begin, all.end};
  }

  Index repeat() const { return shape.heads / shape.kv_heads; }
  Index pad() const { return padded(shape.width, 16); }
  Index result_row() const { return pad() + 16; }

  struct Scratch {
    Scratch(const AttentionStep& step, Index most, Pieces& pieces) {
      pieces.take(q, step.repeat() * step.pad());
      pieces.take(s, step.repeat() * padded(most, 16));
      pieces.take(wide, group * step.pad());
    }
    float *q = nullptr, *s = nullptr, *wide = nullptr;
  };

  void run(const Item& item, Scratch& t, Index most) const {
    const Index rows = repeat(), wide = pad(), row = result_row(), s_row = padded(most, 16);
    const Segment of_k = seen(item.segment);
    const T* const query = q.row(queries[item.segment].begin) + item.head * rows * shape.width;
    std::fill_n(t.q, rows * wide, 0.0f);
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < shape.width; ++c) t.q[r * wide + c] = widened(query[r * shape.width + c]);

    const Index count = item.end - item.begin;
    each_group(k, item, of_k.begin, t, [&](Index j, Index size, const float* from, Index stride) {
      for (Index r = 0; r < rows; ++r) {
        float* const s = t.s + r * s_row + j;
        Index i = 0;
        for (; i + 8 <= size; i += 8) eight_scores(t.q + r * wide, from + i * stride, stride, wide, s + i);
        for (; i < size; ++i) {
          float once[8];
          eight_scores(t.q + r * wide, from + i * stride, 0, wide, once);
          s[i] = once[0];
        }
      }
    });
    const bool caps = shape.cap > 0;
    const auto cap = static_cast<float>(shape.cap), inverse = static_cast<float>(caps ? 1 / shape.cap : 0);
    const float scale = caps ? 1.0f : static_cast<float>(shape.scale);
    for (Index r = 0; r < rows; ++r) {
      float *const s = t.s + r * s_row, *const result = item.result + r * row;
      const Index all = padded(count, 16);
      if (caps) cap_scores(s, count, static_cast<float>(shape.scale), cap, inverse);
      std::fill(s + count, s + all, s[0]);
      const float top = largest(s, all) * scale;
      exponentials(s, count, all, scale, top);
      std::fill_n(result, wide, 0.0f);
      result[wide] = top;
      result[wide + 1] = sum(s, all);
    }
    each_group(v, item, of_k.begin, t, [&](Index j, Index size, const float* from, Index stride) {
      const auto columns = [&]<int vectors>(Index c) {
        Index r = 0;
        for (; r + 2 <= rows; r += 2)
          add_values<2, vectors>(t.s + r * s_row + j, s_row, from + c, stride, size, item.result + r * row + c, row);
        if (r < rows)
          add_values<1, vectors>(t.s + r * s_row + j, s_row, from + c, stride, size, item.result + r * row + c, row);
      };
      constexpr int vectors = wide_sums / 2;  // of two rows each
      Index c = 0;
      for (; c + 16 * vectors <= wide; c += 16 * vectors) columns.template operator()<vectors>(c);
      for (; c < wide; c += 16) columns.template operator()<1>(c);
    });
  }

  /// Puts the results of the parts of one segment and key head together, in their order; between two of them are those
  /// of the segment's other heads.
  void join(const Item* parts, Index count) const {
    const auto result = [&](Index part) { return parts[part * shape.kv_heads].result; };
    const Index wide = pad(), row = result_row();
    const Index query = queries[parts->segment].begin;
    for (Index r = 0; r < repeat(); ++r) {
      float* const sums = result(0) + r * row;
      float top = sums[wide], total = 0;
      for (Index i = 1; i < count; ++i) top = std::max(top, result(i)[r * row + wide]);
      for (Index i = 0; i < count; ++i) {
        const float* const part = result(i) + r * row;
        const float share = cpu::exp(part[wide] - top);
        total += share * part[wide + 1];
        LORA_SIMD
        for (Index c = 0; c < wide; ++c) sums[c] = (i == 0 ? 0 : sums[c]) + share * part[c];
      }
      const Index head = parts->head * repeat() + r;
      T* const to = out.row(query) + head * shape.width;
      for (Index c = 0; c < shape.width; ++c) to[c] = narrowed<T>(sums[c] / total);
      if (!lse.empty()) lse.row(query)[head] = top + std::log(total);
    }
  }

 private:
  /// Calls work(j, size, rows, stride) for the keys or values of an item, a group of them at a time as rows of float,
  /// the first of which is number j; where they are stored so and end with whole vectors, in place.
  template <class Work>
  void each_group(const In<T>& x, const Item& item, Index first, Scratch& t, const Work& work) const {
    for (Index begin = item.begin; begin < item.end; begin += group) {
      const Index size = std::min(group, item.end - begin), wide = pad();
      const T* const from = x.row(first + begin) + item.head * shape.width;
      if constexpr (std::same_as<T, float>) {
        if (shape.width == wide) {
          work(begin - item.begin, size, from, x.stride());
          continue;
        }
      }
      for (Index j = 0; j < size; ++j) {
        float* const to = t.wide + j * wide;
        LORA_SIMD
        for (Index c = 0; c < shape.width; ++c) to[c] = widened(from[j * x.stride() + c]);
        std::fill(to + shape.width, to + wide, 0.0f);
      }
      work(begin - item.begin, size, t.wide, wide);
    }
  }
};

/// Segments for which is_step holds.
template <class T>
void attention_of_steps(Device& dev, const AttentionStep<T>& step) {
  using Item = typename AttentionStep<T>::Item;
  const auto parts_of = [&](std::size_t b) {
    const Index of_k = step.seen(b).size();
    return is_step(step.queries, step.keys, b) ? (of_k + step_keys(of_k) - 1) / step_keys(of_k) : 0;
  };
  Index count = 0, most = 0;
  for (std::size_t b = 0; b < step.queries.size(); ++b) {
    count += parts_of(b) * step.shape.kv_heads;
    if (parts_of(b) > 0) most = std::max(most, std::min(step.seen(b).size(), step_keys(step.seen(b).size())));
  }
  if (count == 0) return;
  const Arena::Scope scope(dev.arena());
  const auto items = scratch<Item>(dev, 1, count);
  const auto results = scratch<float>(dev, count, step.repeat() * step.result_row());
  Pieces counted(nullptr);
  typename AttentionStep<T>::Scratch(step, most, counted);
  std::byte* const memory = thread_scratch(dev, counted.used());
  Item* next = items.data();
  for (std::size_t b = 0; b < step.queries.size(); ++b) {
    const Index keys = step.seen(b).size(), size = step_keys(keys);
    if (parts_of(b) == 0) continue;
    for (Index begin = 0; begin < keys; begin += size)
      for (Index head = 0; head < step.shape.kv_heads; ++head, ++next)
        *next = Item{b, head, begin, std::min(begin + size, keys), results.row(next - items.data())};
  }
  // Heads of the same keys come one after the other, since these share pages of memory.
  const Index heads = step.shape.kv_heads, together = count / heads < 2 * dev.threads() ? 1 : heads;
  dev.parallel_items(
      count / together,
      [&](Index i) {
        Pieces pieces(memory + omp_get_thread_num() * counted.used());
        typename AttentionStep<T>::Scratch t(step, most, pieces);
        for (Index j = i * together; j < (i + 1) * together; ++j) step.run(items.data()[j], t, most);
      },
      attention_work(step.queries, step.keys, step.shape, count / together));
  const Item* part = items.data();
  for (std::size_t b = 0; b < step.queries.size(); ++b) {
    if (parts_of(b) == 0) continue;
    for (Index head = 0; head < step.shape.kv_heads; ++head) step.join(part + head, parts_of(b));
    part += parts_of(b) * step.shape.kv_heads;
  }
}

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
