#include "lora/cpu/kernels/activation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "support/backends.hpp"
#include "support/gradcheck.hpp"
#include "support/matrix.hpp"

namespace activation_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

struct Case {
  Index rows, width, padding;
};
constexpr Case cases[] = {{0, 3, 0}, {1, 1, 0}, {3, 7, 3}, {5, 64, 0}, {9, 1537, 1}};

constexpr kernel::Gate gates[] = {kernel::Gate::silu, kernel::Gate::gelu_tanh};

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

/// a(z) of a gate, and its derivative.
double argument(kernel::Gate gate, double z) {
  return gate == kernel::Gate::silu ? z : 2 * std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z);
}
double slope(kernel::Gate gate, double z) {
  return gate == kernel::Gate::silu ? 1 : 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * z * z);
}

}  // namespace

TEST_CASE("activation: gated units and their gradients equal the formulas, in place and with rows apart") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const kernel::Gate gate : gates)
      for (const Case& c : cases) {
        CAPTURE(c.rows);
        CAPTURE(c.width);
        Matrix<D, T> x(dev, c.rows, 2 * c.width, random_values<T>(c.rows * 2 * c.width, 1, -9, 9), c.padding);
        Matrix<D, T> dy(dev, c.rows, c.width, 2, c.padding), y(dev, c.rows, c.width, 3, 2 * c.padding);
        Matrix<D, T> dx(dev, c.rows, 2 * c.width, 4, c.padding + 1);
        const auto xs = x.host(), dys = dy.host();
        std::vector<double> expected, bound, expected_dx(xs.size()), bound_dx(xs.size());
        for (Index i = 0; i < c.rows; ++i)
          for (Index j = 0; j < c.width; ++j) {
            const auto at = static_cast<std::size_t>(i * 2 * c.width + j),
                       up_at = at + static_cast<std::size_t>(c.width);
            const double z = real(xs[at]), up = real(xs[up_at]),
                         g = real(dys[static_cast<std::size_t>(i * c.width + j)]);
            const double a = argument(gate, z), s = sigmoid(a), inner = z * slope(gate, z);
            // e^(−a) is within 1.5 units in the last place, 3 roundings; what follows has at most 12 operations. Those
            // of a itself, 5 of a polynomial, are multiplied by a where e^(−a) counts at all.
            const double error = (15 + (gate == kernel::Gate::silu ? 0 : 5 * std::max(0.0, -a))) * roundoff<A>;
            // NPUs take 1 + tanh, of which nothing is left where tanh is near -1, and round GELU before it is used.
            const bool apart = rounds_parts<D> > 0 && gate == kernel::Gate::gelu_tanh;
            const double lost = apart ? 0x1p-50 : 0, kept = apart ? 2.02 : 1.01;
            expected.push_back(z * s * up);
            bound.push_back((error + 1.01 * roundoff<T>)*std::fabs(z * s * up) + lost * std::fabs(z * up));
            expected_dx[at] = g * up * s * (1 + inner * (1 - s));
            bound_dx[at] = error * std::fabs(g * up * s) * (1 + std::fabs(inner)) +
                           1.01 * roundoff<T> * std::fabs(expected_dx[at]) +
                           lost * std::fabs(g * up) * (1 + std::fabs(inner));
            expected_dx[up_at] = g * z * s;
            bound_dx[up_at] = (error + kept * roundoff<T>)*std::fabs(g * z * s) + lost * std::fabs(g * z);
          }
        kernel::gated_unit<D, T>(dev, gate, x.in(), y.view());
        check_near(y.host(), expected, bound);
        kernel::gated_unit_backward<D, T>(dev, gate, x.in(), dy.in(), dx.view());
        check_near(dx.host(), expected_dx, bound_dx);
        check_same_bits(x.host(), xs);
        kernel::gated_unit_backward<D, T>(dev, gate, x.in(), dy.in(), x.view(), dy.view());
        check_same_bits(x.host(), dx.host());
        check_same_bits(dy.host(), y.host());
      }
  });
}

