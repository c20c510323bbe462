#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/tensor/view.hpp"

namespace lora::test {

/// The elements of a contiguous view of memory that the host can read and write.
template <class D, class T>
std::span<T> elements(const View<D, T>& view) {
  LORA_ASSERT(view.contiguous());
  return {view.data(), static_cast<std::size_t>(view.size())};
}

/// ∂loss/∂x_j for every j, where loss() reads x, by an imaginary step too small to round anything:
///   f(x + ih) = f(x) + ih f'(x) + O(h²)
/// so that the derivative is exact to rounding. Needs a loss that is analytic: no conjugates, no absolute values.
/// Source   Squire and Trapp 1998
template <class Loss>
std::vector<double> complex_step(std::span<std::complex<double>> x, const Loss& loss) {
  constexpr double step = 1e-30;
  std::vector<double> gradient;
  for (auto& element : x) {
    const auto value = element;
    element = value + std::complex<double>(0, step);
    gradient.push_back(std::complex<double>(loss()).imag() / step);
    element = value;
  }
  return gradient;
}

inline double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// `count` numbers whose squares add up to 1.
inline std::vector<double> random_direction(std::size_t count, std::uint64_t key) {
  Random random(mix_key(key, count));
  std::vector<double> direction(count);
  for (double& x : direction) x = 2 * static_cast<double>(random.uniform()) - 1;
  const double length = std::sqrt(dot(direction, direction));
  for (double& x : direction) x /= length;
  return direction;
}

/// The derivative along a direction, of all elements at once: Σ ∂loss/∂x_j d_j.
template <class Loss>
double complex_step_along(std::span<std::complex<double>> x, std::span<const double> direction, const Loss& loss) {
  constexpr double step = 1e-30;
  const std::vector<std::complex<double>> before(x.begin(), x.end());
  for (std::size_t j = 0; j < x.size(); ++j) x[j] += std::complex<double>(0, step * direction[j]);
  const double derivative = std::complex<double>(loss()).imag() / step;
  std::copy(before.begin(), before.end(), x.begin());
  return derivative;
}

/// ∂loss/∂x_j for every j by differences of fourth order around x_j. With the default step both the rounding of a loss
/// near 1 (2⁻⁵³ / step) and the neglected term (step⁴ f⁽⁵⁾ / 30) are near 1e-13.
template <class Loss>
std::vector<double> central_difference(std::span<double> x, const Loss& loss, double step = 1e-3) {
  std::vector<double> gradient;
  for (double& element : x) {
    const double value = element;
    const auto at = [&](double distance) {
      element = value + distance;
      return static_cast<double>(loss());
    };
    const double near = at(step) - at(-step);
    const double far = at(2 * step) - at(-2 * step);
    element = value;
    gradient.push_back((8 * near - far) / (12 * step));
  }
  return gradient;
}

/// The derivative along a direction, likewise.
template <class Loss>
double central_difference_along(std::span<double> x, std::span<const double> direction, const Loss& loss, double step) {
  const std::vector<double> before(x.begin(), x.end());
  const auto at = [&](double distance) {
    for (std::size_t j = 0; j < x.size(); ++j) x[j] = before[j] + distance * direction[j];
    return static_cast<double>(loss());
  };
  const double near = at(step) - at(-step), far = at(2 * step) - at(-2 * step);
  std::copy(before.begin(), before.end(), x.begin());
  return (8 * near - far) / (12 * step);
}

/// ‖actual − expected‖ / ‖expected‖; infinite where the sizes differ or nothing was expected.
template <class Actual>
double gradient_error(std::span<Actual> actual, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  if (actual.size() != expected.size()) return INFINITY;
  for (std::size_t j = 0; j < expected.size(); ++j) {
    const double d = static_cast<double>(actual[j]) - expected[j];
    difference += d * d;
    norm += expected[j] * expected[j];
  }
  return norm > 0 ? std::sqrt(difference / norm) : INFINITY;
}

}  // namespace lora::test
