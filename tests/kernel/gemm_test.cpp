#include "lora/cpu/kernels/gemm.hpp"

#include <doctest/doctest.h>

#include "support/backends.hpp"
#include "support/effort.hpp"
#include "support/matrix.hpp"
#include "support/oracle.hpp"

namespace gemm_test {

namespace {

using namespace lora;
using namespace lora::test;
using cpu::GemmEngine;
using kernel::Form;
using Cpu = cpu::Device;

struct Extents {
  Index m, n, k;
};
constexpr Extents shapes[] = {{1, 1, 1},    {3, 5, 7},    {1, 300, 40}, {300, 1, 33},    {17, 16, 1},
                              {64, 64, 64}, {193, 3, 70}, {5, 385, 64}, {200, 193, 520}, {16, 48, 1100}};
constexpr Form forms[] = {Form::nt, Form::nn, Form::tn};

/// Those of both engines that this build has.
std::vector<GemmEngine> engines() {
  Cpu dev(1);
  return cpu::gemm_engines(dev);
}

template <class D, class T>
struct Operands {
  Matrix<D, T> a, b;
  Operands(D& dev, Form form, const Extents& e, Index padding)
      : a(dev, form == Form::tn ? e.k : e.m, form == Form::tn ? e.m : e.k, 1, padding),
        b(dev, form == Form::nt ? e.n : e.k, form == Form::nt ? e.k : e.n, 2, 2 * padding) {}
};

template <class T, class Out, class D>
void check_product(D& dev, Form form, const Extents& e, double alpha, bool accumulate, Index padding) {
  CAPTURE(static_cast<int>(form));
  CAPTURE(e.m);
  CAPTURE(e.n);
  CAPTURE(e.k);
  CAPTURE(alpha);
  CAPTURE(accumulate);
  Operands<D, T> x(dev, form, e, padding);
  Matrix<D, Out> c(dev, e.m, e.n, 3, 3 * padding);
  const auto before = doubles(c.host());
  const auto expected = oracle::gemm(form, e.m, e.n, e.k, doubles(x.a.host()), doubles(x.b.host()), alpha,
                                     accumulate ? before : std::vector<double>(), roundoff<Accum<T>>, roundoff<Out>);
  kernel::gemm(dev, form, x.a.in(), x.b.in(), c.view(), alpha, accumulate);
  check_near(c.host(), expected.value, expected.bound);
}

template <class T, class Out, class D>
void check_products(D& dev, int variant) {
  for (const Form form : forms)
    for (const Extents& e : shapes) {
      if (!is_cpu<D> && e.m * e.n * e.k > 1000000) continue;
      if (!test::effort(true, form == Form::nt || e.m * e.n * e.k < 4000000, "gemm: large products but x W^T"))
        continue;
      const bool accumulate = (e.m + e.n + variant) % 2 == 0;
      const double alpha = (e.k + variant) % 3 == 0 ? 0.75 : 1;
      check_product<T, Out>(dev, form, e, alpha, accumulate, (e.n + variant) % 4);
      if (e.m * e.n * e.k < 100000) check_product<T, Out>(dev, form, e, -2.5, !accumulate, 0);
    }
}

template <class T, class Out>
void check_engines() {
  for (const GemmEngine engine : engines())
    for (int threads = test::effort(1, 3, "gemm: one and two threads"); threads <= 3; ++threads) {
      Cpu dev(threads);
      cpu::gemm_engines(dev) = {engine, GemmEngine::eigen};
      CAPTURE(static_cast<int>(engine));
      CAPTURE(threads);
      check_products<T, Out>(dev, threads);
    }
}

}  // namespace

TEST_CASE("gemm: every form equals naive loops, with each engine, on 1, 2 and 3 threads") {
  SUBCASE("cpu, f32") { check_engines<float, float>(); }
  SUBCASE("cpu, bf16") { check_engines<bf16, bf16>(); }
  SUBCASE("cpu, bf16 into f32") { check_engines<bf16, float>(); }
  SUBCASE("cpu, f64") { check_engines<double, double>(); }
}

TEST_CASE("gemm: every form equals naive loops on other backends") {
  each_other_backend_and_type([]<class D, class T>() {
    D dev(2);
    check_products<T, T>(dev, 1);
    if constexpr (!std::same_as<T, Accum<T>>) check_products<T, Accum<T>>(dev, 3);
  });
}

TEST_CASE("gemm: complex operands are multiplied, never conjugated") {
  using Z = std::complex<double>;
  using D = Cpu;
  D dev(2);
  for (const Form form : forms) {
    const Z i(0, 1), one(1, 0);
    // (i, 1) · (i, i): i² + i = −1 + i whichever operand is transposed.
    Matrix<D, Z> a(dev, form == Form::tn ? 2 : 1, form == Form::tn ? 1 : 2, std::vector<Z>{i, one});
    Matrix<D, Z> b(dev, form == Form::nt ? 1 : 2, form == Form::nt ? 2 : 1, std::vector<Z>{i, i});
    Matrix<D, Z> c(dev, 1, 1, std::vector<Z>{Z(0, 10)});
    kernel::gemm(dev, form, a.in(), b.in(), c.view(), 2, true);
    CHECK(c.host()[0] == Z(-2, 12));
  }
}

TEST_CASE("gemm: extents of zero") {
  const auto check = []<class T>(auto& dev) {
    for (const Form form : forms) {
      check_product<T, T>(dev, form, {3, 4, 0}, 1, false, 1);
      check_product<T, Accum<T>>(dev, form, {3, 4, 0}, 1, true, 1);
      check_product<T, T>(dev, form, {0, 4, 5}, 1, false, 0);
      check_product<T, T>(dev, form, {3, 0, 5}, 1, true, 0);
    }
  };
  each_type([&]<class T>() {
    for (const GemmEngine engine : engines()) {
      Cpu dev(2);
      cpu::gemm_engines(dev) = {engine, GemmEngine::eigen};
      check.template operator()<T>(dev);
    }
  });
  each_other_backend_and_type([&]<class D, class T>() {
    D dev(2);
    check.template operator()<T>(dev);
  });
}

TEST_CASE("gemm: the same call gives the same bits") {
  each_type([]<class T>() {
    for (const GemmEngine engine : engines())
      for (int threads = test::effort(1, 3, "gemm: the same bits on one and on two threads"); threads <= 3; ++threads) {
        const auto once = [&] {
          Cpu dev(threads);
          cpu::gemm_engines(dev) = {engine, GemmEngine::eigen};
          Operands<Cpu, T> x(dev, Form::nt, {190, 200, 300}, 0);
          Matrix<Cpu, T> c(dev, 190, 200, 3);
          kernel::gemm(dev, Form::nt, x.a.in(), x.b.in(), c.view());
          return c.host();
        };
        check_same_bits(once(), once());
      }
  });
}

TEST_CASE("gemm: Eigen's bits do not depend on the number of threads") {
  each_type([]<class T>() {
    const auto with = [](int threads) {
      Cpu dev(threads);
      cpu::gemm_engines(dev) = {GemmEngine::eigen};
      Operands<Cpu, T> x(dev, Form::nn, {390, 200, 300}, 0);
      Matrix<Cpu, T> c(dev, 390, 200, 3);
      kernel::gemm(dev, Form::nn, x.a.in(), x.b.in(), c.view());
      return c.host();
    };
    const auto one = with(1);
    if (test::effort(true, false, "gemm: Eigen's bits on two threads")) check_same_bits(one, with(2));
    check_same_bits(one, with(5));
  });
}

TEST_CASE("gemm: shapes that do not fit are errors that show both") {
  Cpu dev(1);
  Matrix<Cpu, float> a(dev, 4, 8, 1), b(dev, 7, 16, 2), c(dev, 4, 16, 3);
  CHECK_THROWS_WITH_AS(kernel::gemm(dev, Form::nn, a.in(), b.in(), c.view()),
                       "[gemm] a is (4, 8) but b is (7, 16); inner extents differ", ShapeError);
  Matrix<Cpu, float> b8(dev, 8, 16, 2), wide(dev, 4, 17, 3);
  CHECK_THROWS_AS(kernel::gemm(dev, Form::nn, a.in(), b8.in(), wide.view()), ShapeError);
}

TEST_CASE("gemm: the list of engines is asked in turn") {
  Cpu dev(1);
  cpu::gemm_engines(dev) = {GemmEngine::eigen};
  CHECK(cpu::gemm_engine<float>(dev) == GemmEngine::eigen);
  CHECK(cpu::describe_products(dev).substr(0, 5) == "Eigen");
#if defined(LORA_WITH_ONEDNN)
  cpu::gemm_engines(dev) = {GemmEngine::onednn, GemmEngine::eigen};
  CHECK(cpu::gemm_engine<float>(dev) == GemmEngine::onednn);
  CHECK(cpu::gemm_engine<double>(dev) == GemmEngine::eigen);
#endif
  cpu::gemm_engines(dev).clear();
  CHECK_THROWS_AS(cpu::gemm_engine<float>(dev), DeviceError);
}

#if defined(LORA_WITH_ONEDNN)
TEST_CASE("gemm: oneDNN's products are kept per shape, and no more than the bound") {
  Cpu dev(1);
  cpu::gemm_engines(dev) = {GemmEngine::onednn};
  Matrix<Cpu, float> a(dev, 400, 4, 1), b(dev, 3, 4, 2), c(dev, 400, 3, 3);
  const auto first = [&](Index rows) {
    kernel::gemm(dev, Form::nt, a.in().row_slice(0, rows), b.in(), c.view().row_slice(0, rows));
  };
  first(5);
  first(5);
  CHECK(dev.state<cpu::OneDnn>().prepared() == 1);
  for (Index rows = 1; rows <= 300; ++rows) first(rows);
  CHECK(dev.state<cpu::OneDnn>().prepared() == cpu::OneDnn::capacity);
  const auto expected =
      oracle::gemm(Form::nt, 400, 3, 4, doubles(a.host()), doubles(b.host()), 1, {}, roundoff<float>, roundoff<float>);
  first(400);
  check_near(c.host(), expected.value, expected.bound);
}

TEST_CASE("gemm: oneDNN's products of few rows, and small ones, have the same bits on any number of threads") {
  const auto with = [](int threads, const Extents& e) {
    Cpu dev(threads);
    cpu::gemm_engines(dev) = {GemmEngine::onednn};
    check_product<float, float>(dev, Form::nt, e, 1, true, 1);
    Operands<Cpu, float> x(dev, Form::nt, e, 1);
    Matrix<Cpu, float> c(dev, e.m, e.n, 3, 2);
    kernel::gemm(dev, Form::nt, x.a.in(), x.b.in(), c.view());
    CHECK(dev.state<cpu::OneDnn>().prepared() >= 1);
    return c.host();
  };
  for (const Extents& e : {Extents{1, 2000, 700}, {8, 513, 1100}, {3, 256, 900}, {60, 40, 30}}) {
    const auto one = with(1, e);
    check_same_bits(one, with(2, e));
    check_same_bits(one, with(5, e));
  }
}

#  if defined(__x86_64__)
TEST_CASE("gemm: tiles of oneDNN's large products equal naive loops, always with the same bits") {
  const bool has_avx512 = cpu::OneDnn::has_avx512();
  if (!has_avx512) test::skipped("gemm: tiles of rows, which need AVX-512");
  for (const int threads : {1, 2, 5}) {
    if (threads != 2 && !test::effort(true, false, "gemm: tiles on one and on five threads")) continue;
    Cpu dev(threads);
    cpu::gemm_engines(dev) = {GemmEngine::onednn};
    CAPTURE(threads);
    const auto prepared_for = [&](Form form, const Extents& e, double alpha, bool accumulate, Index padding) {
      const std::size_t before = dev.state<cpu::OneDnn>().prepared();
      check_product<float, float>(dev, form, e, alpha, accumulate, padding);
      const std::size_t prepared = dev.state<cpu::OneDnn>().prepared() - before;
      Operands<Cpu, float> x(dev, form, e, padding);
      Matrix<Cpu, float> c(dev, e.m, e.n, 3, 3 * padding), again(dev, e.m, e.n, 3, 3 * padding);
      for (const auto& result : {c.view(), again.view()})
        kernel::gemm(dev, form, x.a.in(), x.b.in(), result, alpha, accumulate);
      check_same_bits(c.host(), again.host());
      return prepared;
    };
    // A product in tiles is two: one is for the last tile, which is smaller.
    const std::size_t of_rows = threads == 1 || !has_avx512 ? 1 : 2, in_tiles = threads == 1 ? 1 : 2;
    CHECK(prepared_for(Form::nt, {400 * std::max(threads, 2), 256, 128}, 1, true, 0) == of_rows);
    CHECK(prepared_for(Form::nt, {400 * std::max(threads, 2), 257, 128}, 0.5, false, 0) == of_rows);
    CHECK(prepared_for(Form::nn, {400 * std::max(threads, 2), 256, 260}, 1, true, 2) == in_tiles);
    if (threads == 2) CHECK(prepared_for(Form::nt, {768, 3088, 128}, 1, true, 1) == in_tiles);  // of columns
    if (threads == 5) CHECK(prepared_for(Form::nt, {2585, 256, 128}, 1, false, 0) == of_rows);  // the last has one row
    // Cutting does not pay: too few rows, a short inner extent, b packed in every tile.
    CHECK(prepared_for(Form::nt, {255, 256, 128}, 1, true, 0) == 1);
    CHECK(prepared_for(Form::nt, {800, 256, 127}, 1, true, 0) == 1);
    CHECK(prepared_for(Form::nn, {800, 272, 260}, 1, true, 0) == 1);
  }
}
#  endif

TEST_CASE("gemm: oneDNN packs operands where that is faster, and both of its kernels equal naive loops") {
  Cpu dev(2);
  const auto chosen = [&](Form form, const Extents& e, double alpha = 1) {
    check_product<float, float>(dev, form, e, alpha, true, 0);
    const Index a_row = form == Form::tn ? 1 : e.k, b_row = form == Form::nt ? 1 : e.n;
    return dev.state<cpu::OneDnn>().implementation({.m = e.m,
                                                    .n = e.n,
                                                    .k = e.k,
                                                    .a_row = a_row,
                                                    .a_col = form == Form::tn ? e.m : 1,
                                                    .b_row = b_row,
                                                    .b_col = form == Form::nt ? e.k : 1,
                                                    .c_row = e.n,
                                                    .alpha = static_cast<float>(alpha),
                                                    .accumulate = true,
                                                    .in = DType::f32,
                                                    .out = DType::f32});
  };
#  if defined(__x86_64__)
  const auto packs = [](const std::string& name) { return name.starts_with("gemm"); };
  CHECK(packs(chosen(Form::nn, {20, 30, 128})));
  CHECK(packs(chosen(Form::tn, {4, 1024, 128})));
  CHECK(packs(chosen(Form::nt, {768, 3072, 4})));
  // Where the processor has what oneDNN's first choice needs.
  if (cpu::OneDnn::has_avx512()) {
    for (const Index k : {127, 128}) CHECK_FALSE(packs(chosen(Form::nt, {20, 30, k})));
  } else {
    test::skipped("gemm: oneDNN's first choice of kernel, which needs AVX-512");
  }
#  endif
  // A factor that the packing kernel does not take before a sum is a scale, where there is no other kernel.
  CHECK_FALSE(chosen(Form::nn, {20, 30, 128}, 0.5).starts_with("ref"));
}

// Forms, strides and sums as modules ask for them, each with and without a factor.
TEST_CASE("gemm: oneDNN has more than plain loops for every product of float32, whatever the processor has") {
  Cpu dev(2);
  cpu::gemm_engines(dev) = {GemmEngine::onednn};
  for (const Form form : forms)
    for (const Extents& e : {Extents{64, 96, 48}, {1, 130, 64}, {200, 8, 300}, {8, 300, 200}, {33, 1, 5}})
      for (const double alpha : {1.0, 0.5})
        for (const bool accumulate : {false, true})
          for (const Index padding : {0, 3}) check_product<float, float>(dev, form, e, alpha, accumulate, padding);
  CHECK(dev.state<cpu::OneDnn>().prepared() >= 3 * 5 * 2 * 2 * 2);
  CHECK(dev.state<cpu::OneDnn>().references() == 0);
}
#endif

}  // namespace gemm_test
