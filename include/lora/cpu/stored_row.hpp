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
T load(const std::byte* bytes) {  // files align their tensors as they like
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// f16 to float without branches, so that loops of it vectorise.
inline float widened(f16 half) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half.bits & 0x7FFFu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t special = (half.bits & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}
inline float widened(bf16 value) { return static_cast<float>(value); }
inline float widened(float value) { return value; }
inline double widened(double value) { return value; }

/// Rounded to T. A function, because GCC makes no vector code of loops that hold objects of a class.
template <class T>
T narrowed(Accum<T> value) {
  return static_cast<T>(value);
}

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

template <class T>
T product(float scale, int quantum) {
  return narrowed<T>(static_cast<Accum<T>>(scale * static_cast<float>(quantum)));  // exact in float: 11 + 8 bits
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

template <class T>
void decode_q4_0(const std::byte* row, Index cols, T* y) {
  for (Index j = 0; j < cols; j += 32, row += 18) {
    const float scale = widened(load<f16>(row));
    T *const low = y + j, *const high = low + 16;
    LORA_SIMD
    for (Index i = 0; i < 16; ++i) {
      const int pair = static_cast<int>(row[2 + i]);
      low[i] = product<T>(scale, (pair & 15) - 8);
      high[i] = product<T>(scale, (pair >> 4) - 8);
    }
  }
}

template <class T>
void decode_q4_1(const std::byte* row, Index cols, T* y) {
  using A = Accum<T>;
  for (Index j = 0; j < cols; j += 32, row += 20) {
    const float scale = widened(load<f16>(row));
    const A lowest(widened(load<f16>(row + 2)));
    T *const low = y + j, *const high = low + 16;
    LORA_SIMD
    for (Index i = 0; i < 16; ++i) {
      const int pair = static_cast<int>(row[4 + i]);
      low[i] = narrowed<T>(product<A>(scale, pair & 15) + lowest);
      high[i] = narrowed<T>(product<A>(scale, pair >> 4) + lowest);
    }
  }
}

}  // namespace detail

/// Calls use(decode), where decode(row, y) turns one stored row of `cols` elements, of any alignment, into T:
/// converted, or its blocks dequantised, in Accum<T> and rounded to T. One call for many rows, so that the type is
/// asked once.
///   Q8_0  32 values: scale f16, 32 × int8                            y = scale · q
///   Q4_0  32 values: scale f16, 16 × (low, high) nibbles             y = scale · (q − 8); low nibbles come first
///   Q4_1  32 values: scale f16, minimum f16, 16 × nibbles            y = scale · q + minimum
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
      return use([cols](const std::byte* row, T* y) { detail::decode_q4_0(row, cols, y); });
    case DType::q4_1:
      return use([cols](const std::byte* row, T* y) { detail::decode_q4_1(row, cols, y); });
    default:
      fail<FormatError>("[cpu] a weight stored as ", name_of(dtype), " can't be read as numbers");
  }
}

}  // namespace lora::cpu
