#include "lora/cpu/activation.hpp"

#include <doctest/doctest.h>

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

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

}  // namespace

TEST_CASE("activation: swiglu and its gradient equal the formulas, in place and with rows apart") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const Case& c : cases) {
      CAPTURE(c.rows);
      CAPTURE(c.width);
      Matrix<D, T> x(dev, c.rows, 2 * c.width, random_values<T>(c.rows * 2 * c.width, 1, -9, 9), c.padding);
      Matrix<D, T> dy(dev, c.rows, c.width, 2, c.padding), y(dev, c.rows, c.width, 3, 2 * c.padding);
      Matrix<D, T> dx(dev, c.rows, 2 * c.width, 4, c.padding + 1);
      const auto xs = x.host(), dys = dy.host();
      std::vector<double> expected, bound, expected_dx(xs.size()), bound_dx(xs.size());
      // e^(−z) is within 1.5 units in the last place, 3 roundings; what follows has at most 12 operations.
      const double error = 15 * roundoff<A>;
      for (Index i = 0; i < c.rows; ++i)
        for (Index j = 0; j < c.width; ++j) {
          const auto at = static_cast<std::size_t>(i * 2 * c.width + j), up_at = at + static_cast<std::size_t>(c.width);
          const double z = real(xs[at]), up = real(xs[up_at]), g = real(dys[static_cast<std::size_t>(i * c.width + j)]);
          const double s = sigmoid(z);
          expected.push_back(z * s * up);
          bound.push_back((error + 1.01 * roundoff<T>)*std::fabs(z * s * up));
          expected_dx[at] = g * up * s * (1 + z * (1 - s));
          bound_dx[at] =
              error * std::fabs(g * up * s) * (1 + std::fabs(z)) + 1.01 * roundoff<T> * std::fabs(expected_dx[at]);
          expected_dx[up_at] = g * z * s;
          bound_dx[up_at] = (error + 1.01 * roundoff<T>)*std::fabs(g * z * s);
        }
      kernel::swiglu<D, T>(dev, x.in(), y.view());
      check_near(y.host(), expected, bound);
      kernel::swiglu_backward<D, T>(dev, x.in(), dy.in(), dx.view());
      check_near(dx.host(), expected_dx, bound_dx);
      check_same_bits(x.host(), xs);
      kernel::swiglu_backward<D, T>(dev, x.in(), dy.in(), x.view(), dy.view());
      check_same_bits(x.host(), dx.host());
      check_same_bits(dy.host(), y.host());
    }
  });
}

TEST_CASE("activation: large gates saturate and stay finite") {
  each_backend_and_type([]<class D, class T>() {
    D dev(1);
    const std::vector<T> gates{rounded<T>(-1e4), rounded<T>(-100), rounded<T>(100), rounded<T>(1e4)};
    std::vector<T> values = gates;
    values.resize(8, rounded<T>(2));
    Matrix<D, T> x(dev, 1, 8, values), y(dev, 1, 4, 1), dy(dev, 1, 4, std::vector<T>(4, rounded<T>(1))),
        dx(dev, 1, 8, 2);
    kernel::swiglu<D, T>(dev, x.in(), y.view());
    kernel::swiglu_backward<D, T>(dev, x.in(), dy.in(), dx.view());
    const auto out = y.host(), grad = dx.host();
    for (const std::size_t j : {0u, 1u}) {
      CHECK(std::fabs(real(out[j])) < 1e-38);
      CHECK(std::fabs(real(grad[j])) < 1e-38);
      CHECK(std::fabs(real(grad[4 + j])) < 1e-38);
    }
    for (const std::size_t j : {2u, 3u}) {
      CHECK(real(out[j]) == real(rounded<T>(2 * real(gates[j]))));
      CHECK(real(grad[j]) == 2);
      CHECK(real(grad[4 + j]) == real(gates[j]));
    }
  });
}

TEST_CASE("activation: the gradient is exact by complex step") {
  using C = std::complex<double>;
  Cpu dev(1);
  const Index rows = 3, width = 5;
  Matrix<Cpu, double> x(dev, rows, 2 * width, 1), dy(dev, rows, width, 2), dx(dev, rows, 2 * width, 3);
  kernel::swiglu_backward<Cpu, double>(dev, x.in(), dy.in(), dx.view());
  Matrix<Cpu, C> zx(dev, rows, 2 * width, 1), zy(dev, rows, width, 4);
  const auto weights = dy.host();
  const auto loss = [&] {
    kernel::swiglu<Cpu, C>(dev, zx.in(), zy.view());
    C total = 0;
    const auto out = zy.host();
    for (std::size_t i = 0; i < out.size(); ++i) total += weights[i] * out[i];
    return total;
  };
  CHECK(gradient_error(elements(dx.view()), complex_step(elements(zx.view()), loss)) < 1e-12);
}

TEST_CASE("activation: the number of threads doesn't change a bit") {
  each_type([]<class T>() {
    std::vector<T> first, first_dx;
    for (const int threads : {1, 2, 3}) {
      Cpu dev(threads);
      Matrix<Cpu, T> x(dev, 120, 190, 1), y(dev, 120, 95, 2), dx(dev, 120, 190, 3);
      kernel::swiglu<Cpu, T>(dev, x.in(), y.view());
      kernel::swiglu_backward<Cpu, T>(dev, x.in(), y.in(), dx.view());
      if (threads == 1) first = y.host(), first_dx = dx.host();
      check_same_bits(y.host(), first);
      check_same_bits(dx.host(), first_dx);
    }
  });
}

TEST_CASE("activation: operands that do not fit are refused") {
  Cpu dev(1);
  Matrix<Cpu, float> x(dev, 2, 6, 1), y(dev, 2, 4, 2), dy(dev, 2, 3, 3);
  CHECK_THROWS_WITH_AS((kernel::swiglu<Cpu, float>(dev, x.in(), y.view())),
                       "[swiglu] gate_up is (2, 6) but (2, 8) was expected", ShapeError);
  CHECK_THROWS_AS((kernel::swiglu_backward<Cpu, float>(dev, x.in(), dy.in(), y.view())), ShapeError);
  CHECK_THROWS_AS((kernel::swiglu_backward<Cpu, float>(dev, x.in(), y.in(), x.view())), ShapeError);
  CHECK_THROWS_AS((kernel::swiglu_backward<Cpu, float>(dev, x.in(), dy.in(), x.view(), y.view())), ShapeError);
}

}  // namespace activation_test
