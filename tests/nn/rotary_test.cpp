#include "lora/nn/rotary.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "support/matrix.hpp"

namespace rotary_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

}  // namespace

// Positions on both sides of every place where the tables grow, each asked for when they reach the one before.
TEST_CASE("rotary: every position turns by its own angle, wherever the tables end") {
  constexpr Index width = 8, half = width / 2;
  D dev(1);
  nn::RopeConfig config;
  config.theta = 100;
  const auto frequencies = nn::inverse_frequencies(config, width);
  nn::Rotary<D, double> rotary(config, width);
  for (const std::int32_t position : {0, 1, 254, 255, 256, 257, 511, 512, 767, 768, 1023, 1024, 3, 2000}) {
    CAPTURE(position);
    rotary.reach(dev, position);
    const auto values = random_values<double>(width, 5, -1, 1);
    const Matrix<D, double> x(dev, 1, width, values);
    const Matrix<D, std::int32_t> positions(dev, 1, 1, std::vector<std::int32_t>{position});
    Matrix<D, double> y(dev, 1, width, 1), back(dev, 1, width, 2);
    rotary.forward(dev, x.in(), positions.in(), y.view());
    const auto turned = y.host();
    for (Index i = 0; i < half; ++i) {
      const auto a = static_cast<std::size_t>(i), b = static_cast<std::size_t>(i + half);
      const double angle = static_cast<double>(position) * static_cast<double>(frequencies[a]);
      CHECK(turned[a] == doctest::Approx(values[a] * std::cos(angle) - values[b] * std::sin(angle)).epsilon(1e-14));
      CHECK(turned[b] == doctest::Approx(values[b] * std::cos(angle) + values[a] * std::sin(angle)).epsilon(1e-14));
    }
    rotary.backward(dev, y.in(), positions.in(), back.view());
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(back.host()[i] == doctest::Approx(values[i]).epsilon(1e-14));
  }
}

}  // namespace rotary_test
