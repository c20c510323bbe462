#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lora/cpu/vectors/eigen.hpp"
#include "lora/cpu/vectors/lanes.hpp"
#include "lora/cpu/vectors/stored_row.hpp"

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
  sums = Sums8{};
  if constexpr (center != 0) sums = x.negated_fours[b] * center;
  add_fours(w, x.q[b], sums);
}

/// Two parts of 32 numbers each of a block of 256, and scaled sums of their products: in one vector where these have 64
/// bytes. Scales of parts are lanes of another vector, in `scales` of which each is for `each` sums of four products.
#if defined(__AVX512BW__)
using PartBytes = std::uint8_t __attribute__((vector_size(64)));
using Sums16 = std::int32_t __attribute__((vector_size(64)));
using PartSums = Floats16;

[[gnu::always_inline]] inline void load_parts(const std::byte* from, PartBytes& parts) {
  std::memcpy(&parts, from, sizeof parts);
}
/// 32 bytes for both.
[[gnu::always_inline]] inline void load_for_both(const std::byte* from, PartBytes& parts) {
  parts = (PartBytes)_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
/// shift_bytes of each part by a count of its own, of which both are positive or none is.
template <int first, int second>
[[gnu::always_inline]] inline void shift_parts(const PartBytes& parts, PartBytes& to) {
  constexpr auto words = [](int count) { return count * 0x10001; };
  constexpr int a = words(first < 0 ? -first : first), b = words(second < 0 ? -second : second);
  const __m512i counts = _mm512_setr_epi32(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b);
  to = (PartBytes)(first < 0 ? _mm512_sllv_epi16((__m512i)parts, counts) : _mm512_srlv_epi16((__m512i)parts, counts));
}
/// Adds scale Σ (w − center) x of numbers `part` and `part` + 1 of a row in parts.
template <int center, int each, int first, class Scales>
[[gnu::always_inline]] inline void add_parts(const PartBytes& w, const RoundedRow& x, Index part, const Scales& scales,
                                             PartSums& sum) {
  Sums16 products{};
  if constexpr (center != 0) {
    std::memcpy(&products, x.negated_fours + part, sizeof products);
    products *= center;
  }
  const __m512i quanta = _mm512_loadu_si512(x.q + part);
#  if defined(__AVX512VNNI__)
  products = (Sums16)_mm512_dpbusd_epi32((__m512i)products, (__m512i)w, quanta);
#  else
  products += (Sums16)_mm512_madd_epi16(_mm512_maddubs_epi16((__m512i)w, quanta), _mm512_set1_epi16(1));
#  endif
  constexpr auto lane = [](int i) { return first + i / each; };
  const __m512i lanes = _mm512_setr_epi32(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7),
                                          lane(8), lane(9), lane(10), lane(11), lane(12), lane(13), lane(14), lane(15));
  __m512 all;
  if constexpr (std::same_as<Scales, Floats16>) {
    all = scales;
  } else {
    all = _mm512_castps256_ps512((__m256)scales);
  }
  add_product(_mm512_cvtepi32_ps((__m512i)products), _mm512_permutexvar_ps(lanes, all), sum);
}
/// Adds eight products to lanes of sum.
[[gnu::always_inline]] inline void add_eight(const Floats8& x, const Floats8& y, PartSums& sum) {
  add_product(_mm512_zextps256_ps512(x), _mm512_zextps256_ps512(y), sum);
}
/// Sixteen small integers with a sign.
[[gnu::always_inline]] inline void widen_sixteen(const std::byte* from, Floats16& to) {
  to = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
/// Each scale of 16 with the scale of x that it comes beside, of which two have one.
[[gnu::always_inline]] inline void multiply_pairs(const Floats16& scales, const Floats8& x, Floats16& to) {
  const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  to = scales * _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512((__m256)x));
}
#else
struct PartBytes {
  Bytes32 parts[2];
  [[gnu::always_inline]] PartBytes& operator&=(int mask) {
    for (Bytes32& part : parts) part &= static_cast<std::uint8_t>(mask);
    return *this;
  }
  [[gnu::always_inline]] PartBytes& operator|=(const PartBytes& other) {
    for (int i = 0; i < 2; ++i) parts[i] |= other.parts[i];
    return *this;
  }
};
using PartSums = Floats8;

