#include "lora/cpu/kernels/norm.hpp"

#include <doctest/doctest.h>

#include "support/backends.hpp"
#include "support/gradcheck.hpp"
#include "support/matrix.hpp"

namespace norm_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

struct Case {
  Index rows, groups, width, padding;
};
constexpr Case cases[] = {{0, 1, 8, 0}, {1, 1, 1, 0}, {3, 1, 7, 3}, {5, 4, 16, 0}, {4, 3, 33, 1}, {41, 1, 577, 2}};
constexpr double eps = 1e-5;
constexpr double offsets[] = {0, 1};  // 1 + w is rounded once more, which the bounds have room for

/// y and rstd in double, from the formula.
void expected_norm(const Case& c, const std::vector<double>& x, const std::vector<double>& w, std::vector<double>& y,
                   std::vector<double>& rstd) {
  y.resize(x.size());
  rstd.clear();
  for (std::size_t group = 0; group < static_cast<std::size_t>(c.rows * c.groups); ++group) {
    const std::size_t begin = group * w.size();
    double squares = 0;
    for (std::size_t j = 0; j < w.size(); ++j) squares += x[begin + j] * x[begin + j];
    rstd.push_back(1 / std::sqrt(squares / static_cast<double>(w.size()) + eps));
    for (std::size_t j = 0; j < w.size(); ++j) y[begin + j] = x[begin + j] * rstd.back() * w[j];
  }
}

}  // namespace

TEST_CASE("norm: forward equals the formula, in place and with rows apart") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const double offset : offsets)
      for (const Case& c : cases) {
        CAPTURE(c.rows);
        CAPTURE(c.width);
        const Index cols = c.groups * c.width;
        const auto values = random_values<T>(c.rows * cols, 1, -3, 3);
        Matrix<D, T> x(dev, c.rows, cols, values, c.padding), y(dev, c.rows, cols, 2, c.padding + 1);
        Matrix<D, A> w(dev, 1, c.width, random_values<A>(c.width, 3, 0.5, 1.5));
        Matrix<D, A> rstd(dev, c.rows, c.groups, 4, c.padding);
        std::vector<double> expected, expected_rstd, bound, bound_rstd;
        auto weights = doubles(w.host());
        for (double& weight : weights) weight += offset;
        expected_norm(c, doubles(values), weights, expected, expected_rstd);
        // Squares are positive: a sum of n has a relative error of at most n roundings; the rest are single ones.
        const double error = static_cast<double>(c.width + 8) * roundoff<A>;
        for (const double value : expected) bound.push_back((error + 1.01 * roundoff<T>)*std::fabs(value));
        for (const double value : expected_rstd) bound_rstd.push_back(error * value);

        kernel::rms_norm<D, T>(dev, x.in(), w.in(), eps, y.view(), rstd.view(), {}, offset);
        check_near(y.host(), expected, bound);
        check_near(rstd.host(), expected_rstd, bound_rstd);
        check_same_bits(x.host(), values);

        Matrix<D, T> copy(dev, c.rows, cols, 5, 2 * c.padding);
        kernel::rms_norm<D, T>(dev, x.in(), w.in(), eps, x.view(), {}, copy.view(), offset);
        check_same_bits(x.host(), y.host());
        check_same_bits(copy.host(), values);
      }
  });
}

