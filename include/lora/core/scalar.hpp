#pragma once

#include <bit>
#include <complex>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lora/core/error.hpp"

namespace lora {

/// Counts, extents and offsets. Signed, so that differences and reverse loops are safe.
using Index = std::int64_t;

/// Brain float: the upper half of a float32. Rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  constexpr explicit bf16(float value) : bits(0) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (u >> 16) | 0x40u;
    bits = static_cast<std::uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE half precision. Arithmetic is float's: models of it store and round to 10 bits, and compute in float32. Both
/// conversions select by masks, so that loops of them vectorize.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  constexpr explicit f16(float value) : bits(0) {
    const auto all_bits_if = [](bool condition) { return 0u - static_cast<std::uint32_t>(condition); };
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7FFFFFFFu;
    // 65520 and above round to infinity.
    const std::uint32_t within = magnitude < 0x477FF000u ? magnitude : 0x477FF000u;
    const std::uint32_t normal = (within - 0x38000000u + 0xFFFu + ((within >> 13) & 1u)) >> 13;
    // Adding 0.5 aligns the mantissa, the float adder rounds to even.
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(within) + 0.5f) - 0x3F000000u;
    const std::uint32_t is_tiny = all_bits_if(magnitude < 0x38800000u);
    const std::uint32_t nan = all_bits_if(magnitude > 0x7F800000u) & 0x7E00u;
    bits = static_cast<std::uint16_t>(sign | (is_tiny & tiny) | (~is_tiny & normal) | nan);
  }
  constexpr explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t magnitude = (bits & 0x7FFFu) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const std::uint32_t special = (0u - static_cast<std::uint32_t>((bits & 0x7C00u) == 0x7C00u)) & 0x7F800000u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  }
};

/// How the elements of a stored tensor are encoded. The q types are GGUF's blocks of 32 or 256 values in one row.
enum class DType : std::uint8_t {
  f32,
  bf16,
  f16,
  f64,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q4_k,
  q5_k,
  q6_k,
  i64,
  i32,
  i16,
  i8,
  u8
};

namespace detail {

struct Encoding {
  std::string_view name;
  Index block_elements, block_bytes;
};

inline constexpr Encoding encodings[] = {
    {"F32", 1, 4},    {"BF16", 1, 2},   {"F16", 1, 2},    {"F64", 1, 8},      {"Q8_0", 32, 34},   {"Q4_0", 32, 18},
    {"Q4_1", 32, 20}, {"Q5_0", 32, 22}, {"Q5_1", 32, 24}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
    {"I64", 1, 8},    {"I32", 1, 4},    {"I16", 1, 2},    {"I8", 1, 1},       {"U8", 1, 1}};

constexpr const Encoding& encoding_of(DType dtype) { return encodings[static_cast<std::size_t>(dtype)]; }

}  // namespace detail

/// The name of a dtype in messages.
constexpr std::string_view name_of(DType dtype) { return detail::encoding_of(dtype).name; }

/// Number of elements encoded together: 32 for quantized types (256 for the K types), else 1.
constexpr Index block_elements(DType dtype) { return detail::encoding_of(dtype).block_elements; }

/// Bytes of one block of `block_elements(dtype)` values.
constexpr Index block_bytes(DType dtype) { return detail::encoding_of(dtype).block_bytes; }

/// Bytes of `count` elements, a whole number of blocks.
constexpr Index bytes_of(DType dtype, Index count) { return count / block_elements(dtype) * block_bytes(dtype); }

namespace detail {

template <class T>
struct ScalarTraits;
template <>
struct ScalarTraits<float> {
  using Accum = float;
  static constexpr DType dtype = DType::f32;
};
template <>
struct ScalarTraits<bf16> {
  using Accum = float;
  static constexpr DType dtype = DType::bf16;
};
template <>
struct ScalarTraits<f16> {
  using Accum = float;
  static constexpr DType dtype = DType::f16;
};
template <>
struct ScalarTraits<double> {
  using Accum = double;
  static constexpr DType dtype = DType::f64;
};
template <>
struct ScalarTraits<std::complex<double>> {  // complex-step gradient checks only; never stored in a file
  using Accum = std::complex<double>;
};

}  // namespace detail

/// The type that sums of T are accumulated in: float for float and bf16, T itself in the checks with double and
/// complex<double>.
template <class T>
using Accum = typename detail::ScalarTraits<std::remove_const_t<T>>::Accum;

/// Rounds to T. Vector loops store through this function: inside `omp simd` loops GCC keeps class objects in temporary
/// arrays and then doesn't vectorize.
template <class T>
constexpr T narrowed(Accum<T> value) {
  return static_cast<T>(value);
}

/// The DType of T; absent for complex<double>.
template <class T>
constexpr DType dtype_of = detail::ScalarTraits<std::remove_const_t<T>>::dtype;

template <class T>
concept HasDType = requires { detail::ScalarTraits<std::remove_const_t<T>>::dtype; };

/// Whether a tensor stored in this dtype has exactly T's bits.
template <class T>
constexpr bool stores(DType dtype) {
  if constexpr (HasDType<T>) {
    return dtype == dtype_of<T>;
  } else {
    return false;
  }
}

}  // namespace lora
