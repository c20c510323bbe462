#include "lora/cpu/kernels/reduce.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "support/backends.hpp"
#include "support/matrix.hpp"

namespace reduce_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

struct Case {
  Index rows, cols, padding;
};
constexpr Case cases[] = {{0, 3, 0}, {1, 1, 0}, {3, 7, 3}, {1, 63, 0}, {65, 1, 2}, {100, 577, 1}, {1, 70001, 0}};

}  // namespace

TEST_CASE("reduce: sums are added to what is there, in the device's type of sums") {
  each_backend_and_type([]<class D, class T>() {
    using Sum = typename D::Sum;
    D dev(2);
    for (const Case& c : cases) {
      CAPTURE(c.rows);
      CAPTURE(c.cols);
      Matrix<D, T> x(dev, c.rows, c.cols, 1, c.padding);
      double sum = 0, size = 0;
      for (const T& value : x.host()) {
        sum += real(value);
        size += std::fabs(real(value));
      }
      const double n = static_cast<double>(c.rows * c.cols) + 100;
      Matrix<D, Sum> out(dev, 1, 1, std::vector<Sum>{10});
      kernel::sum(dev, x.view(), out.view());
      check_near(out.host(), {10 + sum}, {2 * n * roundoff<Sum> * (10 + size)});
    }
  });
}

TEST_CASE("reduce: each block of 1,024 elements has its own sum of squares, whoever forms it") {
  each_backend_and_type([]<class D, class T>() {
    using Sum = typename D::Sum;
    constexpr Index block = kernel::sum_block;
    for (const Index n : {Index{1}, block - 1, block, block + 1, 5 * block, 20 * block + 7}) {
      CAPTURE(n);
      D dev(2);
      Matrix<D, T> x(dev, 1, n, 1);
      const Index blocks = (n + block - 1) / block;
      Matrix<D, Sum> out(dev, 1, blocks, 5);
      kernel::block_sums_of_squares(dev, x.in(), out.view());
      const auto values = x.host();
      std::vector<double> expected(static_cast<std::size_t>(blocks)), bound(expected);
      for (std::size_t i = 0; i < values.size(); ++i)
        expected[i / static_cast<std::size_t>(block)] += real(values[i]) * real(values[i]);
      for (std::size_t b = 0; b < expected.size(); ++b) bound[b] = 2 * block * roundoff<Sum> * expected[b];
      check_near(out.host(), expected, bound);

      D other(3);  // a part of the blocks, by other threads
      const Index first = blocks / 2;
      Matrix<D, T> part(other, 1, n - first * block, std::vector<T>(values.begin() + first * block, values.end()));
      Matrix<D, Sum> sums(other, 1, blocks - first, 6);
      kernel::block_sums_of_squares(other, part.in(), sums.view());
      const auto whole = out.host();
      check_same_bits(sums.host(), std::vector<Sum>(whole.begin() + first, whole.end()));
    }
  });
}

TEST_CASE("reduce: sums of columns are added to what is there, with the same bits on any number of threads") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    for (const auto& extents : {std::pair<Index, Index>{1, 5}, {64, 33}, {65, 1}, {1000, 130}}) {
      const Index rows = extents.first, cols = extents.second;
      CAPTURE(rows);
      std::vector<A> first;
      for (const int threads : {1, 2, 5}) {
        D dev(threads);
        Matrix<D, T> x(dev, rows, cols, 1, 2);
        Matrix<D, A> out(dev, 1, cols, 2);
        const auto before = doubles(out.host()), values = doubles(x.host());
        kernel::column_sums(dev, x.in(), out.view());
        std::vector<double> expected(before), bound(before.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          expected[i % before.size()] += values[i];
          bound[i % before.size()] += std::fabs(values[i]);
        }
        for (std::size_t j = 0; j < bound.size(); ++j)
          bound[j] = static_cast<double>(rows + 1) * roundoff<A> * (bound[j] + std::fabs(before[j]));
        check_near(out.host(), expected, bound);
        if (threads == 1) first = out.host();
        check_same_bits(out.host(), first);
      }
    }
  });
}

TEST_CASE("reduce: squares that float can't hold") {
  each_backend([]<class D>() {
    if constexpr (std::same_as<typename D::Sum, double>) {
      D dev(1);
      Matrix<D, float> x(dev, 1, 3, std::vector<float>{1e30f, 1e-30f, 2e30f}), y(dev, 1, 1, std::vector<float>{1e-30f});
      Matrix<D, double> out(dev, 1, 1, std::vector<double>{0}), tiny(dev, 1, 1, std::vector<double>{0});
      kernel::block_sums_of_squares(dev, x.in(), out.view());
      CHECK(out.host()[0] == doctest::Approx(5e60).epsilon(1e-6));
      kernel::block_sums_of_squares(dev, y.in(), tiny.view());
      CHECK(tiny.host()[0] == doctest::Approx(1e-60).epsilon(1e-6));
    }
  });
}

TEST_CASE("reduce: a value that is not a number shows in the sum") {
  each_backend([]<class D>() {
    D dev(1);
    std::vector<float> values(100, 1.0f);
    values[37] = std::numeric_limits<float>::quiet_NaN();
    using Sum = typename D::Sum;
    Matrix<D, float> x(dev, 1, 100, values);
    Matrix<D, Sum> out(dev, 1, 1, std::vector<Sum>{0});
    kernel::block_sums_of_squares(dev, x.in(), out.view());
    CHECK(std::isnan(out.host()[0]));
  });
}

TEST_CASE("reduce: the number of threads doesn't change a bit") {
  each_type([]<class T>() {
    std::vector<double> first;
    for (const int threads : {1, 2, 3, 5}) {
      Cpu dev(threads);
      Matrix<Cpu, T> x(dev, 301, 997, 1, 3);
      Matrix<Cpu, double> out(dev, 1, 1, std::vector<double>{0});
      kernel::sum(dev, x.in(), out.view());
      if (threads == 1) first = out.host();
      check_same_bits(out.host(), first);
    }
  });
}

TEST_CASE("reduce: the ordered sum and maximum see every element") {
  for (Index n = 0; n < 70; ++n) {
    std::vector<float> values;
    for (Index i = 0; i < n; ++i) values.push_back(static_cast<float>(-1 - (i * 37) % 71));
    CHECK(cpu::ordered_sum<float>(n, [&](Index i) { return values[static_cast<std::size_t>(i)]; }) ==
          std::accumulate(values.begin(), values.end(), 0.0f));  // whole numbers below 2^24: exact in any order
    const float largest = cpu::ordered_max(n, values.data());
    CHECK(largest == (n == 0 ? -INFINITY : *std::max_element(values.begin(), values.end())));
  }
}

}  // namespace reduce_test
