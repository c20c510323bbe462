#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/tensor/stored.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::test {

/// Half the distance from 1 to the next number: the relative error of one rounding to T.
template <class T>
constexpr double roundoff = 0;
template <>
inline constexpr double roundoff<float> = 0x1p-24;
template <>
inline constexpr double roundoff<bf16> = 0x1p-8;
template <>
inline constexpr double roundoff<double> = 0x1p-53;

/// A value as a double, whatever its type; of complex ones the real part.
template <class T>
double real(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return value.real();
  } else {
    return static_cast<double>(static_cast<Accum<T>>(value));
  }
}

template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> result(values.size());
  const T* value = values.data();
  for (double& each : result) each = real(*value++);
  return result;
}

/// The nearest T.
template <class T>
T rounded(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<Accum<T>>(value));
  }
}

/// `count` values, uniform in [low, high), representable in T.
template <class T>
std::vector<T> random_values(Index count, std::uint64_t key, double low = -1, double high = 1) {
  Random random(key);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = rounded<T>(low + (high - low) * static_cast<double>(random.uniform()));
  return values;
}

/// A device matrix whose rows are followed by `padding` elements that nobody may touch.
template <class D, class T>
class Matrix {
 public:
  Matrix(D& dev, Index rows, Index cols, const std::vector<T>& values, Index padding = 0)
      : dev_(dev), cols_(cols), storage_(dev, rows, cols + padding), view_(storage_.view()) {
    REQUIRE(static_cast<Index>(values.size()) == rows * cols);
    if (rows * cols == 0) {
      view_ = View<D, T>(&nothing_, rows, cols);
      return;
    }
    std::vector<T> all(static_cast<std::size_t>(rows * (cols + padding)), guard());
    for (Index i = 0; i < rows; ++i) std::copy_n(values.begin() + i * cols, cols, all.begin() + i * (cols + padding));
    copy_from_host<D, T>(dev, all, storage_.view());
    view_ = storage_.view().col_slice(0, cols);
  }
  Matrix(D& dev, Index rows, Index cols, std::uint64_t key, Index padding = 0)
      : Matrix(dev, rows, cols, random_values<T>(rows * cols, key), padding) {}
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  View<D, T> view() { return view_; }
  View<D, const T> in() const { return View<D, const T>(view_); }

  /// The values row by row; fails the test if the padding was written to.
  std::vector<T> host() {
    if (view_.size() == 0) return {};
    const std::vector<T> all = to_host(dev_, storage_.view());
    std::vector<T> values(static_cast<std::size_t>(view_.size()));
    auto value = values.begin();
    for (auto row = all.begin(); row != all.end(); row += storage_.cols()) {
      value = std::copy_n(row, cols_, value);
      for (auto beside = row + cols_; beside != row + storage_.cols(); ++beside)
        REQUIRE_MESSAGE(real(*beside) == real(guard()), "the padding of a row was written to");
    }
    return values;
  }

 private:
  static T guard() { return rounded<T>(4096); }

  D& dev_;
  Index cols_;
  Tensor<D, T> storage_;
  T nothing_{};
  View<D, T> view_;
};

/// A weight on a device, its bytes as a file holds them, `offset` bytes behind an aligned place.
template <class D>
class StoredMatrix {
 public:
  StoredMatrix(D& dev, const std::vector<std::byte>& bytes, DType dtype, Index rows, Index cols, Index offset = 0)
      : storage_(dev, static_cast<Index>(bytes.size()) + offset),
        view_(storage_.view().data() + offset, dtype, rows, cols) {
    copy_from_host<D, std::byte>(dev, bytes, storage_.view().col_slice(offset, storage_.size() - offset));
  }
  const StoredView<D>& view() const { return view_; }

 private:
  Tensor<D, std::byte> storage_;
  StoredView<D> view_;
};

/// Fails unless every |actual − expected| ≤ bound; says where it is worst.
template <class T>
void check_near(const std::vector<T>& actual, const std::vector<double>& expected, const std::vector<double>& bound) {
  REQUIRE(actual.size() == expected.size());
  REQUIRE(bound.size() == expected.size());
  double worst = 0;
  std::size_t where = 0;
  const T* const a = actual.data();
  const double* const e = expected.data();
  const double* const b = bound.data();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::fabs(real(a[i]) - e[i]);
    if (difference <= b[i]) continue;
    const double excess = std::isnan(difference) ? INFINITY : difference / b[i];
    if (excess > worst) {
      worst = excess;
      where = i;
    }
  }
  if (worst > 0)
    FAIL_CHECK("element " << where << " is " << real(actual[where]) << " but " << expected[where] << " ± "
                          << bound[where] << " was expected");
}

/// Fails unless both hold the same bits.
template <class T>
void check_same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  REQUIRE(a.size() == b.size());
  CHECK((a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0));
}

/// Calls body.operator()<T>() for each element type that models compute in.
template <class Body>
void each_type(const Body& body) {
  SUBCASE("f32") { body.template operator()<float>(); }
  SUBCASE("bf16") { body.template operator()<bf16>(); }
  SUBCASE("f64") { body.template operator()<double>(); }
}

}  // namespace lora::test
