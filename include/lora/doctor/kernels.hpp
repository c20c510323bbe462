#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/doctor/streams.hpp"
#include "lora/doctor/trial.hpp"
#include "lora/kernel/complete.hpp"

namespace lora::doctor {

/// A check of kernels: what it launches on a device in T, and the same on the processors in double.
template <AnyDevice D, class T>
struct Case {
  std::string_view family, kernel;
  void (*on_device)(Trial<D, T>&);
  void (*reference)(Trial<cpu::Device, double>&);
  bool timed = false;  ///< one of those whose time tells most
};

namespace detail {

using kernel::Form;

// Bounds. A result that is rounded once is off by 1 rounding at most, one whose parts are rounded by a few; sums over
// K products in float32 are off by some √K roundings. What is allowed is several times that, and far less than what a
// wrong kernel gives: results in units of the largest one differ by some 1/roundoff then.
constexpr Bound product_bound{4, 256};
constexpr Bound few{4, 16};

template <Form form, bool wide, bool adds>
inline constexpr auto product = []<class D, class T>(Trial<D, T>& t) {
  const Index m = t.sizes.rows, n = t.sizes.out, k = t.sizes.width;
  const View<D, const T> a = form == Form::tn ? t.apart(k, m) : t.apart(m, k);
  const View<D, const T> b = form == Form::nt ? t.values(n, k) : t.values(k, n);
  const double alpha = adds ? 0.5 : 1;
  const auto run = [&](auto c) {
    t.launch([&] { kernel::gemm(t.dev, form, a, b, c, alpha, adds); });
    t.result("c", c, product_bound);
  };
  if constexpr (wide) {
    run(adds ? t.sums(m, n) : t.sums_room(m, n));
  } else {
    run(t.apart(m, n));
  }
};

template <bool adds>
inline constexpr auto sum_of_products = []<class D, class T>(Trial<D, T>& t) {
  const Index m = t.sizes.rows, n = t.sizes.out, k = t.sizes.width, r = t.sizes.rank;
  const View<D, const T> x = t.values(m, k), w = t.values(n, k), h = t.apart(m, r), b = t.values(r, n);
  const View<D, const Accum<T>> bias = t.sums(1, n);
  const View<D, T> y = t.values(m, n);
  const kernel::ProductTerm<D, T> terms[] = {{Form::nt, x, w}, {Form::nn, h, b}};
  t.launch([&] { kernel::sum_of_products<D, T>(t.dev, terms, bias, y, adds); });
  t.result("y", y, product_bound);
};

inline constexpr auto low_rank_backward = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, r = t.sizes.rank;
  const Index outs[] = {t.sizes.out, t.sizes.out / 2};
  std::vector<kernel::LowRankTerm<D, T>> terms;
  const View<D, const T> h = t.values(n, 2 * r);
  for (const Index out : outs) terms.push_back({t.apart(n, out), t.values(r, out), t.sums(r, out), 2});
  const View<D, T> dh = t.room(n, 2 * r);
  t.launch([&] { kernel::low_rank_backward<D, T>(t.dev, h, terms, dh); });
  t.result("dh", dh, product_bound);
  t.result("db", terms[0].db, product_bound);
  t.result("db 2", terms[1].db, product_bound);
};

inline constexpr auto low_rank_gradients = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, r = t.sizes.rank, width = t.sizes.width;
  const Index outs[] = {t.sizes.out, t.sizes.out / 2};
  std::vector<kernel::LowRankTerm<D, T>> terms;
  const View<D, const T> x = t.values(n, width), a = t.values(2 * r, width);
  const View<D, Accum<T>> da = t.sums(2 * r, width);
  for (const Index out : outs) terms.push_back({t.values(n, out), t.values(r, out), t.sums(r, out), 2});
  t.launch([&] { kernel::low_rank_gradients<D, T>(t.dev, x, a, da, terms); });
  t.result("da", da, product_bound);
  t.result("db", terms[0].db, product_bound);
};

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

