#include "lora/cpu/kernels/rope.hpp"

#include <doctest/doctest.h>

#include "support/backends.hpp"
#include "support/gradcheck.hpp"
#include "support/matrix.hpp"

namespace rope_test {

namespace {

using namespace lora;
using namespace lora::test;
using kernel::Rotation;
using Cpu = cpu::Device;

struct Case {
  Index rows, heads, width, padding;
};
constexpr Case cases[] = {{0, 1, 2, 0}, {1, 1, 2, 0}, {3, 2, 6, 3}, {5, 3, 64, 0}, {33, 5, 34, 1}};
constexpr Index positions = 40;

/// cos or sin of (position + 1) / (pair + 1): any angles will do.
template <class A>
std::vector<A> table(Index half, double (*function)(double)) {
  std::vector<A> values;
  for (Index p = 0; p < positions; ++p)
    for (Index j = 0; j < half; ++j)
      values.push_back(rounded<A>(function(static_cast<double>(p + 1) / static_cast<double>(j + 1))));
  return values;
}

std::vector<std::int32_t> some_positions(Index rows) {
  std::vector<std::int32_t> result;
  for (Index i = 0; i < rows; ++i) result.push_back(static_cast<std::int32_t>(i * 17 % positions));
  return result;
}

}  // namespace

TEST_CASE("rope: both rotations equal the formula, in place and with rows apart") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const Case& c : cases) {
      CAPTURE(c.rows);
      CAPTURE(c.width);
      const Index cols = c.heads * c.width, half = c.width / 2;
      Matrix<D, A> cosines(dev, positions, half, table<A>(half, std::cos)),
          sines(dev, positions, half, table<A>(half, std::sin));
      const auto at = some_positions(c.rows);
      Matrix<D, std::int32_t> rows(dev, 1, c.rows, at);
      const auto cs = cosines.host(), sn = sines.host();
      for (const Rotation rotation : {Rotation::forward, Rotation::inverse}) {
        Matrix<D, T> x(dev, c.rows, cols, 1, c.padding), y(dev, c.rows, cols, 2, 2 * c.padding);
        const auto xs = x.host();
        const double sign = rotation == Rotation::forward ? 1 : -1;
        std::vector<double> expected(xs.size()), bound(xs.size());
        for (Index i = 0; i < c.rows; ++i)
          for (Index k = 0; k < c.heads; ++k)
            for (Index j = 0; j < half; ++j) {
              const auto angle = static_cast<std::size_t>(at[static_cast<std::size_t>(i)] * half + j);
              const auto first = static_cast<std::size_t>(i * cols + k * c.width + j);
              const auto second = first + static_cast<std::size_t>(half);
              const double co = real(cs[angle]), si = sign * real(sn[angle]), a = real(xs[first]), b = real(xs[second]);
              expected[first] = a * co - b * si;
              expected[second] = b * co + a * si;
              for (const auto index : {first, second})
                bound[index] = (4 * roundoff<A> + 1.01 * rounds_parts<D> * roundoff<T>)*(std::fabs(a) + std::fabs(b)) +
                               1.01 * roundoff<T> * std::fabs(expected[index]);
            }
        kernel::rope<D, T>(dev, x.in(), cosines.in(), sines.in(), rows.in(), rotation, y.view());
        check_near(y.host(), expected, bound);
        check_same_bits(x.host(), xs);
        kernel::rope<D, T>(dev, x.in(), cosines.in(), sines.in(), rows.in(), rotation, x.view());
        check_same_bits(x.host(), y.host());
      }
    }
  });
}

TEST_CASE("rope: the inverse rotation is the gradient, by complex step") {
  using C = std::complex<double>;
  Cpu dev(1);
  const Index n = 4, cols = 12, half = 3;
  Matrix<Cpu, std::int32_t> rows(dev, 1, n, some_positions(n));
  Matrix<Cpu, double> cosines(dev, positions, half, table<double>(half, std::cos));
  Matrix<Cpu, double> sines(dev, positions, half, table<double>(half, std::sin)), dy(dev, n, cols, 1),
      dx(dev, n, cols, 2);
  kernel::rope<Cpu, double>(dev, dy.in(), cosines.in(), sines.in(), rows.in(), Rotation::inverse, dx.view());

  Matrix<Cpu, C> zc(dev, positions, half, table<C>(half, std::cos)), zs(dev, positions, half, table<C>(half, std::sin));
  Matrix<Cpu, C> x(dev, n, cols, 3), y(dev, n, cols, 4);
  const auto weights = dy.host();
  const auto loss = [&] {
    kernel::rope<Cpu, C>(dev, x.in(), zc.in(), zs.in(), rows.in(), Rotation::forward, y.view());
    C total = 0;
    const auto out = y.host();
    for (std::size_t i = 0; i < out.size(); ++i) total += weights[i] * out[i];
    return total;
  };
  CHECK(gradient_error(elements(dx.view()), complex_step(elements(x.view()), loss)) < 1e-12);
}

TEST_CASE("rope: the number of threads doesn't change a bit") {
  each_type([]<class T>() {
    using A = Accum<T>;
    const Index n = 500, cols = 66, half = 11;
    std::vector<T> first;
    for (const int threads : {1, 2, 3}) {
      Cpu dev(threads);
      Matrix<Cpu, A> cosines(dev, positions, half, table<A>(half, std::cos)),
          sines(dev, positions, half, table<A>(half, std::sin));
      Matrix<Cpu, std::int32_t> rows(dev, 1, n, some_positions(n));
      Matrix<Cpu, T> x(dev, n, cols, 1);
      kernel::rope<Cpu, T>(dev, x.in(), cosines.in(), sines.in(), rows.in(), Rotation::forward, x.view());
      if (threads == 1) first = x.host();
      check_same_bits(x.host(), first);
    }
  });
}

TEST_CASE("rope: operands that do not fit are refused") {
  Cpu dev(1);
  Matrix<Cpu, float> x(dev, 2, 6, 1), four(dev, 2, 4, 2), two(dev, 2, 2, 3), three(dev, 2, 3, 4);
  Matrix<Cpu, std::int32_t> rows(dev, 1, 2, std::vector<std::int32_t>{0, 1});
  const auto rope = [&](auto& cosines, auto& sines, auto& y) {
    kernel::rope<Cpu, float>(dev, x.in(), cosines.in(), sines.in(), rows.in(), Rotation::forward, y.view());
  };
  CHECK_THROWS_WITH_AS(rope(two, two, x), "[rope] x is (2, 6) but heads of 4 columns were expected", ShapeError);
  CHECK_THROWS_AS(rope(three, two, x), ShapeError);
  CHECK_THROWS_AS(rope(three, three, four), ShapeError);
}

}  // namespace rope_test
