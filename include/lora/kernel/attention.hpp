#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

#include "lora/kernel/cost.hpp"
#include "lora/kernel/segment.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// The extents that attention can't read off its operands.
struct AttentionShape {
  Index heads = 0;     ///< H
  Index kv_heads = 0;  ///< G, a divisor of H; query head h reads key head h / (H / G)
  Index width = 0;     ///< C
  double scale = 1;    ///< of the scores, usually C^(−½)
  Index window = 0;    ///< keys that a query sees at most, the last up to its own; 0: all up to its own
  double cap = 0;      ///< of the scaled scores, as soft_cap has it; 0: none
};

/// A backend specialises it with run, backward, a type Saved<T> that holds what its own backward needs, and
/// takes_trees.
template <class D>
struct Attention;

template <class D, class T>
using AttentionSaved = typename Attention<D>::template Saved<T>;

template <class D, class T>
concept HasAttention = requires(D& dev, AttentionShape shape, View<D, const T> x, View<D, T> y,
                                std::span<const Segment> rows, AttentionSaved<D, T> saved) {
  Attention<D>::run(dev, shape, x, x, x, rows, rows, y, &saved);
  Attention<D>::backward(dev, shape, x, x, x, x, rows, saved, x, y, y, y);
  { Attention<D>::template save<T>(dev, Index{}, Index{}) } -> std::same_as<AttentionSaved<D, T>>;
  { Attention<D>::saved_per_head } -> std::convertible_to<Index>;  // numbers of Accum<T> for a row
  { Attention<D>::template takes_trees<T>(shape) } -> std::same_as<bool>;
  { Attention<D>::takes_trees(dev, shape) } -> std::same_as<bool>;
};

/// Whether a backend's attention takes segments that have parents, with heads such as these in T. Where it doesn't,
/// both directions throw ShapeError for them. Without T: in every type.
template <class D, class T>
constexpr bool takes_trees(const AttentionShape& shape) {
  return Attention<D>::template takes_trees<T>(shape);
}

/// Whether it does on this device, in every type: its toolkit may lack what that takes.
template <class D>
bool takes_trees(D& dev, const AttentionShape& shape) {
  return Attention<D>::takes_trees(dev, shape);
}

/// Memory for what backward needs of N rows and H heads, at the arena's low end.
template <class T, class D>
AttentionSaved<D, T> save_attention(D& dev, Index rows, Index heads) {
  return Attention<D>::template save<T>(dev, rows, heads);
}

namespace detail {

/// Whether segments with parents are trees in preorder, whose rows lie without a gap.
inline void check_trees(std::string_view operation, std::span<const Segment> segments) {
  for (Index b = 0; b < std::ssize(segments); ++b) {
    const Segment& segment = segments[static_cast<std::size_t>(b)];
    if (segment.parent == -1) continue;
    Index above = b - 1;  // the segment before it, or what that one descends from
    while (above >= 0 && above != segment.parent) above = segments[static_cast<std::size_t>(above)].parent;
    if (segment.parent < 0 || above < 0)
      fail<ShapeError>("[", operation, "] segment ", b, ": its parent is segment ", segment.parent,
                       "; expected the segment before it, one that this descends from, or -1");
    const Index end = segments[static_cast<std::size_t>(b - 1)].end;
    if (segment.begin != end)
      fail<ShapeError>("[", operation, "] segment ", b, ": its rows begin at ", segment.begin, "; expected ", end,
                       ", where those before it in its tree end");
  }
}

template <class D, class Q, class K>
void check_attention(std::string_view operation, const AttentionShape& shape, const View<D, Q>& q, const View<D, K>& k,
                     std::span<const Segment> queries, std::span<const Segment> keys) {
  if (shape.kv_heads <= 0 || shape.heads % shape.kv_heads != 0)
    fail<ShapeError>("[", operation, "] ", shape.heads, " heads can't share ", shape.kv_heads, " key heads");
  if (!(shape.cap >= 0)) fail<ShapeError>("[", operation, "] a cap of ", shape.cap, "; expected 0 or more");
  if (shape.window < 0) fail<ShapeError>("[", operation, "] a window of ", shape.window, " keys; expected 0 or more");
  expect_shape(operation, "q", q, q.rows(), shape.heads * shape.width);
  expect_shape(operation, "k", k, k.rows(), shape.kv_heads * shape.width);
  if (queries.size() != keys.size())
    fail<ShapeError>("[", operation, "] ", queries.size(), " query segments but ", keys.size(), " key segments");
  for (std::size_t b = 0; b < queries.size(); ++b) {
    const auto &q_rows = queries[b], &k_rows = keys[b];
    if (q_rows.begin < 0 || q_rows.size() < 0 || q_rows.end > q.rows() || k_rows.begin < 0 ||
        k_rows.size() < q_rows.size() || k_rows.end > k.rows())
      fail<ShapeError>("[", operation, "] segment ", b, ": query rows ", q_rows.begin, "..", q_rows.end, " of ",
                       q.rows(), ", key rows ", k_rows.begin, "..", k_rows.end, " of ", k.rows());
  }
  check_trees(operation, keys);
}

}  // namespace detail