template <bool wide, bool backward>
inline constexpr auto attention = []<class D, class T>(Trial<D, T>& t) {
  const Index width = wide ? t.sizes.wide_head : t.sizes.head_width, h = t.sizes.heads, g = t.sizes.kv_heads;
  const kernel::AttentionShape shape{h, g, width, 1 / std::sqrt(static_cast<double>(width))};
  const std::vector<kernel::Segment> segments = segments_of(t.sizes.sequences);
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

inline constexpr auto swiglu = []<class D, class T>(Trial<D, T>& t) {
  const View<D, const T> gate_up = t.values(t.sizes.rows, 2 * t.sizes.ffn, -8, 8);
  const View<D, T> y = t.apart(t.sizes.rows, t.sizes.ffn);
  t.launch([&] { kernel::swiglu<D, T>(t.dev, gate_up, y); });
  t.result("y", y, few);
};

inline constexpr auto swiglu_backward = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, f = t.sizes.ffn;
  const View<D, const T> gate_up = t.values(n, 2 * f, -8, 8), dy = t.values(n, f);
  const View<D, T> d_gate_up = t.room(n, 2 * f), y = t.room(n, f);
  t.launch([&] { kernel::swiglu_backward<D, T>(t.dev, gate_up, dy, d_gate_up, y); });
  t.result("d_gate_up", d_gate_up, few);
  t.result("y", y, few);
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

/// Three steps, so that bias corrections and both moments count.
inline constexpr auto adamw = []<class D, class T>(Trial<D, T>& t) {
  using A = Accum<T>;
  const Index n = t.sizes.parameters;
  const View<D, const A> grad = t.sums(1, n);
  const View<D, A> value = t.sums(1, n),
                   m = t.template given<A>(1, n, std::vector<double>(static_cast<std::size_t>(n))),
                   v = t.template given<A>(1, n, std::vector<double>(static_cast<std::size_t>(n)));
  Index step = 0;
  t.launch([&] {
    for (int i = 0; i < 3; ++i)
      kernel::adamw<T>(t.dev, {.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.5, .step = ++step}, grad,
                       value, m, v);
  });
  t.sum_result("value", value, 64);
  t.sum_result("m", m, 64);
  t.sum_result("v", v, 1024);  // where β₂ is given in float32, 1 − β₂ has lost up to a thousand roundings
};

inline constexpr auto fill = []<class D, class T>(Trial<D, T>& t) {
  const View<D, T> y = t.apart(t.sizes.rows, t.sizes.out), z = t.apart(t.sizes.rows, t.sizes.out);
  t.launch([&] {
    kernel::fill(t.dev, y, 0.375);
    kernel::fill(t.dev, z, 0);
  });
  t.result("y", y, {0, 0});
  t.result("zeros", z, {0, 0});
};

inline constexpr auto widen = []<class D, class T>(Trial<D, T>& t) {
  const View<D, T> x = t.apart(t.sizes.rows, t.sizes.out);
  const View<D, Accum<T>> y = t.sums_room(t.sizes.rows, t.sizes.out), z = t.sums(t.sizes.rows, t.sizes.out);
  t.launch([&] {
    kernel::convert(t.dev, x, y);
    kernel::convert(t.dev, x, z, 0.3, true);
  });
  t.sum_result("y", y, 0);
  t.sum_result("sum", z, 4);
};

inline constexpr auto narrow = []<class D, class T>(Trial<D, T>& t) {
  const View<D, Accum<T>> x = t.sums(t.sizes.rows, t.sizes.out);
  const View<D, T> y = t.apart(t.sizes.rows, t.sizes.out), z = t.apart(t.sizes.rows, t.sizes.out);
  t.launch([&] {
    kernel::convert(t.dev, x, y, 0.3);
    kernel::convert(t.dev, x, z, 0.3, true);
  });
  t.result("y", y, {1.001, 2});
  t.result("sum", z, {2, 4});
};

inline constexpr auto rescale = []<class D, class T>(Trial<D, T>& t) {
  const View<D, T> x = t.values(t.sizes.rows, t.sizes.out), y = t.room(t.sizes.rows, t.sizes.out);
  t.launch([&] { kernel::convert(t.dev, x, y, 0.3); });
  t.result("y", y, {1.001, 2});
};

/// Halfway between two numbers of T the one whose last bit is 0 is taken; float32 and double have no such halves here.
inline constexpr auto ties = []<class D, class T>(Trial<D, T>& t) {
  std::vector<double> halves, nearest;
  const double step = 2 * roundoff(t.precision());  // from one number to the next, in [1, 2)
  for (int i = 0; i < 64; ++i) {
    const double number = 1 + i * step, half = number + step / 2;
    const bool single = t.precision() == Precision::float32;
    halves.push_back(single ? number : half);
    nearest.push_back(single ? number : rounded(half, t.precision()));
  }
  const auto x = t.template given<Accum<T>>(1, 64, std::same_as<T, double> ? nearest : halves);
  const View<D, T> y = t.room(1, 64);
  t.launch([&] { kernel::convert(t.dev, x, y); });
  t.result("y", y, {0, 0});
};

inline constexpr auto add_bias = []<class D, class T>(Trial<D, T>& t) {
  const View<D, const Accum<T>> bias = t.sums(1, t.sizes.out);
  const View<D, T> y = t.apart(t.sizes.rows, t.sizes.out);
  t.launch([&] { kernel::add_bias<D, T>(t.dev, bias, y); });
  t.result("y", y, {2, 4});
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

/// No element is near 0, so that an error of 1 shows where the mask is another.
template <bool adds>
inline constexpr auto dropout = []<class D, class T>(Trial<D, T>& t) {
  std::vector<std::int32_t> places, sequence;
  for (Index i = 0; i < t.sizes.rows; ++i) {
    places.push_back(static_cast<std::int32_t>(i % 17));
    sequence.push_back(static_cast<std::int32_t>(i / 17));
  }
  const View<D, const T> x = t.apart(t.sizes.rows, t.sizes.width, 1, 2);
  const View<D, T> y = adds ? t.values(t.sizes.rows, t.sizes.width) : t.room(t.sizes.rows, t.sizes.width);
  const auto sequence_index = t.numbers(sequence), positions = t.numbers(places);
  t.launch([&] { kernel::dropout<D, T>(t.dev, {0.1, 0x5EED}, x, sequence_index, positions, y, adds); });
  t.result("y", y, few);
  // A scale that is off by a fraction of a rounding moves every result the same way.
  if constexpr (!adds) t.mean_result("mean of what is kept", y, 1e-4);
};

inline constexpr auto column_sums = []<class D, class T>(Trial<D, T>& t) {
  const View<D, const T> x = t.apart(t.sizes.rows, t.sizes.width);
  const View<D, Accum<T>> out = t.sums(1, t.sizes.width);
  t.launch([&] { kernel::column_sums<D, T>(t.dev, x, out); });
  t.sum_result("out", out, 64);
};

inline constexpr auto sums_of_squares = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.parameters;
  const View<D, const Accum<T>> x = t.sums(1, n, 0, 1);
  const auto blocks = t.template empty<typename D::Sum>(1, (n + kernel::sum_block - 1) / kernel::sum_block);
  const auto total = t.template given<typename D::Sum>(1, 1, std::vector<double>(1, 2));
  t.launch([&] {
    kernel::block_sums_of_squares<D>(t.dev, x, blocks);
    kernel::sum<D>(t.dev, x, total);
  });
  t.sum_result("blocks", blocks, 64);
  t.sum_result("total", total, 64);
};

inline constexpr auto decode = []<class D, class T>(Trial<D, T>& t) {
  const StoredView<D> w = t.stored(t.sizes.out, t.sizes.width);
  const View<D, T> y = t.room(t.sizes.out, t.sizes.width);
  t.launch([&] { kernel::decode<D, T>(t.dev, w, y); });
  t.result("y", y, {0, 0});
};

inline constexpr auto decode_blocks = []<class D, class T>(Trial<D, T>& t) {
  if (!D::decodes(DType::q8_0)) return;  // the host does, wherever the weight goes
  const StoredView<D> w = t.stored_blocks(t.sizes.out, t.sizes.width);
  const View<D, T> y = t.room(t.sizes.out, t.sizes.width);
  t.launch([&] { kernel::decode<D, T>(t.dev, w, y); });
  t.result("y", y, {2, 2});
};

inline constexpr auto decode_with_update = []<class D, class T>(Trial<D, T>& t) {
  using A = Accum<T>;
  const StoredView<D> w = t.stored(t.sizes.out, t.sizes.width);
  const View<D, const A> b = t.sums(t.sizes.rank, t.sizes.out), a = t.sums(t.sizes.rank, t.sizes.width);
  const View<D, A> y = t.sums_room(t.sizes.out, t.sizes.width);
  t.launch([&] { kernel::decode_with_update<D, A>(t.dev, w, b, a, y); });
  t.sum_result("y", y, 64);
};

/// What is too large for float16 becomes infinite, and NaN stays in its row.
inline constexpr auto non_finite_products = []<class D, class T>(Trial<D, T>& t) {
  const Index k = t.sizes.width, n = 32;
  std::vector<double> rows;
  for (Index i = 0; i < 4 * k; ++i) rows.push_back(i / k == 1 ? 200 : 0.25);
  rows[static_cast<std::size_t>(2 * k + 5)] = std::numeric_limits<double>::quiet_NaN();
  rows[static_cast<std::size_t>(3 * k + 7)] = -std::numeric_limits<double>::infinity();
  const View<D, const T> a = t.template given<T>(4, k, rows),
                         b = t.template given<T>(n, k, std::vector<double>(static_cast<std::size_t>(n * k), 200));
  const View<D, T> c = t.room(4, n);
  t.launch([&] { kernel::gemm(t.dev, Form::nt, a, b, c); });
  t.result("c", c, product_bound);
};

inline constexpr auto non_finite_numbers = []<class D, class T>(Trial<D, T>& t) {
  using A = Accum<T>;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> numbers = {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 70000, -70000, 65519,
                                 1e-8,     1};
  const View<D, A> x = t.template given<A>(1, 8, numbers);
  const View<D, T> y = t.room(1, 8);
  std::vector<double> large(2 * kernel::sum_block, 1e30);  // their squares are too large for float32
  large[static_cast<std::size_t>(kernel::sum_block)] = std::numeric_limits<double>::quiet_NaN();
  const View<D, A> z = t.template given<A>(1, 2 * kernel::sum_block, large);
  const auto blocks = t.template empty<typename D::Sum>(1, 2);
  t.launch([&] {
    kernel::convert(t.dev, x, y);
    kernel::block_sums_of_squares<D>(t.dev, z, blocks);
  });
  t.result("y", y, {1.001, 1});
  t.sum_result("squares", blocks, 0);
};

}  // namespace detail

