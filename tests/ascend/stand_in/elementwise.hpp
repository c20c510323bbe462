/// What the element-wise operators share: types of results, integers that wrap, moving elements as they are.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "operator.hpp"
#include "vendor_more.h"

namespace stand_in {

/// Operators that move elements without looking at them take these.
inline const Types kMovable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16,   ACL_DOUBLE, ACL_INT8,   ACL_UINT8, ACL_INT16,
                               ACL_INT32, ACL_INT64,   ACL_UINT16, ACL_UINT32, ACL_UINT64, ACL_BOOL};
inline const Types kSigned = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT8, ACL_INT16, ACL_INT32, ACL_INT64};

/// Whether a result of one type may be stored as another: not a float as an integer, not a number as a BOOL.
inline bool converts(aclDataType from, aclDataType to) {
  if (is_floating(from)) return is_floating(to);
  return from == ACL_BOOL || to != ACL_BOOL;
}

inline void demand_converts(aclDataType from, const Tensor& to) {
  demand(converts(from, to.type),
         std::string(name_of(from)) + " cannot be stored in " + to.name + ", which is " + name_of(to.type));
}

/// Float32 kernels take their scalars as float32.
inline double as_float(const Number& number, aclDataType computed = ACL_FLOAT) {
  if (computed == ACL_DOUBLE) return number.value;
  const volatile float single = static_cast<float>(number.value);  // g++ 12 drops two such roundings side by side
  return static_cast<double>(single);
}

/// The type in which a tensor and a scalar are computed: the scalar matters only where it is of a higher kind.
inline aclDataType promote(aclDataType tensor, const Number& scalar) {
  if (is_floating(tensor) || (!is_floating(scalar.type) && (tensor != ACL_BOOL || scalar.type == ACL_BOOL)))
    return tensor;
  return is_floating(scalar.type) ? ACL_FLOAT : scalar.type;
}

/// The integer as its type holds it: what is too large wraps around.
inline std::int64_t wrapped(std::int64_t value, aclDataType type) {
  switch (type) {
    case ACL_INT8:
      return static_cast<std::int8_t>(value);
    case ACL_UINT8:
      return static_cast<std::uint8_t>(value);
    case ACL_INT16:
      return static_cast<std::int16_t>(value);
    case ACL_UINT16:
      return static_cast<std::uint16_t>(value);
    case ACL_INT32:
      return static_cast<std::int32_t>(value);
    case ACL_UINT32:
      return static_cast<std::uint32_t>(value);
    default:
      return value;
  }
}

inline void write_wrapped(const Elements& to, std::vector<std::int64_t> values) {
  for (std::int64_t& value : values) value = wrapped(value, to.type);
  to.write_integers(values);
}

/// Elements as bytes, so that they come out as they went in.
inline std::vector<unsigned char> read_bytes(const Elements& from) {
  const std::size_t size = size_of(from.type);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(from.count()) * size);
  unsigned char* to = bytes.data();
  for (const std::int64_t place : from.places()) {
    std::memcpy(to, from.bytes(place), size);
    to += size;
  }
  return bytes;
}

inline void write_bytes(const Elements& to, const std::vector<unsigned char>& bytes) {
  const std::size_t size = size_of(to.type);
  const unsigned char* from = bytes.data();
  for (const std::int64_t place : to.places()) {
    std::memcpy(to.bytes(place), from, size);
    from += size;
  }
}

/// Copies elements of the same shape and converts them if the types differ.
inline void convert(const Elements& from, const Elements& to) {
  if (from.type == to.type) {
    write_bytes(to, read_bytes(from));
  } else if (is_floating(from.type)) {
    to.write(from.read());
  } else if (to.type == ACL_BOOL || is_floating(to.type)) {
    // A double holds all integers but those of 64 bits, whose sign and rounding a conversion from int64 keeps.
    std::vector<double> values;
    for (const std::int64_t value : from.read_integers()) values.push_back(static_cast<double>(value));
    to.write(values);
  } else {
    write_wrapped(to, from.read_integers());
  }
}

/// Whether a kernel of that type computes in integers.
inline bool is_integral(aclDataType type) { return !is_floating(type); }

}  // namespace stand_in