TEST_CASE("activation: large gates saturate and stay finite") {
  each_backend_and_type([]<class D, class T>() {
    D dev(1);
    const std::vector<T> large{rounded<T>(-1e4), rounded<T>(-100), rounded<T>(100), rounded<T>(1e4)};
    std::vector<T> values = large;
    values.resize(8, rounded<T>(2));
    for (const kernel::Gate gate : gates) {
      Matrix<D, T> x(dev, 1, 8, values), y(dev, 1, 4, 1), dy(dev, 1, 4, std::vector<T>(4, rounded<T>(1))),
          dx(dev, 1, 8, 2);
      kernel::gated_unit<D, T>(dev, gate, x.in(), y.view());
      kernel::gated_unit_backward<D, T>(dev, gate, x.in(), dy.in(), dx.view());
      const auto out = y.host(), grad = dx.host();
      for (const std::size_t j : {0u, 1u}) {
        CHECK(std::fabs(real(out[j])) < 1e-38);
        CHECK(std::fabs(real(grad[j])) < 1e-38);
        CHECK(std::fabs(real(grad[4 + j])) < 1e-38);
      }
      for (const std::size_t j : {2u, 3u}) {
        CHECK(real(out[j]) == real(rounded<T>(2 * real(large[j]))));
        CHECK(real(grad[j]) == 2);
        CHECK(real(grad[4 + j]) == real(large[j]));
      }
    }
  });
}

TEST_CASE("activation: the gradient is exact by complex step") {
  using C = std::complex<double>;
  Cpu dev(1);
  const Index rows = 3, width = 5;
  for (const kernel::Gate gate : gates) {
    Matrix<Cpu, double> x(dev, rows, 2 * width, 1), dy(dev, rows, width, 2), dx(dev, rows, 2 * width, 3);
    kernel::gated_unit_backward<Cpu, double>(dev, gate, x.in(), dy.in(), dx.view());
    Matrix<Cpu, C> zx(dev, rows, 2 * width, 1), zy(dev, rows, width, 4);
    const auto weights = dy.host();
    const auto loss = [&] {
      kernel::gated_unit<Cpu, C>(dev, gate, zx.in(), zy.view());
      C total = 0;
      const auto out = zy.host();
      for (std::size_t i = 0; i < out.size(); ++i) total += weights[i] * out[i];
      return total;
    };
    CHECK(gradient_error(elements(dx.view()), complex_step(elements(zx.view()), loss)) < 1e-12);
  }
}

TEST_CASE("activation: the number of threads doesn't change a bit") {
  each_type([]<class T>() {
    std::vector<T> first, first_dx;
    for (const int threads : {1, 2, 3}) {
      Cpu dev(threads);
      Matrix<Cpu, T> x(dev, 120, 190, 1), y(dev, 120, 95, 2), dx(dev, 120, 190, 3);
      kernel::gated_unit<Cpu, T>(dev, kernel::Gate::gelu_tanh, x.in(), y.view());
      kernel::gated_unit_backward<Cpu, T>(dev, kernel::Gate::gelu_tanh, x.in(), y.in(), dx.view());
      if (threads == 1) first = y.host(), first_dx = dx.host();
      check_same_bits(y.host(), first);
      check_same_bits(dx.host(), first_dx);
    }
  });
}

TEST_CASE("activation: operands that do not fit are refused") {
  Cpu dev(1);
  Matrix<Cpu, float> x(dev, 2, 6, 1), y(dev, 2, 4, 2), dy(dev, 2, 3, 3);
  CHECK_THROWS_WITH_AS((kernel::gated_unit<Cpu, float>(dev, kernel::Gate::silu, x.in(), y.view())),
                       "[gated_unit] gate_up is (2, 6) but (2, 8) was expected", ShapeError);
  CHECK_THROWS_AS((kernel::gated_unit_backward<Cpu, float>(dev, kernel::Gate::silu, x.in(), dy.in(), y.view())),
                  ShapeError);
  CHECK_THROWS_AS((kernel::gated_unit_backward<Cpu, float>(dev, kernel::Gate::silu, x.in(), y.in(), x.view())),
                  ShapeError);
  CHECK_THROWS_AS(
      (kernel::gated_unit_backward<Cpu, float>(dev, kernel::Gate::silu, x.in(), dy.in(), x.view(), y.view())),
      ShapeError);
}

}  // namespace activation_test
