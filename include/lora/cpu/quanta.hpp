#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lora/cpu/eigen.hpp"
#include "lora/cpu/lanes.hpp"
#include "lora/cpu/stored_row.hpp"

/// Products of integers: weights in GGUF's blocks with rows that are rounded to 8 bits. Vectors are the compiler's, as
/// in lanes.hpp, but for a few instructions that it does not find.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
namespace lora::cpu::detail {

using Bytes32 = std::uint8_t __attribute__((vector_size(32)));
using Shorts16 = std::uint16_t __attribute__((vector_size(32)));
using Bits8 = std::uint32_t __attribute__((vector_size(32)));
using Sums4 = std::int32_t __attribute__((vector_size(16)));
using Sums8 = std::int32_t __attribute__((vector_size(32)));

/// Adds four products each of adjacent bytes to sums. x is signed, within ±127; w is at most 127.
[[gnu::always_inline]] inline void add_fours(const Bytes32& w, const Bytes32& x, Sums8& sums) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  sums = (Sums8)_mm256_dpbusd_epi32((__m256i)sums, (__m256i)w, (__m256i)x);
#elif defined(__AVX2__)
  sums += (Sums8)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)w, (__m256i)x), _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
  int8x16_t left[2], right[2];
  int32x4_t parts[2];
  std::memcpy(left, &w, sizeof left);
  std::memcpy(right, &x, sizeof right);
  std::memcpy(parts, &sums, sizeof parts);
  for (int i = 0; i < 2; ++i) parts[i] = vdotq_s32(parts[i], left[i], right[i]);
  std::memcpy(&sums, parts, sizeof sums);
#else
  std::int8_t left[32], right[32];
  std::int32_t parts[8];
  std::memcpy(left, &w, sizeof left);
  std::memcpy(right, &x, sizeof right);
  std::memcpy(parts, &sums, sizeof parts);
  for (int i = 0; i < 32; ++i) parts[i / 4] += left[i] * right[i];
  std::memcpy(&sums, parts, sizeof sums);
#endif
}

/// A row of x in blocks of 32 values, rounded to 8 bits:   x_i ≈ scale · q_i,   |q_i| ≤ 127
struct RoundedRow {
  const Bytes32* q;             // signed
  const Sums8* negated_fours;   // −Σ q of four adjacent ones each, which a weight's center is multiplied by
  const Sums4* negated_halves;  // −Σ q of those i with i / 8 even, and with i / 8 odd, twice
  const float* scales;          // of each block
  const float* sums;            // scale · Σ q of each block, which a weight's minimum is multiplied by
};

/// Rounds 32 values to the nearest multiples of the largest / 127, ties to even; where one is not finite, the scale is
/// NaN.
inline void round_block(const float* x, Bytes32& q, Sums8& negated_fours, Sums4& negated_halves, float& scale,
                        float& sum) {
  Floats8 values[4], magnitudes{}, spoiled{};
  for (int i = 0; i < 4; ++i) {
    load_floats(x + 8 * i, values[i]);
    const Floats8 magnitude = values[i] < 0 ? -values[i] : values[i];
    magnitudes = magnitude > magnitudes ? magnitude : magnitudes;
    spoiled += values[i] * 0;  // NaN where x is not finite
  }
  float largest = 0;
  for (int i = 0; i < 8; ++i) largest = std::max(largest, magnitudes[i]);
  constexpr float least = 1e-36f;  // whose inverse is finite
  const bool rounds = largest > least;
  scale = (rounds ? largest / 127 : 0) + total(spoiled);
  const float inverse = rounds ? 127 / largest : 0;
  // A float of 1.5 · 2²³ and something is a whole number, whose last bits are that of the something.
  constexpr float whole = 0x1.8p23f;
  std::int32_t wide[32];
  for (int i = 0; i < 4; ++i) {
    Floats8 shifted = Floats8{} + whole;
    add_product(values[i], Floats8{} + inverse, shifted);
    const Sums8 quanta = reinterpret_cast<Sums8>(shifted) - std::bit_cast<std::int32_t>(whole);
    std::memcpy(wide + 8 * i, &quanta, sizeof quanta);
  }
  std::int8_t quanta[32];
  for (int i = 0; i < 32; ++i) quanta[i] = static_cast<std::int8_t>(wide[i]);
  std::memcpy(&q, quanta, sizeof q);
  negated_fours = Sums8{};
  add_fours(Bytes32{} + 1, q, negated_fours);
  negated_fours = -negated_fours;
  const Sums8 pairs = negated_fours + __builtin_shufflevector(negated_fours, negated_fours, 1, 0, 3, 2, 5, 4, 7, 6);
  negated_halves =
      __builtin_shufflevector(pairs, pairs, 0, 2, 0, 2) + __builtin_shufflevector(pairs, pairs, 4, 6, 4, 6);
  sum = scale * static_cast<float>(-(negated_halves[0] + negated_halves[1]));
}

