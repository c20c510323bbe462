// Sums of products that are rounded once: whole numbers, whose sums in float32 are exact, make that equality. Where a
// backend rounds parts of a sum, the result is near.

#include <doctest/doctest.h>

#include <memory>

#include "lora/cpu/kernels/gemm.hpp"
#include "support/backends.hpp"
#include "support/effort.hpp"
#include "support/matrix.hpp"

namespace gemm_sum_test {

namespace {

using namespace lora;
using namespace lora::test;
using cpu::GemmEngine;
using kernel::Form;

/// Of −1, 0 and 1, times `unit`.
template <class T>
std::vector<T> signs(Index count, std::uint64_t key, double unit = 1) {
  Random random(key);
  std::vector<T> values;
  for (Index i = 0; i < count; ++i) values.push_back(rounded<T>(unit * (static_cast<double>(random.below(3)) - 1)));
  return values;
}

struct Term {
  Form form;
  Index depth;
  double unit;  ///< of its first operand
};

template <class D, class T>
struct Operands {
  Matrix<D, T> a, b;
  Operands(D& dev, const Term& t, Index m, Index n, std::uint64_t key)
      : a(dev, t.form == Form::tn ? t.depth : m, t.form == Form::tn ? m : t.depth, signs<T>(m * t.depth, key, t.unit),
          3),
        b(dev, t.form == Form::nt ? n : t.depth, t.form == Form::nt ? t.depth : n, signs<T>(n * t.depth, key + 1), 2) {}

  void add_to(std::vector<double>& sums, const Term& t, Index m, Index n) {
    const auto left = doubles(a.host()), right = doubles(b.host());
    for (Index i = 0; i < m; ++i)
      for (Index k = 0; k < t.depth; ++k) {
        const double value = left[static_cast<std::size_t>(t.form == Form::tn ? k * m + i : i * t.depth + k)];
        if (value == 0) continue;
        const double* const from = right.data() + (t.form == Form::nt ? k : k * n);
        const Index step = t.form == Form::nt ? t.depth : 1;
        double* const to = sums.data() + i * n;
        for (Index j = 0; j < n; ++j) to[j] += value * from[j * step];
      }
  }
};

template <class T, class D>
void check_sum(D& dev, Index m, Index n, const std::vector<Term>& terms, bool biased, bool accumulate) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(biased);
  CAPTURE(accumulate);
  std::vector<std::unique_ptr<Operands<D, T>>> operands;
  std::vector<kernel::ProductTerm<D, T>> products;
  std::vector<double> sums(static_cast<std::size_t>(m * n)), sizes(sums);  // and of magnitudes of parts
  for (const Term& term : terms) {
    operands.push_back(std::make_unique<Operands<D, T>>(dev, term, m, n, 10 * operands.size() + 1));
    std::vector<double> part(sums.size());
    operands.back()->add_to(part, term, m, n);
    for (std::size_t i = 0; i < part.size(); ++i) {
      sums[i] += part[i];
      sizes[i] += std::fabs(part[i]);
    }
    products.push_back({term.form, operands.back()->a.in(), operands.back()->b.in()});
  }
  Matrix<D, Accum<T>> bias(dev, 1, n, signs<Accum<T>>(n, 5, 1.0 / 16));
  Matrix<D, T> c(dev, m, n, signs<T>(m * n, 6, 64), 5);
  const auto biases = doubles(bias.host()), before = doubles(c.host());
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      double& sum = sums[static_cast<std::size_t>(i * n + j)];
      if (biased) sum += biases[static_cast<std::size_t>(j)];
      if (accumulate) sum += before[static_cast<std::size_t>(i * n + j)];
      // Each part is rounded at most twice, and so is what they add up to.
      double& size = sizes[static_cast<std::size_t>(i * n + j)];
      size = 2.02 * roundoff<T> *
             (size + (biased ? std::fabs(biases[static_cast<std::size_t>(j)]) : 0) +
              (accumulate ? std::fabs(before[static_cast<std::size_t>(i * n + j)]) : 0) + std::fabs(sum));
    }
  kernel::sum_of_products<D, T>(dev, products, biased ? bias.in() : View<D, const Accum<T>>(), c.view(), accumulate);
  if (rounds_parts<D> != 0) return check_near(c.host(), sums, sizes);
  std::vector<T> expected;
  for (const double sum : sums) expected.push_back(rounded<T>(sum));
  check_same_bits(c.host(), expected);
}

template <class T, class D>
void check_sums(D& dev) {
  const Term frozen{Form::nt, 150, 1}, backward{Form::nn, 130, 1}, update{Form::nn, 5, 1.0 / 64};
  check_sum<T>(dev, 1, 40, {frozen, update}, true, false);
  check_sum<T>(dev, 70, 300, {frozen}, false, true);
  // Past a tile of rows and of columns, the last ones of other extents.
  check_sum<T>(dev, 523, 700, {frozen, update}, true, true);
  check_sum<T>(dev, 300, 150, {backward, backward, update}, false, false);
  check_sum<T>(dev, 600, 20, {Term{Form::tn, 40, 1}, frozen}, true, false);
}

template <class T>
void check_engines() {
  cpu::Device any(1);
  for (const GemmEngine engine : cpu::gemm_engines(any))
    for (const int threads : {1, 2, 5}) {
      if (threads != 2 && !test::effort(true, false, "gemm: sums of products on one and on five threads")) continue;
      cpu::Device dev(threads);
      cpu::gemm_engines(dev) = {engine, GemmEngine::eigen};
      CAPTURE(static_cast<int>(engine));
      CAPTURE(threads);
      check_sums<T>(dev);
    }
}

}  // namespace

TEST_CASE("gemm: sums of products are rounded once, by tiles or not, with each engine, on 1, 2 and 5 threads") {
  SUBCASE("cpu, bf16") { check_engines<bf16>(); }
  SUBCASE("cpu, f32") { check_engines<float>(); }
}

TEST_CASE("gemm: sums of products are rounded once on other backends") {
  each_other_backend_and_type([]<class D, class T>() {
    D dev(2);
    check_sums<T>(dev);
  });
}

TEST_CASE("gemm: a sum names the operand that does not fit") {
  using D = cpu::Device;
  D dev(1);
  Matrix<D, bf16> a(dev, 4, 8, 1), b(dev, 7, 16, 2), c(dev, 4, 16, 3);
  const kernel::ProductTerm<D, bf16> term{Form::nn, a.in(), b.in()};
  CHECK_THROWS_WITH_AS((kernel::sum_of_products<D, bf16>(dev, {&term, 1}, {}, c.view())),
                       "[sum_of_products] a is (4, 8) but b is (7, 16); inner extents differ", ShapeError);
}

}  // namespace gemm_sum_test
