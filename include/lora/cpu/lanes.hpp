#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "lora/cpu/eigen.hpp"

/// Vectors of float as the compiler has them, so that one text serves AVX2, AVX-512 and NEON. They are passed by
/// reference, and no function that takes one is called from another source, whose instructions might pass it otherwise;
/// of that compilers warn (psabi).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
namespace lora::cpu::detail {

using Floats4 = float __attribute__((vector_size(16)));
using Floats8 = float __attribute__((vector_size(32)));
using Floats16 = float __attribute__((vector_size(64)));

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

/// The sum of all lanes, by halves.
[[gnu::always_inline]] inline float total(const Floats8& x) {
  const Floats4 sums = __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}
[[gnu::always_inline]] inline float total(const Floats16& x) {
  const Floats8 sums = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  return total(sums);
}
[[gnu::always_inline]] inline float total(float sum) { return sum; }

/// The totals of eight vectors, each summed by halves.
[[gnu::always_inline]] inline void totals(const Floats16 (&x)[8], Floats8& sums) {
  Floats16 halves[4], quarters[2];
  for (int i = 0; i < 4; ++i)
    halves[i] =
        __builtin_shufflevector(x[2 * i], x[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(x[2 * i], x[2 * i + 1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  for (int i = 0; i < 2; ++i)
    quarters[i] = __builtin_shufflevector(halves[2 * i], halves[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,
                                          24, 25, 26, 27) +
                  __builtin_shufflevector(halves[2 * i], halves[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23,
                                          28, 29, 30, 31);
  const Floats16 pairs =
      __builtin_shufflevector(quarters[0], quarters[1], 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
      __builtin_shufflevector(quarters[0], quarters[1], 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
  sums = __builtin_shufflevector(pairs, pairs, 0, 2, 4, 6, 8, 10, 12, 14) +
         __builtin_shufflevector(pairs, pairs, 1, 3, 5, 7, 9, 11, 13, 15);
}

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