TEST_CASE("norm: backward equals the formula, it overwrites, adds, and may write over dy") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const double offset : offsets)
      for (const Case& c : cases) {
        CAPTURE(c.rows);
        CAPTURE(c.width);
        const Index cols = c.groups * c.width;
        Matrix<D, T> x(dev, c.rows, cols, 1, c.padding), dy(dev, c.rows, cols, 2, 2 * c.padding);
        Matrix<D, T> dx(dev, c.rows, cols, 3, c.padding), sum(dev, c.rows, cols, 3, c.padding);
        Matrix<D, A> w(dev, 1, c.width, random_values<A>(c.width, 4, 0.5, 1.5)),
            rstd(dev, c.rows, c.groups, 5, c.padding);
        kernel::rms_norm<D, T>(dev, x.in(), w.in(), eps, dx.view(), rstd.view(), {}, offset);
        const auto normed = dx.host();

        const auto xs = doubles(x.host()), dys = doubles(dy.host()), rs = doubles(rstd.host());
        auto ws = doubles(w.host());
        for (double& weight : ws) weight += offset;
        const auto before = doubles(sum.host());
        std::vector<double> expected(xs.size()), bound(xs.size()), expected_sum(xs.size()), bound_sum(xs.size());
        const auto n = static_cast<double>(c.width);
        for (std::size_t i = 0; i < xs.size(); ++i) {
          const std::size_t group = i / ws.size(), begin = group * ws.size();
          const double r = rs[group];
          double dot = 0, dot_size = 0;
          for (std::size_t j = 0; j < ws.size(); ++j) {
            dot += ws[j] * dys[begin + j] * xs[begin + j];
            dot_size += std::fabs(ws[j] * dys[begin + j] * xs[begin + j]);
          }
          expected[i] = r * (ws[i - begin] * dys[i] - xs[i] * r * r * dot / n);
          const double size = r * (std::fabs(ws[i - begin] * dys[i]) + std::fabs(xs[i]) * r * r * dot_size / n);
          bound[i] = (n + 10) * roundoff<A> * size + 1.01 * roundoff<T> * std::fabs(expected[i]);
          expected_sum[i] = before[i] + expected[i];
          bound_sum[i] = (n + 10) * roundoff<A> * (size + std::fabs(before[i])) +
                         1.01 * roundoff<T> * std::fabs(expected_sum[i]) +
                         rounds_parts<D> * 1.01 * roundoff<T> * std::fabs(expected[i]);
        }
        kernel::rms_norm_backward<D, T>(dev, x.in(), w.in(), rstd.in(), dy.in(), dx.view(), false, offset);
        check_near(dx.host(), expected, bound);
        kernel::rms_norm_backward<D, T>(dev, x.in(), w.in(), rstd.in(), dy.in(), sum.view(), true, offset);
        check_near(sum.host(), expected_sum, bound_sum);
        kernel::rms_norm_backward<D, T>(dev, x.in(), w.in(), rstd.in(), dy.in(), dy.view(), false, offset);
        check_same_bits(dy.host(), dx.host());
        Matrix<D, T> again(dev, c.rows, cols, 2, c.padding), added(dev, c.rows, cols, 3, 2 * c.padding);
        kernel::rms_norm_backward<D, T>(dev, x.in(), w.in(), rstd.in(), again.in(), added.view(), true, again.view(),
                                        eps, offset);
        check_same_bits(added.host(), sum.host());
        check_same_bits(again.host(), normed);
        Matrix<D, T> over(dev, c.rows, cols, 2, c.padding), apart(dev, c.rows, cols, 3, c.padding);
        const auto gradients = over.host();
        std::vector<double> twice(gradients.size()), bound_twice(gradients.size());
        for (std::size_t i = 0; i < twice.size(); ++i) {
          twice[i] = real(gradients[i]) + expected[i];
          bound_twice[i] = bound[i] + (n + 10) * roundoff<A> * std::fabs(real(gradients[i])) +
                           1.01 * roundoff<T> * std::fabs(twice[i]);
        }
        kernel::rms_norm_backward<D, T>(dev, x.in(), w.in(), rstd.in(), over.in(), over.view(), true, apart.view(), eps,
                                        offset);
        check_near(over.host(), twice, bound_twice);
        check_same_bits(apart.host(), normed);
      }
  });
}

