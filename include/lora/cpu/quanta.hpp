#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lora/cpu/eigen.hpp"
#include "lora/cpu/lanes.hpp"
#include "lora/cpu/stored_row.hpp"

/// Products of integers: weights in GGUF's blocks with rows that are rounded to 8 bits. Vectors are the compiler's, as
/// in lanes.hpp, but for one instruction.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
namespace lora::cpu::detail {

using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Bytes32 = std::uint8_t __attribute__((vector_size(32)));
using Sums8 = std::int32_t __attribute__((vector_size(32)));

/// sums: of four products each of adjacent bytes. x is signed, within ±127; w is signed where `is_signed`, else at most
/// 127.
template <bool is_signed>
[[gnu::always_inline]] inline void dot_fours(const Bytes32& w, const Bytes32& x, Sums8& sums) {
#if defined(__AVX2__)
  auto left = (__m256i)w, right = (__m256i)x;
  if constexpr (is_signed) {  // the instructions take their first operand without a sign
    right = _mm256_sign_epi8(right, left);
    left = _mm256_abs_epi8(left);
  }
#  if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  sums = (Sums8)_mm256_dpbusd_epi32(_mm256_setzero_si256(), left, right);
#  else
  sums = (Sums8)_mm256_madd_epi16(_mm256_maddubs_epi16(left, right), _mm256_set1_epi16(1));
#  endif
#elif defined(__ARM_FEATURE_DOTPROD)
  int8x16_t left[2], right[2];
  std::memcpy(left, &w, sizeof left);
  std::memcpy(right, &x, sizeof right);
  const int32x4_t parts[2] = {vdotq_s32(vdupq_n_s32(0), left[0], right[0]),
                              vdotq_s32(vdupq_n_s32(0), left[1], right[1])};
  std::memcpy(&sums, parts, sizeof sums);
#else
  std::int8_t left[32], right[32];
  std::memcpy(left, &w, sizeof left);
  std::memcpy(right, &x, sizeof right);
  std::int32_t parts[8] = {};
  for (int i = 0; i < 32; ++i) parts[i / 4] += left[i] * right[i];
  std::memcpy(&sums, parts, sizeof sums);
#endif
}

/// A row of x in blocks of 32 values, rounded to 8 bits:   x_i ≈ scale · q_i,   |q_i| ≤ 127
struct RoundedRow {
  const Bytes32* q;            // signed
  const float* scales;         // of each block
  const float* sums;           // scale · Σ q of each block, which a weight's minimum is multiplied by
  const float* halved_scales;  // the same of each 16 values
  const float* halved_sums;
};

/// Rounds 32 values to the nearest multiples of the largest / 127, ties to even; where one is not finite, scales are
/// NaN. Shapes   halved_… (2)
inline void round_block(const float* x, Bytes32& q, float& scale, float& sum, float* halved_scales,
                        float* halved_sums) {
  float largest = 0, spoiled = 0;
  for (Index i = 0; i < 32; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    spoiled += x[i] * 0;  // NaN where x is not finite
  }
  constexpr float least = 1e-36f;  // whose inverse is finite
  const bool rounds = spoiled == 0 && largest > least;
  scale = (rounds ? largest / 127 : 0) + spoiled;
  const float inverse = rounds ? 127 / largest : 0;
  std::int8_t quanta[32];
  int sums[2] = {};
  for (int i = 0; i < 32; ++i) {
    const int quantum = rounds ? static_cast<int>(std::nearbyint(x[i] * inverse)) : 0;
    quanta[i] = static_cast<std::int8_t>(quantum);
    sums[i / 16] += quantum;
  }
  std::memcpy(&q, quanta, sizeof q);
  sum = scale * static_cast<float>(sums[0] + sums[1]);
  for (int half = 0; half < 2; ++half) {
    halved_scales[half] = scale;
    halved_sums[half] = scale * static_cast<float>(sums[half]);
  }
}

[[gnu::always_inline]] inline Bytes16 load_bytes(const std::byte* from) {
  Bytes16 bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}
[[gnu::always_inline]] inline void join(Bytes16 low, Bytes16 high, Bytes32& to) {
  to = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                               22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

/// Each byte's bits from bit `shift` on. Instructions shift no bytes: a neighbour's bits come in, which the caller
/// masks out.
[[gnu::always_inline]] inline void shift_bytes(const Bytes32& bytes, int shift, Bytes32& to) {
  using Words16 = std::uint16_t __attribute__((vector_size(32)));
  to = reinterpret_cast<Bytes32>(reinterpret_cast<Words16>(bytes) >> static_cast<std::uint16_t>(shift));
}

/// A scale or minimum of a block, a float16.
[[gnu::always_inline]] inline float load_scale(const std::byte* from) {
#if defined(__F16C__)
  return _cvtsh_ss(load<std::uint16_t>(from));
#else
  return widened(load<f16>(from));
#endif
}

/// Each of 16 bits as a byte that is `value` where the bit is 1.
[[gnu::always_inline]] inline Bytes16 bits_as_bytes(std::uint32_t bits, std::uint8_t value) {
  constexpr Bytes16 places{1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const Bytes16 first = Bytes16{} + static_cast<std::uint8_t>(bits),
                second = Bytes16{} + static_cast<std::uint8_t>(bits >> 8);
  const Bytes16 spread = __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30, 31);
  return reinterpret_cast<Bytes16>((spread & places) == places) & value;
}

/// A block of a weight:   w_i = scale · q_i − minimum,   with a scale and a minimum for each `width` values.
template <int columns, int width>
struct Quanta {
  static constexpr int parts = columns / width;
  Bytes32 q[std::size_t{columns / 32}];
  alignas(64) float scales[std::size_t{parts}];
  alignas(64) float minima[std::size_t{parts}];
};

/// Q8_0
struct Eights {
  static constexpr int columns = 32, bytes = 34, width = 32;
  static constexpr bool is_signed = true, has_minimum = false;
  [[gnu::always_inline]] static void unpack(const std::byte* block, Quanta<columns, width>& to) {
    join(load_bytes(block + 2), load_bytes(block + 18), to.q[0]);
    to.scales[0] = load_scale(block);
  }
};

/// Q4_0, Q4_1, and Q5_0, Q5_1 with a fifth bit.
template <bool fifth, bool from_minimum>
struct Nibbles {
  static constexpr int head = 2 + (from_minimum ? 2 : 0) + (fifth ? 4 : 0);
  static constexpr int columns = 32, bytes = head + 16, width = 32;
  static constexpr bool is_signed = false, has_minimum = true;
  [[gnu::always_inline]] static void unpack(const std::byte* block, Quanta<columns, width>& to) {
    const Bytes16 pairs = load_bytes(block + head);
    Bytes16 low = pairs & 15, high = pairs >> 4;
    if constexpr (fifth) {
      const auto fifths = load<std::uint32_t>(block + head - 4);
      low |= bits_as_bytes(fifths, 16);
      high |= bits_as_bytes(fifths >> 16, 16);
    }
    join(low, high, to.q[0]);
    to.scales[0] = load_scale(block);
    to.minima[0] = from_minimum ? -load_scale(block + 2) : to.scales[0] * (fifth ? 16.0f : 8.0f);
  }
};

/// Q4_K, and Q5_K with a fifth bit.
template <bool fifth>
struct Eighths {
  static constexpr int columns = 256, bytes = fifth ? 176 : 144, width = 32;
  static constexpr bool is_signed = false, has_minimum = true;
  [[gnu::always_inline]] static void unpack(const std::byte* block, Quanta<columns, width>& to) {
    // Four numbers of 6 bits in each word: see eighth_scale.
    const auto first = load<std::uint32_t>(block + 4), second = load<std::uint32_t>(block + 8),
               third = load<std::uint32_t>(block + 12);
    constexpr std::uint32_t six = 0x3F3F3F3F, four = 0x0F0F0F0F, two = 0x03030303;
    const std::uint32_t scales[2] = {first & six, (third & four) | (first >> 6 & two) << 4},
                        minima[2] = {second & six, (third >> 4 & four) | (second >> 6 & two) << 4};
    widen(scales, load_scale(block), to.scales);
    widen(minima, load_scale(block + 2), to.minima);
    unrolled<4>([&](auto k) {
      const std::byte* const pairs = block + (fifth ? 48 : 16) + k * 32;
      Bytes32 both, high;
      join(load_bytes(pairs), load_bytes(pairs + 16), both);
      shift_bytes(both, 4, high);
      to.q[2 * k] = both & 15;
      to.q[2 * k + 1] = high & 15;
    });
    if constexpr (fifth) {
      Bytes32 all;
      join(load_bytes(block + 16), load_bytes(block + 32), all);
      unrolled<8>([&](auto k) {
        Bytes32 fifths;
        shift_bytes(all, k, fifths);
        to.q[k] |= (fifths & 1) << 4;
      });
    }
  }

 private:
  static void widen(const std::uint32_t* packed, float scale, float* to) {
    std::uint8_t numbers[8];
    std::memcpy(numbers, packed, sizeof numbers);
    for (int i = 0; i < 8; ++i) to[i] = scale * static_cast<float>(numbers[i]);
  }
};

/// Q6_K
struct Sixes {
  static constexpr int columns = 256, bytes = 210, width = 16;
  static constexpr bool is_signed = false, has_minimum = true;
  [[gnu::always_inline]] static void unpack(const std::byte* block, Quanta<columns, width>& to) {
    unrolled<8>([&](auto k) {
      const std::byte *const pairs = block + k / 4 * 64 + k % 2 * 32, *const uppers = block + 128 + k / 4 * 32;
      Bytes32 lower, upper;
      join(load_bytes(pairs), load_bytes(pairs + 16), lower);
      join(load_bytes(uppers), load_bytes(uppers + 16), upper);
      shift_bytes(lower, k / 2 % 2 * 4, lower);
      shift_bytes(upper, k % 4 * 2, upper);
      to.q[k] = (lower & 15) | (upper & 3) << 4;
    });
    const float scale = load_scale(block + 208);
    for (int i = 0; i < 16; ++i) {
      to.scales[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[192 + i]));
      to.minima[i] = to.scales[i] * 32;
    }
  }
};

/// What minima add up to: eight sums where a block has several.
template <class Format>
using Minima = std::conditional_t<Format::columns == 32, float, Floats8>;

/// Adds the product of a block of a weight and block b of x.
template <class Format>
[[gnu::always_inline]] inline void add_block(const Quanta<Format::columns, Format::width>& w, const RoundedRow& x,
                                             Index b, Floats8& sum, Minima<Format>& minima) {
  constexpr int groups = Format::columns / 32, parts = Format::columns / Format::width;
  const Bytes32* const q = x.q + b * groups;
  const float *const x_scales = (parts > groups ? x.halved_scales : x.scales) + b * parts, *const x_sums =
                                                                                               (parts > groups
                                                                                                    ? x.halved_sums
                                                                                                    : x.sums) +
                                                                                               b * parts;
  alignas(64) float scales[std::size_t{parts}];
  for (int i = 0; i < parts; ++i) scales[i] = w.scales[i] * x_scales[i];
  unrolled<groups>([&](auto g) {
    Floats8 scale;
    if constexpr (parts > groups) {
      scale =
          __builtin_shufflevector(Floats8{} + scales[2 * g], Floats8{} + scales[2 * g + 1], 0, 1, 2, 3, 12, 13, 14, 15);
    } else {
      scale = Floats8{} + scales[g];
    }
    Sums8 products;
    dot_fours<Format::is_signed>(w.q[g], q[g], products);
    sum += __builtin_convertvector(products, Floats8) * scale;
  });
  if constexpr (Format::has_minimum && parts == 1) {
    minima += w.minima[0] * x_sums[0];
  } else if constexpr (Format::has_minimum) {
    unrolled<parts / 8>([&](auto i) {
      Floats8 of_w, of_x;
      load_floats(w.minima + 8 * i, of_w);
      load_floats(x_sums + 8 * i, of_x);
      minima += of_w * of_x;
    });
  }
}

/// Calls use(Format) for weights in blocks, and returns whether `dtype` is one of them.
template <class Use>
bool with_blocks(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::q8_0:
      use(Eights());
      return true;
    case DType::q4_0:
      use(Nibbles<false, false>());
      return true;
    case DType::q4_1:
      use(Nibbles<false, true>());
      return true;
    case DType::q5_0:
      use(Nibbles<true, false>());
      return true;
    case DType::q5_1:
      use(Nibbles<true, true>());
      return true;
    case DType::q4_k:
      use(Eighths<false>());
      return true;
    case DType::q5_k:
      use(Eighths<true>());
      return true;
    case DType::q6_k:
      use(Sixes());
      return true;
    default:
      return false;
  }
}

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
