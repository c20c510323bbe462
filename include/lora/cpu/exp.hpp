#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstdint>
#include <limits>

namespace lora::cpu {

/// a b + c, rounded once where the processor has such an instruction. Left to themselves compilers form one or the
/// other: in C++ GCC does so even between the vectors of a loop and its last turns, so that equal formulas in two loops
/// may differ by a bit.
template <class A>
A multiply_add(A a, A b, A c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  if constexpr (std::floating_point<A>) return std::fma(a, b, c);
#endif
  return a * b + c;
}

/// e^x within 1.5 units in the last place; below the smallest normal number 0, above e^88.37 infinity, NaN stays NaN.
/// It has neither branches nor calls, so that compilers turn it into vector code inside `#pragma omp simd` loops.
/// Source   Moshier's Cephes: e^x = 2^n e^r, |r| ≤ ln 2 / 2, and a polynomial in r
inline float exp(float x) {
  constexpr float shift = 0x1.8p23f;  // adding it rounds to an integer, which then sits in the low bits
  constexpr float lowest = -87.33654f;
  constexpr float highest = 88.37626f;
  const float shifted = multiply_add(x, 1.44269504088896341f, shift);
  const float n = shifted - shift;
  const float r = multiply_add(n, 2.12194440e-4f, multiply_add(n, -0.693359375f, x));
  float p = 1.9875691500e-4f;
  p = multiply_add(p, r, 1.3981999507e-3f);
  p = multiply_add(p, r, 8.3334519073e-3f);
  p = multiply_add(p, r, 4.1665795894e-2f);
  p = multiply_add(p, r, 1.6666665459e-1f);
  p = multiply_add(p, r, 5.0000001201e-1f);
  p = multiply_add(p, r * r, r) + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000u);
  float y = p * power;
  y = x < lowest ? 0.0f : y;
  return x > highest ? std::numeric_limits<float>::infinity() : y;
}

inline double exp(double x) { return std::exp(x); }

inline std::complex<double> exp(const std::complex<double>& x) { return std::exp(x); }

/// The number that orders x: its real part, where sums are complex for the sake of a derivative.
inline float real_part(float x) { return x; }
inline double real_part(double x) { return x; }
inline double real_part(const std::complex<double>& x) { return x.real(); }

}  // namespace lora::cpu
