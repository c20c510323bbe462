#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lora/doctor/trial.hpp"
#include "lora/kernel/attention.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/embedding.hpp"
#include "lora/kernel/loss.hpp"
#include "lora/kernel/norm.hpp"
#include "lora/kernel/rope.hpp"

namespace lora::doctor::detail {

constexpr double epsilon = 1e-6;

template <bool heads>
inline constexpr auto rms_norm = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, width = heads ? t.sizes.heads * t.sizes.wide_head : t.sizes.width;
  const Index group = heads ? t.sizes.wide_head : width;
  const View<D, const T> x = t.apart(n, width, -3, 3);
  const View<D, const Accum<T>> w = t.sums(1, group, 0.5, 1.5);
  // Heads are columns of what one product gives, side by side.
  const View<D, T> y = heads ? t.apart(n, width) : t.room(n, width), copy = heads ? View<D, T>() : t.room(n, width);
  const View<D, Accum<T>> rstd = t.sums_room(n, width / group);
  t.launch([&] { kernel::rms_norm<D, T>(t.dev, x, w, epsilon, y, rstd, copy); });
  t.result("y", y, few);
  t.sum_result("rstd", rstd, 64);
  if (!copy.empty()) t.result("copy", copy, {0, 0});
};

template <bool heads>
inline constexpr auto rms_norm_backward = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, width = heads ? t.sizes.heads * t.sizes.wide_head : t.sizes.width;
  const Index group = heads ? t.sizes.wide_head : width;
  const View<D, const T> x = t.values(n, width, -3, 3), dy = t.apart(n, width);
  const View<D, const Accum<T>> w = t.sums(1, group, 0.5, 1.5);
  const View<D, Accum<T>> rstd = t.sums_room(n, width / group);
  const View<D, T> y = t.room(n, width), dx = t.values(n, width), again = t.room(n, width);
  kernel::rms_norm<D, T>(t.dev, x, w, epsilon, y, rstd);
  t.launch([&] { kernel::rms_norm_backward<D, T>(t.dev, x, w, rstd, dy, dx, true, again, epsilon); });
  t.result("dx", dx, few);
  t.result("y", again, few);
};

inline constexpr auto rms_norm_weight_gradient = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, width = t.sizes.width;
  const View<D, const T> x = t.values(n, width, -3, 3), dy = t.values(n, width);
  const View<D, const Accum<T>> w = t.sums(1, width, 0.5, 1.5);
  const View<D, Accum<T>> rstd = t.sums_room(n, 1), dw = t.sums(1, width);
  const View<D, T> y = t.room(n, width);
  kernel::rms_norm<D, T>(t.dev, x, w, epsilon, y, rstd);
  t.launch([&] { kernel::rms_norm_weight_gradient<D, T>(t.dev, x, rstd, dy, dw); });
  t.result("dw", dw, {4, 64});
};

/// Positions of sequences laid end to end.
inline std::vector<std::int32_t> positions_of(const std::vector<Index>& sequences) {
  std::vector<std::int32_t> positions;
  for (const Index length : sequences)
    for (Index i = 0; i < length; ++i) positions.push_back(static_cast<std::int32_t>(i));
  return positions;
}

template <kernel::Rotation rotation>
inline constexpr auto rope = []<class D, class T>(Trial<D, T>& t) {
  const std::vector<std::int32_t> places = positions_of(t.sizes.sequences);
  const auto n = static_cast<Index>(places.size());
  const Index half = t.sizes.head_width / 2, most = *std::max_element(places.begin(), places.end()) + Index{1};
  std::vector<double> cosines, sines;
  for (Index p = 0; p < most; ++p)
    for (Index i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
      cosines.push_back(rounded(std::cos(angle), Precision::float32));
      sines.push_back(rounded(std::sin(angle), Precision::float32));
    }
  const View<D, const Accum<T>> cos = t.template given<Accum<T>>(most, half, cosines),
                                sin = t.template given<Accum<T>>(most, half, sines);
  const View<D, const std::int32_t> positions = t.numbers(places);
  const View<D, const T> x = t.apart(n, t.sizes.heads * t.sizes.head_width);
  const View<D, T> y = t.apart(n, x.cols());
  t.launch([&] { kernel::rope<D, T>(t.dev, x, cos, sin, positions, rotation, y); });
  t.result("y", y, few);
};