[[gnu::always_inline]] inline void load_bytes(const std::byte* from, Bytes32& bytes) {
  std::memcpy(&bytes, from, sizeof bytes);
}
/// 16 bytes, and the same again.
[[gnu::always_inline]] inline void load_twice(const std::byte* from, Bytes32& bytes) {
#if defined(__AVX2__)
  bytes = (Bytes32)_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  std::uint8_t halves[32];
  for (int i = 0; i < 2; ++i) std::memcpy(halves + 16 * i, from, 16);
  std::memcpy(&bytes, halves, sizeof bytes);
#endif
}

/// Each byte's bits from bit `shift` on; where that is negative, up by so many. Instructions shift no bytes: a
/// neighbor's bits come in, which the caller masks out.
[[gnu::always_inline]] inline void shift_bytes(const Bytes32& bytes, int shift, Bytes32& to) {
  const auto words = reinterpret_cast<Shorts16>(bytes);
  to = reinterpret_cast<Bytes32>(shift < 0 ? words << static_cast<std::uint16_t>(-shift)
                                           : words >> static_cast<std::uint16_t>(shift));
}

/// A scale of a block, a float16.
[[gnu::always_inline]] inline float load_scale(const std::byte* from) {
#if defined(__F16C__)
  return _cvtsh_ss(load<std::uint16_t>(from));
#else
  return widened(load<f16>(from));
#endif
}
/// The same in all lanes.
[[gnu::always_inline]] inline void load_scale(const std::byte* from, Floats8& scale) {
#if defined(__F16C__)
  scale = _mm256_cvtph_ps(_mm_set1_epi16(load<std::int16_t>(from)));
#else
  scale = Floats8{} + load_scale(from);
#endif
}
/// Eight small integers, without a sign or with one.
template <class Small>
[[gnu::always_inline]] inline void widen_eight(const void* from, Floats8& to) {
#if defined(__AVX2__)
  const __m128i eight = _mm_loadl_epi64(static_cast<const __m128i*>(from));
  to = _mm256_cvtepi32_ps(std::is_signed_v<Small> ? _mm256_cvtepi8_epi32(eight) : _mm256_cvtepu8_epi32(eight));
#else
  Small small[8];
  std::memcpy(small, from, sizeof small);
  float wide[8];
  for (int i = 0; i < 8; ++i) wide[i] = static_cast<float>(small[i]);
  load_floats(wide, to);
#endif
}

/// Σ (w − center) x of four adjacent bytes each.
template <int center>
[[gnu::always_inline]] inline void centered_fours(const Bytes32& w, const RoundedRow& x, Index b, Sums8& sums) {
  sums = x.negated_fours[b] * center;
  add_fours(w, x.q[b], sums);
}

/// Q8_0
struct Eights {
  static constexpr int columns = 32, bytes = 34;
  Bytes32 q;
  Floats8 scale;

  [[gnu::always_inline]] explicit Eights(const std::byte* block) {
    load_bytes(block + 2, q);
    load_scale(block, scale);
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    q ^= 128;  // that is q + 128, without a sign
#endif
  }
  [[gnu::always_inline]] void add(const RoundedRow& x, Index b, Floats8& sum, Floats8&) const {
    Sums8 products;
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    centered_fours<128>(q, x, b, products);
#else
    products = Sums8{};
#  if defined(__AVX2__)  // the instructions take their first operand without a sign
    add_fours((Bytes32)_mm256_abs_epi8((__m256i)q), (Bytes32)_mm256_sign_epi8((__m256i)x.q[b], (__m256i)q), products);
#  else
    add_fours(q, x.q[b], products);
#  endif
#endif
    add_product(__builtin_convertvector(products, Floats8), scale * x.scales[b], sum);
  }
  [[gnu::always_inline]] static float total_of(const Floats8& sum, const Floats8&) { return total(sum); }
};