[[gnu::always_inline]] inline void load_parts(const std::byte* from, PartBytes& parts) {
  for (int i = 0; i < 2; ++i) load_bytes(from + 32 * i, parts.parts[i]);
}
[[gnu::always_inline]] inline void load_for_both(const std::byte* from, PartBytes& parts) {
  load_bytes(from, parts.parts[0]);
  parts.parts[1] = parts.parts[0];
}
template <int first, int second>
[[gnu::always_inline]] inline void shift_parts(const PartBytes& parts, PartBytes& to) {
  shift_bytes(parts.parts[0], first, to.parts[0]);
  shift_bytes(parts.parts[1], second, to.parts[1]);
}
template <int center, int each, int first, class Scales>
[[gnu::always_inline]] inline void add_parts(const PartBytes& w, const RoundedRow& x, Index part, const Scales& scales,
                                             PartSums& sum) {
  unrolled<2>([&](auto i) __attribute__((always_inline)) {
    Sums8 products;
    centered_fours<center>(w.parts[i], x, part + i, products);
    constexpr int a = first + i * (8 / each), b = a + 4 / each;
    constexpr int low = a % 8, high = b % 8;
    const Floats8* from;
    if constexpr (std::same_as<Scales, Floats16>) {
      from = a < 8 ? &scales.low : &scales.high;
    } else {
      from = &scales;
    }
    const Floats8 lanes = __builtin_shufflevector(*from, *from, low, low, low, low, high, high, high, high);
    add_product(__builtin_convertvector(products, Floats8), lanes, sum);
  });
}
[[gnu::always_inline]] inline void add_eight(const Floats8& x, const Floats8& y, PartSums& sum) {
  add_product(x, y, sum);
}
[[gnu::always_inline]] inline void widen_sixteen(const std::byte* from, Floats16& to) {
  widen_eight<std::int8_t>(from, to.low);
  widen_eight<std::int8_t>(from + 8, to.high);
}
[[gnu::always_inline]] inline void multiply_pairs(const Floats16& scales, const Floats8& x, Floats16& to) {
  to.low = scales.low * __builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3);
  to.high = scales.high * __builtin_shufflevector(x, x, 4, 4, 5, 5, 6, 6, 7, 7);
}
#endif

/// Q4_K, and Q5_K with a fifth bit.
template <bool fifth>
struct Eighths {
  static constexpr int columns = 256, bytes = fifth ? 176 : 144;
  using Sums = PartSums;
  PartBytes q[4];
  Floats8 scales, negated_minima;

  [[gnu::always_inline]] explicit Eighths(const std::byte* block) {
    // Four numbers of 6 bits in each word: see eighth_scale.
    const auto first = load<std::uint32_t>(block + 4), second = load<std::uint32_t>(block + 8),
               third = load<std::uint32_t>(block + 12);
    constexpr std::uint32_t six = 0x3F3F3F3F, four = 0x0F0F0F0F, two = 0x03030303;
    const auto together = [](std::uint32_t low, std::uint32_t high) { return low | std::uint64_t{high} << 32; };
    const std::uint64_t of_scales = together(first & six, (third & four) | (first >> 6 & two) << 4),
                        of_minima = together(second & six, (third >> 4 & four) | (second >> 6 & two) << 4);
    widen_eight<std::uint8_t>(&of_scales, scales);
    widen_eight<std::uint8_t>(&of_minima, negated_minima);
    scales *= load_scale(block);
    negated_minima *= -load_scale(block + 2);
    unrolled<4>([&](auto k) __attribute__((always_inline)) {
      load_for_both(block + (fifth ? 48 : 16) + k * 32, q[k]);
      shift_parts<0, 4>(q[k], q[k]);
      q[k] &= 15;
    });
    if constexpr (fifth) {
      PartBytes all;
      load_for_both(block + 16, all);
      unrolled<4>([&](auto k) __attribute__((always_inline)) {
        PartBytes fifths;
        shift_parts<2 * k - 4, 2 * k - 3>(all, fifths);
        fifths &= 16;
        q[k] |= fifths;
      });
    }
  }
  [[gnu::always_inline]] void add(const RoundedRow& x, Index b, PartSums& sum) const {
    Floats8 x_scales, x_sums;
    load_floats(x.scales + 8 * b, x_scales);
    load_floats(x.sums + 8 * b, x_sums);
    const Floats8 both = scales * x_scales;
    unrolled<4>([&](auto k)
                    __attribute__((always_inline)) { add_parts<0, 8, 2 * k>(q[k], x, 8 * b + 2 * k, both, sum); });
    add_eight(negated_minima, x_sums, sum);
  }
};

/// Q6_K
struct Sixes {
  static constexpr int columns = 256, bytes = 210;
  using Sums = PartSums;
  PartBytes q[4];
  Floats16 scales;  // of 16 values each

  [[gnu::always_inline]] explicit Sixes(const std::byte* block) {
    unrolled<4>([&](auto k) __attribute__((always_inline)) {
      constexpr int half = k / 2, shift = k % 2 * 4;
      PartBytes upper;
      load_parts(block + half * 64, q[k]);
      shift_parts<shift, shift>(q[k], q[k]);
      q[k] &= 15;
      load_for_both(block + 128 + half * 32, upper);
      shift_parts<shift - 4, shift - 2>(upper, upper);
      upper &= 48;
      q[k] |= upper;
    });
    widen_sixteen(block + 192, scales);
    const Floats8 of_all = Floats8{} + load_scale(block + 208);
    multiply_pairs(scales, of_all, scales);
  }
  [[gnu::always_inline]] void add(const RoundedRow& x, Index b, PartSums& sum) const {
    Floats8 x_scales;
    load_floats(x.scales + 8 * b, x_scales);
    Floats16 both;
    multiply_pairs(scales, x_scales, both);
    unrolled<4>([&](auto k)
                    __attribute__((always_inline)) { add_parts<32, 4, 4 * k>(q[k], x, 8 * b + 2 * k, both, sum); });
  }
};

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