TEST_CASE("norm: the gradient is exact by complex step") {
  using C = std::complex<double>;
  Cpu dev(1);
  for (const Index groups : {Index{1}, Index{3}}) {
    const Index rows = 3, width = 5, cols = groups * width;
    Matrix<Cpu, double> x(dev, rows, cols, 1), dy(dev, rows, cols, 2), dx(dev, rows, cols, 3), y(dev, rows, cols, 4);
    Matrix<Cpu, double> w(dev, 1, width, 5), rstd(dev, rows, groups, 6);
    kernel::rms_norm<Cpu, double>(dev, x.in(), w.in(), eps, y.view(), rstd.view());
    kernel::rms_norm_backward<Cpu, double>(dev, x.in(), w.in(), rstd.in(), dy.in(), dx.view(), false);

    Matrix<Cpu, C> zx(dev, rows, cols, 1), zy(dev, rows, cols, 4), zw(dev, 1, width, 5);
    const auto weights = dy.host();
    const auto loss = [&] {
      kernel::rms_norm<Cpu, C>(dev, zx.in(), zw.in(), eps, zy.view(), {});
      C total = 0;
      const auto out = zy.host();
      for (std::size_t i = 0; i < out.size(); ++i) total += weights[i] * out[i];
      return total;
    };
    CHECK(gradient_error(elements(dx.view()), complex_step(elements(zx.view()), loss)) < 1e-12);
  }
}

TEST_CASE("norm: the weight's gradient equals the formula, adds, and has the same bits on any number of threads") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    for (const Case& c : {Case{0, 1, 8, 0}, Case{3, 1, 7, 3}, Case{70, 4, 16, 0}, Case{131, 1, 577, 2}}) {
      CAPTURE(c.rows);
      CAPTURE(c.width);
      const Index cols = c.groups * c.width;
      std::vector<A> first;
      for (const int threads : {1, 3}) {
        D dev(threads);
        Matrix<D, T> x(dev, c.rows, cols, 1, c.padding), dy(dev, c.rows, cols, 2, 2 * c.padding);
        Matrix<D, A> rstd(dev, c.rows, c.groups, random_values<A>(c.rows * c.groups, 3, 0.5, 2), c.padding),
            dw(dev, 1, c.width, 4);
        const auto xs = doubles(x.host()), dys = doubles(dy.host()), rs = doubles(rstd.host()),
                   before = doubles(dw.host());
        std::vector<double> expected(before), bound(before.size());
        for (std::size_t i = 0; i < xs.size(); ++i) {
          const double term = dys[i] * xs[i] * rs[i / before.size()];
          expected[i % before.size()] += term;
          bound[i % before.size()] += std::fabs(term);
        }
        for (std::size_t j = 0; j < bound.size(); ++j)
          bound[j] = static_cast<double>(c.rows * c.groups + 4) * roundoff<A> * (bound[j] + std::fabs(before[j]));
        kernel::rms_norm_weight_gradient(dev, x.in(), rstd.in(), dy.in(), dw.view());
        check_near(dw.host(), expected, bound);
        if (threads == 1) first = dw.host();
        check_same_bits(dw.host(), first);
      }
    }
    D dev(1);
    Matrix<D, T> x(dev, 2, 6, 1), y(dev, 2, 5, 2);
    Matrix<D, A> rstd(dev, 2, 1, 3), w4(dev, 1, 4, 4), w6(dev, 1, 6, 5);
    CHECK_THROWS_AS(kernel::rms_norm_weight_gradient(dev, x.in(), rstd.in(), x.in(), w4.view()), ShapeError);
    CHECK_THROWS_AS(kernel::rms_norm_weight_gradient(dev, x.in(), rstd.in(), y.in(), w6.view()), ShapeError);
  });
}