/// Every kernel family, with each result that training uses.
template <AnyDevice D, class T>
std::vector<Case<D, T>> cases() {
  using namespace detail;
  using kernel::Rotation;
  constexpr bool timed = true;
  return {
      {"products", "c = a bᵀ", product<Form::nt, false, false>, product<Form::nt, false, false>, timed},
      {"products", "c = a b", product<Form::nn, false, false>, product<Form::nn, false, false>, timed},
      {"products", "c = aᵀ b", product<Form::tn, false, false>, product<Form::tn, false, false>},
      {"products", "c += a bᵀ / 2", product<Form::nt, false, true>, product<Form::nt, false, true>},
      {"products", "c += a b / 2", product<Form::nn, false, true>, product<Form::nn, false, true>},
      {"products", "c += aᵀ b / 2", product<Form::tn, false, true>, product<Form::tn, false, true>},
      {"products", "c = a bᵀ in float32", product<Form::nt, true, false>, product<Form::nt, true, false>, timed},
      {"products", "c = a b in float32", product<Form::nn, true, false>, product<Form::nn, true, false>},
      {"products", "c = aᵀ b in float32", product<Form::tn, true, false>, product<Form::tn, true, false>},
      {"products", "c += a bᵀ / 2 in float32", product<Form::nt, true, true>, product<Form::nt, true, true>},
      {"products", "c += a b / 2 in float32", product<Form::nn, true, true>, product<Form::nn, true, true>},
      {"products", "c += aᵀ b / 2 in float32", product<Form::tn, true, true>, product<Form::tn, true, true>, timed},
      {"products", "y = x Wᵀ + h B + bias", sum_of_products<false>, sum_of_products<false>, timed},
      {"products", "y += x Wᵀ + h B + bias", sum_of_products<true>, sum_of_products<true>},
      {"low rank", "backward", low_rank_backward, low_rank_backward, timed},
      {"low rank", "gradients", low_rank_gradients, low_rank_gradients, timed},
      {"norm", "rms_norm", rms_norm<false>, rms_norm<false>, timed},
      {"norm", "rms_norm of heads", rms_norm<true>, rms_norm<true>},
      {"norm", "backward", rms_norm_backward<false>, rms_norm_backward<false>, timed},
      {"norm", "backward of heads", rms_norm_backward<true>, rms_norm_backward<true>},
      {"norm", "weight gradient", rms_norm_weight_gradient, rms_norm_weight_gradient, timed},
      {"rope", "forward", rope<Rotation::forward>, rope<Rotation::forward>, timed},
      {"rope", "inverse", rope<Rotation::inverse>, rope<Rotation::inverse>},
      {"attention", "heads of 64", attention<false, false>, attention<false, false>},
      {"attention", "heads of 64, backward", attention<false, true>, attention<false, true>},
      {"attention", "heads of 128", attention<true, false>, attention<true, false>, timed},
      {"attention", "heads of 128, backward", attention<true, true>, attention<true, true>, timed},
      {"attention", "decoding", attention_decoding, attention_decoding, timed},
      {"activation", "swiglu", swiglu, swiglu, timed},
      {"activation", "swiglu, backward", swiglu_backward, swiglu_backward, timed},
      {"embedding", "embedding", embedding, embedding, timed},
      {"embedding", "backward", embedding_backward, embedding_backward, timed},
      {"embedding", "noise", embedding_noise, embedding_noise},
      {"loss", "cross entropy", cross_entropy, cross_entropy, timed},
      {"optimizer", "AdamW, three steps", adamw, adamw, timed},
      {"elementwise", "fill", fill, fill},
      {"elementwise", "to float32", widen, widen, timed},
      {"elementwise", "from float32", narrow, narrow, timed},
      {"elementwise", "scale", rescale, rescale},
      {"elementwise", "halves to even", ties, ties},
      {"elementwise", "add_bias", add_bias, add_bias},
      {"elementwise", "gather_rows", gather_rows, gather_rows},
      {"elementwise", "scatter_rows", scatter_rows, scatter_rows},
      {"elementwise", "dropout", dropout<false>, dropout<false>, timed},
      {"elementwise", "dropout, added", dropout<true>, dropout<true>},
      {"reduce", "column_sums", column_sums, column_sums, timed},
      {"reduce", "sums of squares", sums_of_squares, sums_of_squares, timed},
      {"quantize", "decode", decode, decode},
      {"quantize", "decode Q8_0", decode_blocks, decode_blocks, timed},
      {"quantize", "decode with update", decode_with_update, decode_with_update},
      {"non-finite", "products", non_finite_products, non_finite_products},
      {"non-finite", "numbers", non_finite_numbers, non_finite_numbers},
      {"streams", "copies and kernels that wait for each other", copies_and_kernels, copies_and_kernels},
  };
}

}  // namespace lora::doctor