inline std::vector<kernel::Segment> segments_of(const std::vector<Index>& sequences) {
  std::vector<kernel::Segment> segments;
  Index begin = 0;
  for (const Index length : sequences) {
    segments.push_back({begin, begin + length});
    begin += length;
  }
  return segments;
}

/// The same, but the first is the beginning of all others, with which the second is that of all behind it.
inline std::vector<kernel::Segment> tree_of(const std::vector<Index>& parts) {
  std::vector<kernel::Segment> segments = segments_of(parts);
  for (Index b = 1; b < std::ssize(segments); ++b) segments[static_cast<std::size_t>(b)].parent = b == 1 ? 0 : 1;
  return segments;
}

template <bool wide, bool backward, bool tree = false>
inline constexpr auto attention = []<class D, class T>(Trial<D, T>& t) {
  const Index width = wide ? t.sizes.wide_head : t.sizes.head_width, h = t.sizes.heads, g = t.sizes.kv_heads;
  const kernel::AttentionShape shape{h, g, width, 1 / std::sqrt(static_cast<double>(width))};
  const std::vector<kernel::Segment> segments = (tree ? tree_of : segments_of)(t.sizes.sequences);
  const Index n = segments.back().end;
  // As one product gives them: side by side.
  const View<D, const T> qkv = t.values(n, (h + 2 * g) * width, -2, 2);
  const View<D, const T> q = qkv.col_slice(0, h * width), k = qkv.col_slice(h * width, g * width),
                         v = qkv.col_slice((h + g) * width, g * width);
  const View<D, T> out = t.room(n, h * width);
  auto saved = kernel::save_attention<T>(t.dev, n, h);
  const auto forward = [&] { kernel::attention<D, T>(t.dev, shape, q, k, v, segments, segments, out, &saved); };
  if constexpr (!backward) {
    t.launch(forward);
    t.result("out", out, {8, 64});
  } else {
    forward();
    const View<D, const T> dout = t.values(n, h * width);
    const View<D, T> dq = t.room(n, h * width), dk = t.room(n, g * width), dv = t.room(n, g * width);
    t.launch([&] { kernel::attention_backward<D, T>(t.dev, shape, q, k, v, out, segments, saved, dout, dq, dk, dv); });
    t.result("dq", dq, {16, 128});
    t.result("dk", dk, {16, 128});
    t.result("dv", dv, {16, 128});
  }
};

/// A query a sequence over keys of a cache, whose slots are longer than what they hold.
inline constexpr auto attention_decoding = []<class D, class T>(Trial<D, T>& t) {
  const Index width = t.sizes.wide_head, h = t.sizes.heads, g = t.sizes.kv_heads;
  const kernel::AttentionShape shape{h, g, width, 1 / std::sqrt(static_cast<double>(width))};
  const Index longest = *std::max_element(t.sizes.sequences.begin(), t.sizes.sequences.end()), slot = longest + 16;
  std::vector<kernel::Segment> queries, keys;
  for (const Index length : t.sizes.sequences) {
    const auto b = static_cast<Index>(queries.size());
    queries.push_back({b, b + 1});
    keys.push_back({b * slot, b * slot + length});
  }
  const auto n = static_cast<Index>(queries.size());
  const View<D, const T> q = t.values(n, h * width, -2, 2), k = t.values(n * slot, g * width, -2, 2),
                         v = t.values(n * slot, g * width);
  const View<D, T> out = t.room(n, h * width);
  t.launch([&] { kernel::attention<D, T>(t.dev, shape, q, k, v, queries, keys, out, nullptr); });
  t.result("out", out, {8, 64});
};

/// Tokens of a vocabulary, the first and the last among them, some of them several times.
inline std::vector<std::int32_t> tokens_of(Index count, Index vocabulary) {
  std::vector<std::int32_t> tokens;
  for (Index i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(i % 7 == 0 ? 0 : i % 11 == 0 ? vocabulary - 1 : i * 131 % vocabulary));
  return tokens;
}