TEST_CASE("norm: the weight's gradient is exact by complex step") {
  using C = std::complex<double>;
  Cpu dev(1);
  for (const Index groups : {Index{1}, Index{3}}) {
    const Index rows = 3, width = 5, cols = groups * width;
    Matrix<Cpu, double> x(dev, rows, cols, 1), dy(dev, rows, cols, 2), y(dev, rows, cols, 4);
    Matrix<Cpu, double> w(dev, 1, width, 5), rstd(dev, rows, groups, 6);
    Matrix<Cpu, double> dw(dev, 1, width, std::vector<double>(5));
    kernel::rms_norm<Cpu, double>(dev, x.in(), w.in(), eps, y.view(), rstd.view());
    kernel::rms_norm_weight_gradient<Cpu, double>(dev, x.in(), rstd.in(), dy.in(), dw.view());
    Matrix<Cpu, C> zx(dev, rows, cols, 1), zy(dev, rows, cols, 4), zw(dev, 1, width, 5);
    const auto weights = dy.host();
    const auto loss = [&] {
      kernel::rms_norm<Cpu, C>(dev, zx.in(), zw.in(), eps, zy.view(), {});
      C total = 0;
      const auto out = zy.host();
      for (std::size_t i = 0; i < out.size(); ++i) total += weights[i] * out[i];
      return total;
    };
    CHECK(gradient_error(elements(dw.view()), complex_step(elements(zw.view()), loss)) < 1e-12);
  }
}

TEST_CASE("norm: a row's bits depend neither on threads nor on its place") {
  each_type([]<class T>() {
    using A = Accum<T>;
    const Index rows = 301, cols = 77;
    const auto values = random_values<T>(rows * cols, 1), grads = random_values<T>(rows * cols, 2);
    std::vector<T> first, first_dx;
    for (const int threads : {1, 2, 3}) {
      Cpu dev(threads);
      Matrix<Cpu, T> x(dev, rows, cols, values), dy(dev, rows, cols, grads), y(dev, rows, cols, 3);
      Matrix<Cpu, A> w(dev, 1, cols, 4), rstd(dev, rows, 1, 5);
      kernel::rms_norm<Cpu, T>(dev, x.in(), w.in(), eps, y.view(), rstd.view());
      if (threads == 1) first = y.host();
      check_same_bits(y.host(), first);
      kernel::rms_norm_backward<Cpu, T>(dev, x.in(), w.in(), rstd.in(), dy.in(), y.view(), false);
      if (threads == 1) first_dx = y.host();
      check_same_bits(y.host(), first_dx);
      for (const Index row : {Index{1}, Index{2}, Index{300}}) {
        kernel::rms_norm<Cpu, T>(dev, x.in().row_slice(row, 1), w.in(), eps, y.view().row_slice(0, 1), {});
        const auto alone = to_host(dev, y.view().row_slice(0, 1));
        check_same_bits(alone, std::vector<T>(first.begin() + row * cols, first.begin() + (row + 1) * cols));
      }
    }
  });
}

TEST_CASE("norm: operands that do not fit are refused") {
  Cpu dev(1);
  Matrix<Cpu, float> x(dev, 2, 6, 1), y(dev, 2, 5, 2), w(dev, 1, 4, 3), w3(dev, 1, 3, 3), rstd(dev, 2, 1, 4);
  const auto norm = [&](auto& out, auto& weight) {
    kernel::rms_norm<Cpu, float>(dev, x.in(), weight.in(), eps, out.view(), rstd.view());
  };
  CHECK_THROWS_AS(norm(x, w), ShapeError);
  CHECK_THROWS_AS(norm(y, w3), ShapeError);
  CHECK_THROWS_WITH_AS(norm(x, w3), "[rms_norm] rstd is (2, 1) but (2, 2) was expected", ShapeError);
  Matrix<Cpu, float> out(dev, 2, 6, 5), rstd2(dev, 2, 2, 6);
  CHECK_THROWS_WITH_AS((kernel::rms_norm<Cpu, float>(dev, x.in(), w3.in(), eps, out.view(), rstd2.view(), y.view())),
                       "[rms_norm] copy is (2, 5) but (2, 6) was expected", ShapeError);
  CHECK_THROWS_WITH_AS((kernel::rms_norm_backward<Cpu, float>(dev, x.in(), w3.in(), rstd2.in(), x.in(), out.view(),
                                                              false, y.view(), eps)),
                       "[rms_norm_backward] y is (2, 5) but (2, 6) was expected", ShapeError);
}

}  // namespace norm_test