/// Pairs of a query of segment b and a key that it sees.
inline double visible_pairs(std::span<const Segment> queries, std::span<const Segment> keys, std::size_t b,
                            Index window) {
  const Index all = queries[b].size(), before = sequence_rows(keys, static_cast<Index>(b)) - all;
  const Index growing = window > 0 ? std::clamp<Index>(window - before, 0, all) : all;  // queries that see all
  const auto count = static_cast<double>(growing);
  return count * static_cast<double>(before) + count * (count + 1) / 2 +
         static_cast<double>(all - growing) * static_cast<double>(window);
}

/// The same over all segments.
inline double visible_pairs(std::span<const Segment> queries, std::span<const Segment> keys, Index window = 0) {
  double pairs = 0;
  for (std::size_t b = 0; b < queries.size(); ++b) pairs += visible_pairs(queries, keys, b, window);
  return pairs;
}

namespace detail {

/// A forward pass is 2 products, a backward pass 5.
template <class D>
ProfileScope<D> attention_span(D& dev, std::string_view name, const AttentionShape& shape, int products,
                               std::span<const Segment> queries, std::span<const Segment> keys, double bytes) {
  const double pairs = dev.profile() == nullptr ? 0 : visible_pairs(queries, keys, shape.window);
  return ProfileScope(dev, "attention", name, 2 * products * count_of(shape.heads, shape.width) * pairs, bytes);
}

}  // namespace detail

/// Causal attention within each sequence; sequences do not see each other.
///   out_i = Σ_j p_ij v_j,   p_i = softmax_j(scale · q_i · k_j),   j ≤ i + (keys of the sequence − queries of the
///   segment), and with a window the last of these alone, so many; with a cap softmax_j(cap · tanh(scale / cap · …))
/// Shapes   q, out (N, H·C) · k, v (M, G·C); queries[b] are rows of q, keys[b] rows of k; a segment's last query sees
///          its last key, so that M > N serves decoding with a cache. Where keys[b] has a parent, the keys of that
///          segment and of those that it descends from come before its own
/// Writes   out (rows of no segment stay untouched), *saved (nullptr: nothing is kept)
/// Source   Vaswani et al. 2017; Dao et al. 2022 (tiles instead of an (S, S) matrix); Ainslie et al. 2023 (shared
///          heads); Beltagy et al. 2020 (windows)
template <class D, class T>
void attention(D& dev, const AttentionShape& shape, View<D, const T> q, ConstView<D, T> k, ConstView<D, T> v,
               std::span<const Segment> queries, std::span<const Segment> keys, OutView<D, T> out,
               AttentionSaved<D, T>* saved) {
  static_assert(HasAttention<D, T>, "include lora/<backend>/kernels.hpp");
  detail::check_attention("attention", shape, q, k, queries, keys);
  expect_shape("attention", "v", v, k.rows(), k.cols());
  expect_shape("attention", "out", out, q.rows(), q.cols());
  const ProfileScope span = detail::attention_span(dev, "attention", shape, 2, queries, keys, bytes_of(q, k, v, out));
  Attention<D>::run(dev, shape, q, k, v, queries, keys, out, saved);
}

/// The gradients of attention where keys and queries are the same rows; those of a segment's keys and values are sums
/// over it and all that descend from it.
/// Shapes   dout, dq as q · dk, dv as k
/// Writes   dq, dk, dv overwritten; dq may share memory with q, dk with k and dv with v only if the backend says so
template <class D, class T>
void attention_backward(D& dev, const AttentionShape& shape, View<D, const T> q, ConstView<D, T> k, ConstView<D, T> v,
                        ConstView<D, T> out, std::span<const Segment> segments, const AttentionSaved<D, T>& saved,
                        ConstView<D, T> dout, OutView<D, T> dq, OutView<D, T> dk, OutView<D, T> dv) {
  static_assert(HasAttention<D, T>, "include lora/<backend>/kernels.hpp");
  detail::check_attention("attention_backward", shape, q, k, segments, segments);
  expect_shape("attention_backward", "v", v, k.rows(), k.cols());
  expect_shape("attention_backward", "out", out, q.rows(), q.cols());
  expect_shape("attention_backward", "dout", dout, q.rows(), q.cols());
  expect_shape("attention_backward", "dq", dq, q.rows(), q.cols());
  expect_shape("attention_backward", "dk", dk, k.rows(), k.cols());
  expect_shape("attention_backward", "dv", dv, k.rows(), k.cols());
  const ProfileScope span = detail::attention_span(dev, "attention_backward", shape, 5, segments, segments,
                                                   bytes_of(q, k, v, out, dout, dq, dk, dv));
  Attention<D>::backward(dev, shape, q, k, v, out, segments, saved, dout, dq, dk, dv);
}

}  // namespace lora::kernel
