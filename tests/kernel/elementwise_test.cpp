#include "lora/cpu/kernels/elementwise.hpp"

#include <doctest/doctest.h>

#include "support/backends.hpp"
#include "support/matrix.hpp"

namespace elementwise_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

struct Case {
  Index rows, cols, padding;
};
constexpr Case cases[] = {{0, 3, 0}, {1, 1, 0}, {3, 7, 3}, {40, 65, 1}, {1, 9001, 0}, {2, 9000, 5}};

template <class D, class From, class To>
void check_convert() {
  using C = decltype(Accum<From>{} + Accum<To>{});
  D dev(2);
  for (const Case& c : cases) {
    CAPTURE(c.cols);
    Matrix<D, From> x(dev, c.rows, c.cols, 1, c.padding);
    Matrix<D, To> y(dev, c.rows, c.cols, 2, c.padding + 1), sum(dev, c.rows, c.cols, 2, c.padding);
    const auto xs = x.host();
    const auto before = sum.host();
    std::vector<double> expected, bound, expected_sum, bound_sum;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      expected.push_back(0.3 * real(xs[i]));
      bound.push_back((3 * roundoff<C> + 1.01 * roundoff<To>)*std::fabs(expected[i]));
      expected_sum.push_back(real(before[i]) + expected[i]);
      bound_sum.push_back(3 * roundoff<C> * (std::fabs(real(before[i])) + std::fabs(expected[i])) +
                          1.01 * roundoff<To> * std::fabs(expected_sum[i]));
    }
    kernel::convert(dev, x.in(), y.view(), 0.3);
    check_near(y.host(), expected, bound);
    kernel::convert(dev, x.in(), sum.view(), 0.3, true);
    check_near(sum.host(), expected_sum, bound_sum);
    // Without a factor it is the one rounding to the narrower type, and exact to the wider one.
    kernel::convert(dev, x.in(), y.view());
    std::vector<To> exact;
    for (const From& value : xs) exact.push_back(rounded<To>(real(value)));
    check_same_bits(y.host(), exact);
  }
}

/// The mask by its definition, one column at a time.
bool kept(const kernel::Dropout& rule, std::int32_t place, std::int32_t position, Index column) {
  const auto words = philox({static_cast<std::uint32_t>(column / 4), static_cast<std::uint32_t>(position),
                             static_cast<std::uint32_t>(place), 0},
                            rule.key);
  return words[static_cast<std::size_t>(column % 4)] >= rule.p * 0x1p32;
}

}  // namespace

TEST_CASE("elementwise: convert scales, rounds once and adds") {
  each_backend([]<class D>() {
    SUBCASE("f32 to bf16") { check_convert<D, float, bf16>(); }
    SUBCASE("bf16 to f32") { check_convert<D, bf16, float>(); }
    SUBCASE("f32 to f32") { check_convert<D, float, float>(); }
    SUBCASE("bf16 to bf16") { check_convert<D, bf16, bf16>(); }
  });
  SUBCASE("f32 to f64") { check_convert<Cpu, float, double>(); }
  SUBCASE("f64 to f64") { check_convert<Cpu, double, double>(); }
  SUBCASE("f64 to f32") { check_convert<Cpu, double, float>(); }
}

TEST_CASE("elementwise: convert in place") {
  each_backend([]<class D>() {
    D dev(1);
    Matrix<D, float> x(dev, 3, 5, 1, 2), y(dev, 3, 5, 2);
    kernel::convert(dev, x.in(), y.view(), 2.0);
    kernel::convert(dev, x.in(), x.view(), 2.0);
    check_same_bits(x.host(), y.host());
  });
}

TEST_CASE("elementwise: fill and add_bias reach every element and no other") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const Case& c : cases) {
      Matrix<D, T> y(dev, c.rows, c.cols, 1, c.padding);
      Matrix<D, A> bias(dev, 1, c.cols, 2);
      const auto ys = y.host();
      const auto bs = bias.host();
      std::vector<double> expected, bound;
      for (std::size_t i = 0; i < ys.size(); ++i) {
        const double b = real(bs[i % bs.size()]);
        expected.push_back(real(ys[i]) + b);
        bound.push_back(roundoff<A> * std::fabs(expected[i]) * 1.01 + 1.01 * roundoff<T> * std::fabs(expected[i]));
      }
      kernel::add_bias(dev, bias.in(), y.view());
      check_near(y.host(), expected, bound);
      kernel::fill(dev, y.view(), -1.5);
      check_same_bits(y.host(), std::vector<T>(ys.size(), rounded<T>(-1.5)));
    }
  });
}

TEST_CASE("elementwise: gather and scatter move whole rows") {
  each_backend_and_type([]<class D, class T>() {
    D dev(2);
    const std::vector<std::int32_t> picked{4, 0, 5, 2};
    Matrix<D, std::int32_t> index(dev, 1, 4, picked);
    for (const Index cols : {Index{1}, Index{7}, Index{5000}}) {
      Matrix<D, T> x(dev, 6, cols, 1, 3), y(dev, 4, cols, 2, 1), z(dev, 6, cols, 3, 2);
      const auto xs = x.host();
      auto zs = z.host();
      kernel::gather_rows<D, T>(dev, x.in(), index.in(), y.view());
      kernel::scatter_rows<D, T>(dev, y.in(), index.in(), z.view());
      std::vector<T> gathered;
      for (const std::int32_t row : picked) {
        gathered.insert(gathered.end(), xs.begin() + row * cols, xs.begin() + (row + 1) * cols);
        std::copy_n(xs.begin() + row * cols, cols, zs.begin() + row * cols);
      }
      check_same_bits(y.host(), gathered);
      check_same_bits(z.host(), zs);
    }
    Matrix<D, std::int32_t> none(dev, 1, 0, std::vector<std::int32_t>{});
    Matrix<D, T> x(dev, 6, 3, 1), y(dev, 0, 3, 2);
    kernel::gather_rows<D, T>(dev, x.in(), none.in(), y.view());
  });
}

