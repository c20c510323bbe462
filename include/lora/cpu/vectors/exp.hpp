#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstdint>
#include <limits>

namespace lora::cpu {

/// a b + c, rounded once where the processor has such an instruction. Compilers choose freely otherwise, GCC even
/// between the vector part of a loop and its remainder, so that equal formulas in two loops may differ by a bit.
template <class A>
A multiply_add(A a, A b, A c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  if constexpr (std::floating_point<A>) return std::fma(a, b, c);
#endif
  return a * b + c;
}

/// `value` where `keep`, else 0. Done on bits: GCC turns a conditional expression into a branch, and loops with
/// branches are vectorized only for processors with masked operations.
[[gnu::always_inline]] inline float kept_if(bool keep, float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0u - static_cast<std::uint32_t>(keep)));
}
template <class A>
A kept_if(bool keep, const A& value) {
  return keep ? value : A(0);
}

/// e^x within 1.5 units in the last place; below the smallest normal number 0, above e^88.37 infinity, NaN stays NaN.
/// It has neither branches nor calls, so that it is vectorized inside `#pragma omp simd` loops, and is
/// always inlined: a loop with a call is not vectorized. Source   Moshier's Cephes: e^x =
/// 2^n e^r, |r| ≤ ln 2 / 2, and a polynomial in r
[[gnu::always_inline]] inline float exp(float x) {
  constexpr float shift = 0x1.8p23f;  // adding it rounds to an integer in the low bits
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
  const bool too_large = x > highest;
  const float y = kept_if(!(x < lowest) & !too_large, p * power);
  return y + (too_large ? std::numeric_limits<float>::infinity() : 0.0f);
}

inline double exp(double x) { return std::exp(x); }

inline std::complex<double> exp(const std::complex<double>& x) { return std::exp(x); }

/// What x is compared by: its real part, where numbers are complex for complex-step derivatives.
inline float real_part(float x) { return x; }
inline double real_part(double x) { return x; }
inline double real_part(const std::complex<double>& x) { return x.real(); }

}  // namespace lora::cpu