/// Q4_K, and Q5_K with a fifth bit.
template <bool fifth>
struct Eighths {
  static constexpr int columns = 256, bytes = fifth ? 176 : 144;
  Bytes32 q[8];
  Floats8 scales, minima_of;

  [[gnu::always_inline]] explicit Eighths(const std::byte* block) {
    // Four numbers of 6 bits in each word: see eighth_scale.
    const auto first = load<std::uint32_t>(block + 4), second = load<std::uint32_t>(block + 8),
               third = load<std::uint32_t>(block + 12);
    constexpr std::uint32_t six = 0x3F3F3F3F, four = 0x0F0F0F0F, two = 0x03030303;
    const std::uint32_t of_scales[2] = {first & six, (third & four) | (first >> 6 & two) << 4},
                        of_minima[2] = {second & six, (third >> 4 & four) | (second >> 6 & two) << 4};
    widen_eight<std::uint8_t>(of_scales, scales);
    widen_eight<std::uint8_t>(of_minima, minima_of);
    scales *= load_scale(block);
    minima_of *= load_scale(block + 2);
    unrolled<4>([&](auto k) {
      Bytes32 both, high;
      load_bytes(block + (fifth ? 48 : 16) + k * 32, both);
      shift_bytes(both, 4, high);
      q[2 * k] = both & 15;
      q[2 * k + 1] = high & 15;
    });
    if constexpr (fifth) {
      Bytes32 all;
      load_bytes(block + 16, all);
      unrolled<8>([&](auto k) {
        Bytes32 fifths;
        shift_bytes(all, k - 4, fifths);
        q[k] |= fifths & 16;
      });
    }
  }
  [[gnu::always_inline]] void add(const RoundedRow& x, Index b, Floats8& sum, Floats8& minima) const {
    Floats8 x_scales, x_sums;
    load_floats(x.scales + 8 * b, x_scales);
    load_floats(x.sums + 8 * b, x_sums);
    const Floats8 both = scales * x_scales;
    unrolled<8>([&](auto k) {
      Sums8 products{};
      add_fours(q[k], x.q[8 * b + k], products);
      constexpr int lane = k;
      const Floats8 scale = __builtin_shufflevector(both, both, lane, lane, lane, lane, lane, lane, lane, lane);
      add_product(__builtin_convertvector(products, Floats8), scale, sum);
    });
    add_product(minima_of, x_sums, minima);
  }
  [[gnu::always_inline]] static float total_of(const Floats8& sum, const Floats8& minima) {
    return total(sum) - total(minima);
  }
};

/// Q6_K
struct Sixes {
  static constexpr int columns = 256, bytes = 210;
  Bytes32 q[8];
  Floats8 scales[2];  // of 16 values each

  [[gnu::always_inline]] explicit Sixes(const std::byte* block) {
    unrolled<8>([&](auto k) {
      Bytes32 lower, upper;
      load_bytes(block + k / 4 * 64 + k % 2 * 32, lower);
      load_bytes(block + 128 + k / 4 * 32, upper);
      shift_bytes(lower, k / 2 % 2 * 4, lower);
      shift_bytes(upper, k % 4 * 2, upper);
      q[k] = (lower & 15) | (upper & 3) << 4;
    });
    const float scale = load_scale(block + 208);
    for (int i = 0; i < 2; ++i) {
      widen_eight<std::int8_t>(block + 192 + 8 * i, scales[i]);
      scales[i] *= scale;
    }
  }
  [[gnu::always_inline]] void add(const RoundedRow& x, Index b, Floats8& sum, Floats8&) const {
    unrolled<8>([&](auto k) {
      Sums8 products;
      centered_fours<32>(q[k], x, 8 * b + k, products);
      const Floats8& of_four = scales[k / 4];
      constexpr int first = 2 * (k % 4), second = first + 1;
      const Floats8 scale =
          __builtin_shufflevector(of_four, of_four, first, first, first, first, second, second, second, second);
      add_product(__builtin_convertvector(products, Floats8), scale * x.scales[8 * b + k], sum);
    });
  }
  [[gnu::always_inline]] static float total_of(const Floats8& sum, const Floats8&) { return total(sum); }
};

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
