#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>

#include "lora/cpu/vectors/exp.hpp"

namespace lora::cpu {

/// tanh x within 2 units in the last place, without branches or calls, as cpu::exp is; NaN stays NaN.
/// Source   Moshier's Cephes: a polynomial below 0.625, 1 − 2 / (e^(2|x|) + 1) from there on
[[gnu::always_inline]] inline float tanh(float x) {
  constexpr std::uint32_t sign_bit = 0x80000000u;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const float size = std::bit_cast<float>(bits & ~sign_bit);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = multiply_add(p, z, 2.06390887954e-2f);
  p = multiply_add(p, z, -5.37397155531e-2f);
  p = multiply_add(p, z, 1.33314422036e-1f);
  p = multiply_add(p, z, -3.33332819422e-1f);
  const float near = multiply_add(p * z, x, x);
  const float far = 1.0f - 2.0f / (cpu::exp(size + size) + 1.0f);
  const float signed_far = std::bit_cast<float>(std::bit_cast<std::uint32_t>(far) | (bits & sign_bit));
  const bool small = size < 0.625f;
  return kept_if(small, near) + kept_if(!small, signed_far);
}

inline double tanh(double x) { return std::tanh(x); }

inline std::complex<double> tanh(const std::complex<double>& x) { return std::tanh(x); }

}  // namespace lora::cpu