inline constexpr auto embedding = []<class D, class T>(Trial<D, T>& t) {
  const StoredView<D> table = t.stored(t.sizes.vocabulary, t.sizes.out);
  const auto tokens = t.numbers(tokens_of(t.sizes.rows, t.sizes.vocabulary));
  const View<D, T> y = t.room(t.sizes.rows, t.sizes.out);
  t.launch([&] { kernel::embedding<D, T>(t.dev, table, tokens, y); });
  t.result("y", y, {0, 0});
};

inline constexpr auto embedding_backward = []<class D, class T>(Trial<D, T>& t) {
  const auto tokens = t.numbers(tokens_of(t.sizes.rows, t.sizes.vocabulary));
  const View<D, const T> dy = t.values(t.sizes.rows, t.sizes.out);
  const View<D, Accum<T>> dtable = t.sums(t.sizes.vocabulary, t.sizes.out);
  t.launch([&] { kernel::embedding_backward<D, T>(t.dev, tokens, dy, dtable); });
  t.sum_result("dtable", dtable, 64);
};

inline constexpr auto embedding_noise = []<class D, class T>(Trial<D, T>& t) {
  const std::vector<std::int32_t> places = positions_of(t.sizes.sequences);
  const std::vector<kernel::Segment> segments = segments_of(t.sizes.sequences);
  std::vector<std::int32_t> sequence;
  for (std::size_t b = 0; b < segments.size(); ++b)
    sequence.insert(sequence.end(), static_cast<std::size_t>(segments[b].size()), static_cast<std::int32_t>(b));
  const auto sequence_index = t.numbers(sequence), positions = t.numbers(places);
  const View<D, T> y = t.values(static_cast<Index>(places.size()), t.sizes.out);
  t.launch([&] { kernel::embedding_noise<D, T>(t.dev, {5, 77}, segments, sequence_index, positions, y); });
  t.result("y", y, few);
};

/// By whole rows or by one block of columns, whichever the device has.
inline constexpr auto cross_entropy = []<class D, class T>(Trial<D, T>& t) {
  using A = Accum<T>;
  const Index n = t.sizes.rows, v = t.sizes.vocabulary;
  const auto labels = t.numbers(tokens_of(n, v));
  const View<D, A> logits = t.sums(n, v, -8, 8), loss = t.sums_room(1, n), target = t.sums_room(1, n),
                   top = t.sums_room(1, n);
  const View<D, T> gradient = t.room(n, v);
  constexpr double scale = 0.125;
  if constexpr (kernel::HasCrossEntropy<D, T>) {
    t.launch([&] { kernel::cross_entropy<T>(t.dev, logits, labels, scale, loss, target, top, gradient); });
  } else {
    const View<D, A> others = t.sums_room(1, n), given = t.sums_room(n, v);
    t.launch([&] {
      kernel::convert<D>(t.dev, logits, given);  // a block's logits are written over
      kernel::softmax_block<T>(t.dev, given, labels, 0, top, others, target, {}, {}, {});
      kernel::softmax_finish<T>(t.dev, top, others, target, loss);
      kernel::softmax_logit_gradient<T>(t.dev, logits, labels, 0, top, others, target, scale, gradient);
    });
  }
  t.sum_result("loss", loss, 64);
  t.sum_result("target", target, 0);
  t.sum_result("top", top, 0);
  t.result("gradient", gradient, {4, 64});
};

inline constexpr auto gather_rows = []<class D, class T>(Trial<D, T>& t) {
  const View<D, const T> x = t.apart(t.sizes.rows, t.sizes.out);
  const auto index = t.numbers(tokens_of(t.sizes.rows / 2, t.sizes.rows));
  const View<D, T> y = t.room(t.sizes.rows / 2, t.sizes.out);
  t.launch([&] { kernel::gather_rows<D, T>(t.dev, x, index, y); });
  t.result("y", y, {0, 0});
};

inline constexpr auto scatter_rows = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows / 2;
  std::vector<std::int32_t> places;
  for (Index i = 0; i < n; ++i) places.push_back(static_cast<std::int32_t>(2 * (n - 1 - i)));
  const View<D, const T> x = t.values(n, t.sizes.out);
  const View<D, T> y = t.apart(t.sizes.rows, t.sizes.out);
  const auto index = t.numbers(places);
  t.launch([&] { kernel::scatter_rows<D, T>(t.dev, x, index, y); });
  t.result("y", y, {0, 0});
};

}  // namespace lora::doctor::detail
