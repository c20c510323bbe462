#pragma once

#include <cmath>
#include <complex>
#include <span>
#include <vector>

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
