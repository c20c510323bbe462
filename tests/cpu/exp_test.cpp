#include "lora/cpu/vectors/exp.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace exp_test {

namespace cpu = lora::cpu;

TEST_CASE("exp: within 1.5 units in the last place wherever the result is normal") {
  std::vector<float> x, y;
  for (float value = -87.3f; value < 88.3f; value += 0.00137f) x.push_back(value);
  for (float value = 1e-30f; value < 1.0f; value *= 1.7f) {
    x.push_back(value);
    x.push_back(-value);
  }
  y.resize(x.size());
#pragma omp simd
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = cpu::exp(x[i]);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / unit);
  }
  CHECK(worst <= 1.5);
  CHECK(cpu::exp(0.0f) == 1.0f);
}

TEST_CASE("exp: ends of the range and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-infinity, -1e30f, -90.0f, infinity, 1e30f, 89.0f, -0.0f};
  std::vector<float> y(x.size());
#pragma omp simd
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = cpu::exp(x[i]);
  CHECK(y == std::vector<float>{0, 0, 0, infinity, infinity, infinity, 1});
  CHECK(std::isnan(cpu::exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("exp: double and complex arguments keep their precision") {
  CHECK(cpu::exp(1.0) == std::exp(1.0));
  CHECK(cpu::exp(std::complex<double>(0.5, 1e-30)).imag() == doctest::Approx(std::exp(0.5) * 1e-30));
  CHECK(cpu::real_part(std::complex<double>(2, 5)) == 2.0);
}

}  // namespace exp_test
