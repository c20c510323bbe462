#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/exp.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/tensor/arena.hpp"

namespace lora::cpu {

/// Σ term(i) for i in [0, n), in an order that depends on n alone: neither the alignment of rows, nor the width of
/// vector registers, nor the number of threads changes its bits. Flattened because `term` is called twice, and
/// compilers leave the call of a long one in the loop, which is no vector code then.
template <class Sum, class Term>
[[gnu::flatten]] Sum ordered_sum(Index n, const Term& term) {
  constexpr Index lanes = 16;
  std::array<Sum, static_cast<std::size_t>(lanes)> storage{};
  Sum* const sums = storage.data();
  const Index whole = n / lanes * lanes;
  for (Index i = 0; i < whole; i += lanes) {
    LORA_SIMD
    for (Index lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
  }
  for (Index i = whole; i < n; ++i) sums[i - whole] += term(i);
  for (Index half = lanes / 2; half > 0; half /= 2) {
    for (Index lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

/// The largest of n values, by their real part; minus infinity for none.
template <class Value>
Value ordered_max(Index n, const Value* values) {
  constexpr Index lanes = 16;
  std::array<Value, static_cast<std::size_t>(lanes)> storage;
  storage.fill(Value(-std::numeric_limits<double>::infinity()));
  Value* const largest = storage.data();
  const auto larger = [](const Value& a, const Value& b) { return real_part(b) > real_part(a) ? b : a; };
  const Index whole = n / lanes * lanes;
  for (Index i = 0; i < whole; i += lanes) {
    LORA_SIMD
    for (Index lane = 0; lane < lanes; ++lane) largest[lane] = larger(largest[lane], values[i + lane]);
  }
  for (Index i = whole; i < n; ++i) largest[i - whole] = larger(largest[i - whole], values[i]);
  for (Index half = lanes / 2; half > 0; half /= 2) {
    for (Index lane = 0; lane < half; ++lane) largest[lane] = larger(largest[lane], largest[lane + half]);
  }
  return largest[0];
}

namespace detail {

/// Σ term(x_ij), split into a fixed number of pieces so that the order is the same for every number of threads.
template <class T, class Term>
double sum_in_pieces(Device& dev, View<Device, const T> x, const Term& term) {
  constexpr Index pieces = 64;
  std::array<double, static_cast<std::size_t>(pieces)> partial{};
  const Index cols = x.cols();
  const Index size = x.size();
  dev.parallel_for(pieces, 8192 * pieces / (size + 1) + 1, [&](Index first, Index last) {
    for (Index piece = first; piece < last; ++piece) {
      const Index end = size / pieces * (piece + 1) + size % pieces * (piece + 1) / pieces;
      double total = 0;
      for (Index at = size / pieces * piece + size % pieces * piece / pieces; at < end;) {
        const Index col = at % cols;
        const Index count = std::min(cols - col, end - at);
        const T* const values = x.row(at / cols) + col;
        total += ordered_sum<double>(
            count, [=](Index i) { return term(static_cast<double>(real_part(static_cast<Accum<T>>(values[i])))); });
        at += count;
      }
      partial[static_cast<std::size_t>(piece)] = total;
    }
  });
  double total = 0;
  for (const double value : partial) total += value;
  return total;
}

}  // namespace detail

/// out_j += Σ_i term(i, j) for j in [0, cols): rows in blocks, whose sums are then added up in their order, so that the
/// number of threads changes no bit. add(i, sums) adds row i's terms to `sums`.
template <class A, class Add>
void ordered_column_sums(Device& dev, Index rows, Index cols, const Add& add, A* out) {
  constexpr Index block = 64;
  const Index blocks = (rows + block - 1) / block;
  if (blocks == 0) return;
  const Arena::Scope scope(dev.arena());
  const View<Device, A> partial = scratch<A>(dev, blocks, cols);
  dev.parallel_for(blocks, cpu::rows_per_task(block * cols), [&](Index first, Index last) {
    for (Index b = first; b < last; ++b) {
      A* const sums = partial.row(b);
      std::fill_n(sums, cols, A(0));
      for (Index i = b * block; i < std::min(rows, (b + 1) * block); ++i) add(i, sums);
    }
  });
  for (Index b = 1; b < blocks; ++b) {
    A* const total = partial.row(0);
    const A* const sums = partial.row(b);
    LORA_SIMD
    for (Index j = 0; j < cols; ++j) total[j] += sums[j];
  }
  const A* const total = partial.row(0);
  LORA_SIMD
  for (Index j = 0; j < cols; ++j) out[j] += total[j];
}

}  // namespace lora::cpu

namespace lora::kernel {

template <>
struct Reduce<cpu::Device> {
  template <class T>
  static void block_sums_of_squares(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, double> out);

  template <class T>
  static void column_sums(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, Accum<T>> out);

  template <class T>
  static void sum(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, double> out);
};

template <class T>
void Reduce<cpu::Device>::block_sums_of_squares(cpu::Device& dev, View<cpu::Device, const T> x,
                                                View<cpu::Device, double> out) {
  constexpr Index grain = 8;  // blocks that are worth a thread
  dev.parallel_for(out.cols(), grain, [=](Index first, Index last) {
    for (Index block = first; block < last; ++block) {
      const T* const values = x.data() + block * sum_block;
      out.data()[block] = cpu::ordered_sum<double>(std::min(sum_block, x.cols() - block * sum_block), [=](Index i) {
        const auto value = static_cast<double>(cpu::real_part(static_cast<Accum<T>>(values[i])));
        return value * value;
      });
    }
  });
}

template <class T>
void Reduce<cpu::Device>::column_sums(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, Accum<T>> out) {
  using A = Accum<T>;
  const Index cols = x.cols();
  const auto add = [=](Index i, A* sums) {
    const T* const row = x.row(i);
    LORA_SIMD
    for (Index j = 0; j < cols; ++j) sums[j] += static_cast<A>(row[j]);
  };
  cpu::ordered_column_sums<A>(dev, x.rows(), cols, add, out.data());
}

template <class T>
void Reduce<cpu::Device>::sum(cpu::Device& dev, View<cpu::Device, const T> x, View<cpu::Device, double> out) {
  *out.data() += cpu::detail::sum_in_pieces(dev, x, [](double value) { return value; });
}

}  // namespace lora::kernel
