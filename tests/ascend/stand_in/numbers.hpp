/// The vendor's element types: sizes, and rounding to and from double.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "meta.hpp"

namespace stand_in {

/// Bytes of an element; 0 for types that the stand-in does not have. INT4 has two elements a byte: see bytes_of().
inline std::size_t size_of(aclDataType type) {
  switch (type) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_COMPLEX64:
      return 8;
    case ACL_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

inline bool is_floating(aclDataType type) {
  return type == ACL_FLOAT || type == ACL_FLOAT16 || type == ACL_BF16 || type == ACL_DOUBLE;
}

inline const char* name_of(aclDataType type) {
  switch (type) {
    case ACL_FLOAT:
      return "FLOAT";
    case ACL_FLOAT16:
      return "FLOAT16";
    case ACL_BF16:
      return "BF16";
    case ACL_DOUBLE:
      return "DOUBLE";
    case ACL_INT8:
      return "INT8";
    case ACL_UINT8:
      return "UINT8";
    case ACL_INT16:
      return "INT16";
    case ACL_UINT16:
      return "UINT16";
    case ACL_INT32:
      return "INT32";
    case ACL_UINT32:
      return "UINT32";
    case ACL_INT64:
      return "INT64";
    case ACL_UINT64:
      return "UINT64";
    case ACL_BOOL:
      return "BOOL";
    case ACL_INT4:
      return "INT4";
    default:
      return "another type";
  }
}

/// The nearest number with `digits` binary digits behind the first and no exponent below `least`; ties go to even.
inline double rounded(double value, int digits, int least) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // value = fraction · 2^exponent with a fraction in [0.5, 1)
  const int unit = (exponent - 1 < least ? least : exponent - 1) - digits;
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

inline float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

inline std::uint16_t to_bf16(double value) {
  float narrow = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  if (std::isinf(narrow)) return static_cast<std::uint16_t>(bits >> 16);
  // Rounding twice is wrong where the first step lands on a tie, so that there the value itself decides.
  const std::uint32_t rest = bits & 0xFFFFu;
  bits >>= 16;
  const double magnitude = std::fabs(value), kept = std::fabs(static_cast<double>(narrow));
  if (rest > 0x8000u || (rest == 0x8000u && (magnitude > kept || (magnitude == kept && (bits & 1u) != 0)))) ++bits;
  return static_cast<std::uint16_t>(bits);
}

inline float from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = sign | (exponent == 0x1F ? 0x7F800000u : (exponent + 112) << 23) | (fraction << 13);
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

inline std::uint16_t to_half(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000u : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00u);
  const double magnitude = std::fabs(rounded(value, 10, -14));
  if (magnitude > 65504) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<unsigned>(magnitude * 0x1p24));
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);
  const auto digits = static_cast<unsigned>(fraction * 2048) - 1024u;
  return static_cast<std::uint16_t>(sign | (static_cast<unsigned>(exponent + 14) << 10) | digits);
}

/// Integers from floating point: toward zero, NaN is 0, what is too large the largest.
template <class T>
T to_integer(double value) {
  if (std::isnan(value)) return 0;
  const double least = static_cast<double>(std::numeric_limits<T>::min());
  const double most = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= least) return std::numeric_limits<T>::min();
  if (value >= most) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

inline double load(const unsigned char* from, aclDataType type) {
  const auto as = [from](auto value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  switch (type) {
    case ACL_FLOAT:
      return static_cast<double>(as(float{}));
    case ACL_FLOAT16:
      return static_cast<double>(from_half(as(std::uint16_t{})));
    case ACL_BF16:
      return static_cast<double>(from_bf16(as(std::uint16_t{})));
    case ACL_DOUBLE:
      return as(double{});
    case ACL_INT8:
      return as(std::int8_t{});
    case ACL_UINT8:
      return as(std::uint8_t{});
    case ACL_BOOL:
      return as(std::uint8_t{}) != 0 ? 1 : 0;
    case ACL_INT16:
      return as(std::int16_t{});
    case ACL_UINT16:
      return as(std::uint16_t{});
    case ACL_INT32:
      return as(std::int32_t{});
    case ACL_UINT32:
      return as(std::uint32_t{});
    case ACL_INT64:
      return static_cast<double>(as(std::int64_t{}));
    case ACL_UINT64:
      return static_cast<double>(as(std::uint64_t{}));
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

inline void store(unsigned char* to, aclDataType type, double value) {
  const auto as = [to](auto narrow) { std::memcpy(to, &narrow, sizeof narrow); };
  switch (type) {
    case ACL_FLOAT:
      return as(static_cast<float>(value));
    case ACL_FLOAT16:
      return as(to_half(value));
    case ACL_BF16:
      return as(to_bf16(value));
    case ACL_DOUBLE:
      return as(value);
    case ACL_INT8:
      return as(to_integer<std::int8_t>(value));
    case ACL_UINT8:
      return as(to_integer<std::uint8_t>(value));
    case ACL_BOOL:
      return as(static_cast<std::uint8_t>(value != 0 ? 1 : 0));
    case ACL_INT16:
      return as(to_integer<std::int16_t>(value));
    case ACL_UINT16:
      return as(to_integer<std::uint16_t>(value));
    case ACL_INT32:
      return as(to_integer<std::int32_t>(value));
    case ACL_UINT32:
      return as(to_integer<std::uint32_t>(value));
    case ACL_INT64:
      return as(to_integer<std::int64_t>(value));
    case ACL_UINT64:
      return as(to_integer<std::uint64_t>(value));
    default:
      return;
  }
}

/// The nearest number of a floating point type.
inline double nearest(double value, aclDataType type) {
  unsigned char bytes[8] = {};
  store(bytes, type, value);
  return load(bytes, type);
}

/// Integers as they are, since a double does not hold all of 64 bits.
inline std::int64_t load_integer(const unsigned char* from, aclDataType type) {
  if (type == ACL_INT64 || type == ACL_UINT64) {
    std::int64_t value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  return static_cast<std::int64_t>(load(from, type));
}

inline void store_integer(unsigned char* to, aclDataType type, std::int64_t value) {
  if (type == ACL_INT64 || type == ACL_UINT64) {
    std::memcpy(to, &value, sizeof value);
  } else {
    store(to, type, static_cast<double>(value));
  }
}

}  // namespace stand_in
