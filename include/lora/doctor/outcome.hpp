#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/core/precision.hpp"

namespace lora::doctor {

/// Half the distance from 1 to the next number: the relative error of one rounding.
constexpr double roundoff(Precision precision) {
  return precision == Precision::float32 ? 0x1p-24 : precision == Precision::bfloat16 ? 0x1p-8 : 0x1p-11;
}

/// From here on numbers of a type are rounded to infinity.
constexpr double overflow(Precision precision) {
  return precision == Precision::float16 ? 65520 : precision == Precision::bfloat16 ? 0x1.FFp127 : 0x1.FFFFFFp127;
}

/// The nearest number of a type.
inline double rounded(double value, Precision precision) {
  const auto single = static_cast<float>(value);
  if (precision == Precision::bfloat16) return static_cast<double>(static_cast<float>(bf16(single)));
  if (precision == Precision::float16) return static_cast<double>(static_cast<float>(f16(single)));
  return static_cast<double>(single);
}

/// What a kernel gave, and how far it may be from what it should have.
struct Output {
  std::string_view name;
  std::vector<double> values{};
  double roundoff = 0x1p-24;  ///< of the type that it is told in
  double bound = 0;           ///< the largest difference, in such roundings of the largest magnitude
  double overflow = std::numeric_limits<double>::infinity();  ///< of the type that it is stored in
};

/// How far an output is from what it should be.
struct Difference {
  double error = 0;    ///< the largest |difference| over the largest magnitude that was expected; infinite where one is
                       ///< finite and the other is not
  double units = 0;    ///< the same in roundings
  std::size_t at = 0;  ///< where it is largest
  double given = 0, expected = 0;  ///< there
  bool within = true;
};

namespace detail {

enum class Kind { finite, nan, infinite, negative_infinite };

inline Kind kind_of(double value, double overflow) {
  if (std::isnan(value)) return Kind::nan;
  return value >= overflow ? Kind::infinite : value <= -overflow ? Kind::negative_infinite : Kind::finite;
}

}  // namespace detail

/// Compares an output with numbers in double. What is beyond the output's type must be infinite in it, and NaN be NaN.
/// Throws   ShapeError where there are not as many
inline Difference compare(const Output& output, std::span<const double> expected) {
  if (output.values.size() != expected.size())
    fail<ShapeError>("[check] ", output.name, " has ", output.values.size(), " numbers but ", expected.size(),
                     " were expected");
  double largest = 0;
  for (const double value : expected)
    if (detail::kind_of(value, output.overflow) == detail::Kind::finite) largest = std::max(largest, std::fabs(value));
  Difference worst;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double given = output.values[i];
    const detail::Kind kind = detail::kind_of(expected[i], output.overflow);
    double difference = 0;
    if (kind != detail::kind_of(given, output.overflow)) {
      difference = std::numeric_limits<double>::infinity();
    } else if (kind == detail::Kind::finite) {
      difference = std::fabs(given - expected[i]);
    }
    if (difference <= worst.error && i > 0) continue;
    worst.error = difference;
    worst.at = i;
    worst.given = given;
    worst.expected = expected[i];
  }
  if (largest > 0) worst.error /= largest;
  worst.units = worst.error / output.roundoff;
  worst.within = worst.units <= output.bound;
  return worst;
}

/// Whether two runs gave the same numbers.
inline bool same(const std::vector<Output>& a, const std::vector<Output>& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Output& x, const Output& y) {
    return std::equal(x.values.begin(), x.values.end(), y.values.begin(), y.values.end(), equal);
  });
}

}  // namespace lora::doctor
