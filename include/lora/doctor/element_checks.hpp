#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lora/doctor/trial.hpp"
#include "lora/kernel/activation.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/optimizer.hpp"
#include "lora/kernel/reduce.hpp"

namespace lora::doctor::detail {

template <kernel::Gate gate>
inline constexpr auto gated_unit = []<class D, class T>(Trial<D, T>& t) {
  const View<D, const T> gate_up = t.values(t.sizes.rows, 2 * t.sizes.ffn, -8, 8);
  const View<D, T> y = t.apart(t.sizes.rows, t.sizes.ffn);
  t.launch([&] { kernel::gated_unit<D, T>(t.dev, gate, gate_up, y); });
  t.result("y", y, few);
};

template <kernel::Gate gate>
inline constexpr auto gated_unit_backward = []<class D, class T>(Trial<D, T>& t) {
  const Index n = t.sizes.rows, f = t.sizes.ffn;
  const View<D, const T> gate_up = t.values(n, 2 * f, -8, 8), dy = t.values(n, f);
  const View<D, T> d_gate_up = t.room(n, 2 * f), y = t.room(n, f);
  t.launch([&] { kernel::gated_unit_backward<D, T>(t.dev, gate, gate_up, dy, d_gate_up, y); });
  t.result("d_gate_up", d_gate_up, few);
  t.result("y", y, few);
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

}  // namespace lora::doctor::detail
