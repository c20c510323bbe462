#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "lora/cpu/vectors/eigen.hpp"

/// Vectors of float as the compiler has them, so that one text serves AVX2, AVX-512 and NEON. They are passed by
/// reference, and no function that takes one is called from another source, whose instructions might pass it otherwise;
/// of that compilers warn (psabi).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
namespace lora::cpu::detail {

using Floats4 = float __attribute__((vector_size(16)));
using Floats8 = float __attribute__((vector_size(32)));
#if defined(__AVX512BW__)
using Floats16 = float __attribute__((vector_size(64)));
#else
/// Of vectors wider than registers GCC keeps parts in memory, and writes them there in other parts than it reads.
struct Floats16 {
  Floats8 low, high;
};
#endif

/// Sums of 16 floats that registers hold beside what is added to them: of processors with 32 registers that hold one
/// each, or else with 16 that hold half of one.
#if defined(__AVX512BW__)
inline constexpr int wide_sums = 8;
#else
inline constexpr int wide_sums = 4;
#endif

/// body(0), …, body(count − 1), each with its number as a constant: elements of arrays that are numbered so are kept in
/// registers, which GCC does not do of a loop that it unrolls.
template <int count, class Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
  const auto each = [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, i>()), ...);
  };
  each(std::make_integer_sequence<int, count>());
}

/// body(0, 0), …, body(rows − 1, columns − 1), row by row.
template <int rows, int columns, class Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
  unrolled<rows>([&](auto i) { unrolled<columns>([&](auto j) { body(i, j); }); });
}

template <class Vector>
[[gnu::always_inline]] inline void load_floats(const float* from, Vector& to) {
  std::memcpy(&to, from, sizeof to);
}
template <class Vector>
[[gnu::always_inline]] inline void store_floats(const Vector& from, float* to) {
  std::memcpy(to, &from, sizeof from);
}
#if !defined(__AVX512BW__)
[[gnu::always_inline]] inline void load_floats(const float* from, Floats16& to) {
  load_floats(from, to.low);
  load_floats(from + 8, to.high);
}
[[gnu::always_inline]] inline void store_floats(const Floats16& from, float* to) {
  store_floats(from.low, to);
  store_floats(from.high, to + 8);
}
#endif

/// x in each lane.
[[gnu::always_inline]] inline void fill_lanes(float x, Floats8& lanes) { lanes = Floats8{x, x, x, x, x, x, x, x}; }
[[gnu::always_inline]] inline void fill_lanes(float x, Floats16& lanes) {
#if defined(__AVX512BW__)
  lanes = _mm512_set1_ps(x);
#else
  fill_lanes(x, lanes.low);
  lanes.high = lanes.low;
#endif
}

/// sum += x y, rounded once where processors have an instruction for it. Compilers make one sum of a product and the
/// next one so and another not, as registers come, and results would depend on what is computed beside them.
[[gnu::always_inline]] inline void add_product(const Floats8& x, const Floats8& y, Floats8& sum) {
#if defined(__FMA__)
  sum = _mm256_fmadd_ps(x, y, sum);
#elif defined(__ARM_FEATURE_FMA)
  for (int i = 0; i < 8; ++i) sum[i] = __builtin_fmaf(x[i], y[i], sum[i]);
#else
  sum += x * y;
#endif
}

[[gnu::always_inline]] inline void add_product(const Floats16& x, const Floats16& y, Floats16& sum) {
#if defined(__AVX512BW__)
  sum = _mm512_fmadd_ps(x, y, sum);
#else
  add_product(x.low, y.low, sum.low);
  add_product(x.high, y.high, sum.high);
#endif
}

/// The sum of both halves.
[[gnu::always_inline]] inline void add_halves(const Floats16& x, Floats8& sum) {
#if defined(__AVX512BW__)
  sum = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
        __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  sum = x.low + x.high;
#endif
}

/// The sum of all lanes, by halves.
[[gnu::always_inline]] inline float total(const Floats8& x) {
  const Floats4 sums = __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}
[[gnu::always_inline]] inline float total(const Floats16& x) {
  Floats8 sums;
  add_halves(x, sums);
  return total(sums);
}
[[gnu::always_inline]] inline float total(float sum) { return sum; }

/// The totals of eight vectors, each summed by halves.
[[gnu::always_inline]] inline void totals(const Floats16 (&x)[8], Floats8& sums) {
  Floats8 eights[8], fours[4], pairs[2];
  unrolled<8>([&](auto i) { add_halves(x[i], eights[i]); });
  unrolled<4>([&](auto i) {
    const Floats8 &even = eights[2 * i], &odd = eights[2 * i + 1];
    fours[i] = __builtin_shufflevector(even, odd, 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(even, odd, 4, 5, 6, 7, 12, 13, 14, 15);
  });
  unrolled<2>([&](auto i) {
    const Floats8 &first = fours[2 * i], &second = fours[2 * i + 1];
    pairs[i] = __builtin_shufflevector(first, second, 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(first, second, 2, 3, 10, 11, 6, 7, 14, 15);
  });
  // Lanes are those of vectors 0, 2, 4, 6, and then 1, 3, 5, 7.
  sums = __builtin_shufflevector(pairs[0], pairs[1], 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(pairs[0], pairs[1], 1, 3, 9, 11, 5, 7, 13, 15);
  sums = __builtin_shufflevector(sums, sums, 0, 4, 1, 5, 2, 6, 3, 7);
}

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
