#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lora/core/config.hpp"
#include "lora/core/scalar.hpp"

namespace lora::cpu {

namespace detail {

template <class T>
T load(const std::byte* bytes) {  // tensors of a file may have any alignment
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline float widened(f16 value) { return static_cast<float>(value); }
inline float widened(bf16 value) { return static_cast<float>(value); }
inline float widened(float value) { return value; }
inline double widened(double value) { return value; }

template <class Stored, class T>
void decode_values(const std::byte* row, Index cols, T* y) {
  if constexpr (std::same_as<Stored, T>) {
    std::memcpy(y, row, static_cast<std::size_t>(cols) * sizeof(T));
    return;
  }
  LORA_SIMD
  for (Index j = 0; j < cols; ++j)
    y[j] = narrowed<T>(static_cast<Accum<T>>(widened(load<Stored>(row + j * static_cast<Index>(sizeof(Stored))))));
}

/// Exact in float: a scale has at most 18 bits (11 of an f16 and 7 of what a K type multiplies it by), and with its
/// quantum at most 23.
template <class T>
T product(float scale, int quantum) {
  return narrowed<T>(static_cast<Accum<T>>(scale * static_cast<float>(quantum)));
}

template <class T>
void decode_q8_0(const std::byte* row, Index cols, T* y) {
  for (Index j = 0; j < cols; j += 32, row += 34) {
    const float scale = widened(load<f16>(row));
    T* const to = y + j;
    LORA_SIMD
    for (Index i = 0; i < 32; ++i) to[i] = product<T>(scale, static_cast<std::int8_t>(row[2 + i]));
  }
}

/// Q4_0, and Q5_0 with a fifth bit.
template <bool fifth, class T>
void decode_centered(const std::byte* row, Index cols, T* y) {
  constexpr Index head = fifth ? 6 : 2;
  constexpr int center = fifth ? 16 : 8;
  for (Index j = 0; j < cols; j += 32, row += head + 16) {
    const float scale = widened(load<f16>(row));
    const std::uint32_t fifths = fifth ? load<std::uint32_t>(row + 2) : 0;
    T *const low = y + j, *const high = low + 16;
    LORA_SIMD
    for (Index i = 0; i < 16; ++i) {
      const int pair = static_cast<int>(row[head + i]);
      low[i] = product<T>(scale, ((pair & 15) | static_cast<int>((fifths >> i & 1) << 4)) - center);
      high[i] = product<T>(scale, ((pair >> 4) | static_cast<int>((fifths >> (i + 16) & 1) << 4)) - center);
    }
  }
}

/// Q4_1, and Q5_1 with a fifth bit.
template <bool fifth, class T>
void decode_from_minimum(const std::byte* row, Index cols, T* y) {
  using A = Accum<T>;
  constexpr Index head = fifth ? 8 : 4;
  for (Index j = 0; j < cols; j += 32, row += head + 16) {
    const float scale = widened(load<f16>(row));
    const A lowest(widened(load<f16>(row + 2)));
    const std::uint32_t fifths = fifth ? load<std::uint32_t>(row + 4) : 0;
    T *const low = y + j, *const high = low + 16;
    LORA_SIMD
    for (Index i = 0; i < 16; ++i) {
      const int pair = static_cast<int>(row[head + i]);
      low[i] = narrowed<T>(product<A>(scale, (pair & 15) | static_cast<int>((fifths >> i & 1) << 4)) + lowest);
      high[i] = narrowed<T>(product<A>(scale, (pair >> 4) | static_cast<int>((fifths >> (i + 16) & 1) << 4)) + lowest);
    }
  }
}

/// Of one eighth, 32 values, of a Q4_K or Q5_K block.
struct EighthScale {
  int scale, minimum;
};

/// Unpacks 6 bits each out of 12 bytes. Those of the first four eighths are the low bits of bytes 0 to 3 and 4 to 7; of
/// the last four, the low nibbles are in bytes 8 to 11 and the rest in the two bits left above the others'.
inline EighthScale eighth_scale(const std::byte* packed, Index eighth) {
  const auto at = [&](Index place) { return static_cast<int>(packed[place]); };
  if (eighth < 4) return {at(eighth) & 63, at(eighth + 4) & 63};
  return {(at(eighth + 4) & 15) | at(eighth - 4) >> 6 << 4, at(eighth + 4) >> 4 | at(eighth) >> 6 << 4};
}

/// Q4_K, and Q5_K with a fifth bit.
template <bool fifth, class T>
void decode_eighths(const std::byte* row, Index cols, T* y) {
  using A = Accum<T>;
  constexpr Index head = fifth ? 48 : 16;
  for (Index j = 0; j < cols; j += 256, row += head + 128) {
    const float block_scale = widened(load<f16>(row)), block_minimum = widened(load<f16>(row + 2));
    for (Index k = 0; k < 8; ++k) {
      const EighthScale eighth = eighth_scale(row + 4, k);
      const float scale = product<float>(block_scale, eighth.scale);
      const A minimum = product<A>(block_minimum, eighth.minimum);
      const std::byte *const pairs = row + head + k / 2 * 32, *const fifths = row + 16;
      const int shift = static_cast<int>(k % 2) * 4;
      T* const to = y + j + k * 32;
      LORA_SIMD
      for (Index i = 0; i < 32; ++i) {
        int quantum = static_cast<int>(pairs[i]) >> shift & 15;
        if constexpr (fifth) quantum |= (static_cast<int>(fifths[i]) >> k & 1) << 4;
        to[i] = narrowed<T>(product<A>(scale, quantum) - minimum);
      }
    }
  }
}

template <class T>
void decode_q6_k(const std::byte* row, Index cols, T* y) {
  for (Index j = 0; j < cols; j += 256, row += 210) {
    const float block_scale = widened(load<f16>(row + 208));
    std::int8_t quanta[256];  // first without scales, each of which is 16 values' where 32 lie together
    for (Index k = 0; k < 8; ++k) {
      const std::byte *const pairs = row + k / 4 * 64 + k % 2 * 32, *const uppers = row + 128 + k / 4 * 32;
      const int shift = static_cast<int>(k / 2 % 2) * 4, upper_shift = static_cast<int>(k % 4) * 2;
      std::int8_t* const to = quanta + k * 32;
      LORA_SIMD
      for (Index i = 0; i < 32; ++i) {
        const int lower = static_cast<int>(pairs[i]) >> shift & 15,
                  upper = static_cast<int>(uppers[i]) >> upper_shift & 3;
        to[i] = static_cast<std::int8_t>((lower | upper << 4) - 32);
      }
    }
    for (Index k = 0; k < 16; ++k) {
      const float scale = product<float>(block_scale, static_cast<std::int8_t>(row[192 + k]));
      LORA_SIMD
      for (Index i = k * 16; i < k * 16 + 16; ++i) y[j + i] = product<T>(scale, quanta[i]);
    }
  }
}

}  // namespace detail

/// Calls use(decode), where decode(row, y) turns one stored row of `cols` elements, of any alignment, into T:
/// converted, or its blocks dequantized, in Accum<T> and rounded to T. One call for many rows, so that the type is
/// looked up once.
///   Q8_0  32 values: scale f16, 32 × int8                            y = scale · q
///   Q4_0  32 values: scale f16, 16 × (low, high) nibbles             y = scale · (q − 8); low nibbles come first
///   Q4_1  32 values: scale f16, minimum f16, 16 × nibbles            y = scale · q + minimum
///   Q5_0  32 values: scale f16, 32 fifth bits, 16 × nibbles          y = scale · (q − 16)
///   Q5_1  32 values: scale f16, minimum f16, 32 fifth bits, 16 × nibbles
///                                                                    y = scale · q + minimum
///   Q4_K  256 values: scale f16, minimum f16, 8 × (s, m) of 6 bits each, 4 × 32 × nibbles
///                                                                    y = scale · s · q − minimum · m; s, m of 32
///                                                                    values
///   Q5_K  the same, with 32 × 8 fifth bits before the nibbles
///   Q6_K  256 values: 2 × 64 × nibbles, 2 × 32 × 4 pairs of upper bits, 16 × s int8, scale f16
///                                                                    y = scale · s · (q − 32); s of 16 values
/// Throws   FormatError for integer types
template <class T, class Use>
void with_row_decoder(DType dtype, Index cols, const Use& use) {
  switch (dtype) {
    case DType::f32:
      return use([cols](const std::byte* row, T* y) { detail::decode_values<float>(row, cols, y); });
    case DType::bf16:
      return use([cols](const std::byte* row, T* y) { detail::decode_values<bf16>(row, cols, y); });
    case DType::f16:
      return use([cols](const std::byte* row, T* y) { detail::decode_values<f16>(row, cols, y); });
    case DType::f64:
      return use([cols](const std::byte* row, T* y) { detail::decode_values<double>(row, cols, y); });
    case DType::q8_0:
      return use([cols](const std::byte* row, T* y) { detail::decode_q8_0(row, cols, y); });
    case DType::q4_0:
      return use([cols](const std::byte* row, T* y) { detail::decode_centered<false>(row, cols, y); });
    case DType::q5_0:
      return use([cols](const std::byte* row, T* y) { detail::decode_centered<true>(row, cols, y); });
    case DType::q4_1:
      return use([cols](const std::byte* row, T* y) { detail::decode_from_minimum<false>(row, cols, y); });
    case DType::q5_1:
      return use([cols](const std::byte* row, T* y) { detail::decode_from_minimum<true>(row, cols, y); });
    case DType::q4_k:
      return use([cols](const std::byte* row, T* y) { detail::decode_eighths<false>(row, cols, y); });
    case DType::q5_k:
      return use([cols](const std::byte* row, T* y) { detail::decode_eighths<true>(row, cols, y); });
    case DType::q6_k:
      return use([cols](const std::byte* row, T* y) { detail::decode_q6_k(row, cols, y); });
    default:
      fail<FormatError>("[cpu] a weight stored as ", name_of(dtype), " can't be read as numbers");
  }
}

}  // namespace lora::cpu