TEST_CASE("elementwise: the dropout mask is the one that the contract defines") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const double p : {0.0, 0.1, 0.5, 0.999}) {
      const kernel::Dropout rule{p, 0x0123456789ABCDEFu};
      for (const Case& c : cases) {
        CAPTURE(p);
        CAPTURE(c.cols);
        std::vector<std::int32_t> at, where;
        for (Index i = 0; i < c.rows; ++i) {
          at.push_back(static_cast<std::int32_t>(1000 + i / 3));
          where.push_back(static_cast<std::int32_t>(i % 3 * 7));
        }
        Matrix<D, std::int32_t> places(dev, 1, c.rows, at), positions(dev, 1, c.rows, where);
        Matrix<D, T> x(dev, c.rows, c.cols, 1, c.padding), y(dev, c.rows, c.cols, 2, c.padding),
            sum(dev, c.rows, c.cols, 3);
        const auto xs = x.host(), before = sum.host();
        std::vector<double> expected, bound, expected_sum, bound_sum;
        for (std::size_t i = 0; i < xs.size(); ++i) {
          const auto row = i / static_cast<std::size_t>(c.cols);
          const bool keep = kept(rule, at[row], where[row], static_cast<Index>(i) % c.cols);
          const double value = keep ? real(xs[i]) / (1 - p) : 0;
          expected.push_back(value);
          bound.push_back((3 * roundoff<A> + 1.01 * roundoff<T>)*std::fabs(value));
          expected_sum.push_back(real(before[i]) + value);
          bound_sum.push_back(3 * roundoff<A> * (std::fabs(value) + std::fabs(real(before[i]))) +
                              1.01 * roundoff<T> * std::fabs(expected_sum[i]));
        }
        kernel::dropout<D, T>(dev, rule, x.in(), places.in(), positions.in(), y.view());
        check_near(y.host(), expected, bound);
        kernel::dropout<D, T>(dev, rule, x.in(), places.in(), positions.in(), sum.view(), true);
        check_near(sum.host(), expected_sum, bound_sum);
        kernel::dropout<D, T>(dev, rule, x.in(), places.in(), positions.in(), x.view());
        check_same_bits(x.host(), y.host());
      }
    }
  });
}

TEST_CASE("elementwise: dropout keeps a share of 1 - p, each key and place another") {
  Cpu dev(2);
  const Index n = 100, cols = 1000;
  std::vector<std::int32_t> numbers(n);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
  Matrix<Cpu, std::int32_t> rising(dev, 1, n, numbers), zero(dev, 1, n, std::vector<std::int32_t>(n));
  Matrix<Cpu, float> x(dev, n, cols, std::vector<float>(n * cols, 1.0f)), y(dev, n, cols, 1);
  const auto mask = [&](std::uint64_t key, auto& places, auto& positions) {
    kernel::dropout<Cpu, float>(dev, {0.3, key}, x.in(), places.in(), positions.in(), y.view());
    return y.host();
  };
  const auto differences = [](const auto& a, const auto& b) {
    Index count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
    return static_cast<double>(count);
  };
  const auto first = mask(1, rising, zero);
  const auto kept_count =
      static_cast<double>(std::count_if(first.begin(), first.end(), [](float v) { return v != 0; }));
  // Six standard deviations of a binomial: √(10⁵ · 0.3 · 0.7) = 145.
  CHECK(std::fabs(kept_count - 70000) < 6 * 145);
  const double expected = 1e5 * 2 * 0.3 * 0.7, deviation = std::sqrt(1e5 * 0.42 * 0.58);
  CHECK(std::fabs(differences(first, mask(2, rising, zero)) - expected) < 6 * deviation);
  CHECK(std::fabs(differences(first, mask(1, zero, rising)) - expected) < 7 * deviation);  // row 0 is the same
}

TEST_CASE("elementwise: certain dropout leaves nothing") {
  each_backend([]<class D>() {
    D dev(1);
    Matrix<D, std::int32_t> index(dev, 1, 2, std::vector<std::int32_t>{0, 1});
    Matrix<D, float> x(dev, 2, 100, 1), y(dev, 2, 100, 2);
    kernel::dropout<D, float>(dev, {1.0, 7}, x.in(), index.in(), index.in(), y.view());
    CHECK(y.host() == std::vector<float>(200, 0.0f));
  });
}

TEST_CASE("elementwise: operands that do not fit are refused") {
  Cpu dev(1);
  Matrix<Cpu, float> x(dev, 2, 6, 1), y(dev, 2, 5, 2), bias(dev, 1, 6, 3);
  Matrix<Cpu, std::int32_t> three(dev, 1, 3, std::vector<std::int32_t>{0, 1, 0});
  CHECK_THROWS_WITH_AS(kernel::convert(dev, x.in(), y.view()), "[convert] y is (2, 5) but (2, 6) was expected",
                       ShapeError);
  CHECK_THROWS_AS(kernel::add_bias(dev, bias.in(), y.view()), ShapeError);
  CHECK_THROWS_AS((kernel::gather_rows<Cpu, float>(dev, x.in(), three.in(), y.view())), ShapeError);
  CHECK_THROWS_AS((kernel::scatter_rows<Cpu, float>(dev, x.in(), three.in(), x.view())), ShapeError);
  CHECK_THROWS_AS((kernel::dropout<Cpu, float>(dev, {}, x.in(), three.in(), three.in(), x.view())), ShapeError);
}

}  // namespace elementwise_test
