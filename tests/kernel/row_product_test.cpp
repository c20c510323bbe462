#include "lora/cpu/kernels/row_product.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "support/message_of.hpp"
#include "support/random_stored.hpp"

namespace row_product_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

constexpr DType stored_types[] = {DType::f32,  DType::bf16, DType::f16,  DType::f64,  DType::q8_0, DType::q4_0,
                                  DType::q4_1, DType::q5_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};

/// y of rows of x that begin anywhere, one behind the other.
template <class T>
std::vector<float> product(Cpu& dev, const std::vector<T>& x, Index rows, const StoredView<Cpu>& w,
                           std::vector<float> y = {}) {
  const bool accumulate = !y.empty();
  y.resize(static_cast<std::size_t>(rows * w.rows()), std::nanf(""));
  kernel::row_product<Cpu, T>(dev, {x.data(), rows, w.cols()}, w, {y.data(), rows, w.rows()}, accumulate);
  return y;
}

/// Σ_j w_ij x_j, and how far a product may be from it: roundings of its sum in float and, against blocks of integers,
/// half a step of x, which is its largest value of 32 / 127.
struct Expected {
  double value = 0, bound = 0;
};
template <class T>
Expected expected(const T* x, const double* w, Index cols, bool in_blocks) {
  Expected result;
  double magnitude = 0;
  for (Index j = 0; j < cols; j += 32) {
    const Index end = std::min(cols, j + 32);
    double largest = 0, weights = 0;
    for (Index i = j; i < end; ++i) {
      const double value = static_cast<float>(x[i]);
      largest = std::max(largest, std::abs(value));
      weights += std::abs(w[i]);
      result.value += w[i] * value;
      // Minima are summed apart, so that what they add is as large as what it is subtracted from.
      magnitude += std::abs(w[i] * value);
    }
    if (in_blocks) {
      result.bound += weights * largest / 254;
      magnitude += 32 * largest *
                   *std::max_element(w + j, w + end, [](double a, double b) { return std::abs(a) < std::abs(b); });
    }
  }
  result.bound += static_cast<double>(cols + 64) * 0x1p-24 * std::abs(magnitude) + 1e-30;
  return result;
}

}  // namespace

TEST_CASE("row_product: every stored type, any number of rows, on 1 to 3 threads, with the same bits") {
  for (const DType dtype : stored_types) {
    CAPTURE(name_of(dtype));
    const Index unit = block_elements(dtype);
    for (const Index cols : {unit, 2 * unit, unit == 1 ? Index{37} : 3 * unit})
      for (const Index out : {1, 2, 7, 65}) {
        const Stored stored = random_matrix(dtype, out * cols);
        const StoredView<Cpu> w(stored.bytes.data(), dtype, out, cols);
        for (const Index rows : {1, 2, 3, 4, 9}) {
          CAPTURE(cols);
          CAPTURE(out);
          CAPTURE(rows);
          const auto x = random_values<float>(rows * cols, 7, -2, 2);
          Cpu one(1);
          const auto y = product(one, x, rows, w);
          Index wrong = 0;
          for (Index r = 0; r < rows; ++r)
            for (Index i = 0; i < out; ++i) {
              const auto [value, bound] =
                  expected(x.data() + r * cols, stored.values.data() + i * cols, cols, unit > 1);
              wrong += !(std::abs(static_cast<double>(y[static_cast<std::size_t>(r * out + i)]) - value) <= bound);
            }
          CHECK(wrong == 0);
          for (int threads = 2; threads <= 3; ++threads) {
            Cpu dev(threads);
            CHECK(product(dev, x, rows, w) == y);
          }
        }
      }
  }
}

TEST_CASE("row_product: bits depend neither on the rows of x beside one, nor on the rows of a weight") {
  Cpu dev(2);
  constexpr Index most = 37, most_out = 40;
  for (const DType dtype : stored_types) {
    CAPTURE(name_of(dtype));
    const Index unit = block_elements(dtype);
    for (const Index cols : {unit, unit == 1 ? 37 : 3 * unit, unit == 1 ? 512 : unit == 32 ? 1120 : 2 * unit}) {
      CAPTURE(cols);
      const Stored stored = random_matrix(dtype, most_out * cols);
      const auto x = random_values<float>(most * cols, 8, -2, 2);
      std::vector<std::vector<float>> alone;
      for (Index r = 0; r < most; ++r)
        alone.push_back(product(dev, std::vector<float>(x.begin() + r * cols, x.begin() + (r + 1) * cols), 1,
                                {stored.bytes.data(), dtype, most_out, cols}));
      Index wrong = 0;
      for (Index out = 1; out <= most_out; ++out)
        for (const Index rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 37}) {
          if (rows == most && out % 13 != 0) continue;
          const auto all = product(dev, x, rows, {stored.bytes.data(), dtype, out, cols});
          for (Index r = 0; r < rows; ++r)
            wrong += !std::equal(all.begin() + r * out, all.begin() + (r + 1) * out,
                                 alone[static_cast<std::size_t>(r)].begin());
        }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("row_product: several weights of one x, however each is stored, give what each gives alone") {
  constexpr Index cols = 256, rows = 3;
  const auto x = random_values<float>(rows * cols, 10, -2, 2);
  const auto make = [](DType dtype, Index out) { return random_matrix(dtype, out * cols); };
  const Stored stored[] = {make(DType::q4_k, 9), make(DType::q6_k, 1), make(DType::bf16, 6), make(DType::f32, 33)};
  const DType dtypes[] = {DType::q4_k, DType::q6_k, DType::bf16, DType::f32};
  constexpr Index outs[] = {9, 1, 6, 33};
  for (int threads = 1; threads <= 3; ++threads)
    for (const bool accumulate : {false, true}) {
      Cpu dev(threads);
      std::vector<std::vector<float>> products, alone;
      std::vector<cpu::detail::RowTerm> terms;
      for (std::size_t i = 0; i < std::size(outs); ++i) {
        const StoredView<Cpu> w(stored[i].bytes.data(), dtypes[i], outs[i], cols);
        std::vector<float> before;
        if (accumulate) before.assign(static_cast<std::size_t>(rows * outs[i]), 0.25f);
        alone.push_back(product(dev, x, rows, w, before));
        before.resize(static_cast<std::size_t>(rows * outs[i]), std::nanf(""));
        products.push_back(std::move(before));
      }
      for (std::size_t i = 0; i < std::size(outs); ++i)
        terms.push_back(
            {StoredView<Cpu>(stored[i].bytes.data(), dtypes[i], outs[i], cols), {products[i].data(), rows, outs[i]}});
      kernel::row_products<Cpu, float>(dev, {x.data(), rows, cols}, terms, accumulate);
      CHECK(products == alone);
    }
}

TEST_CASE("row_product: it adds where it is told to, and rounds x of bfloat16 and float16 no further") {
  Cpu dev(2);
  for (const DType dtype : {DType::bf16, DType::q8_0, DType::q4_k})
    for (const Index rows : {2, 6}) {
      constexpr Index cols = 256, out = 5;
      const Stored stored = random_matrix(dtype, out * cols);
      const StoredView<Cpu> w(stored.bytes.data(), dtype, out, cols);
      const auto check = [&]<class T>(T) {
        const auto x = random_values<T>(rows * cols, 9, -2, 2);
        std::vector<float> wide;
        for (const T& value : x) wide.push_back(static_cast<float>(value));
        const auto y = product(dev, x, rows, w);
        CHECK(y == product(dev, wide, rows, w));
        const std::vector<float> before(y.size(), 0.5f);
        auto sum = y;
        for (float& value : sum) value = 0.5f + value;
        CHECK(product(dev, x, rows, w, before) == sum);
      };
      check(bf16());
      check(f16());
      check(0.0f);
    }
}

TEST_CASE("row_update: scaled products of rows are added to them, however a factor is stored, with the same bits") {
  constexpr Index counts[] = {1, 40, 128, 20000}, rank = 5;  // as many as several threads are woken for
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Index rows : {1, 3}) {
      CAPTURE(name_of(dtype));
      std::vector<Stored> factors;
      for (const Index count : counts) factors.push_back(random_matrix(dtype, rank * count));
      const auto h = random_values<float>(rows * rank * 4, 11, -2, 2);  // of all factors, side by side
      const float scales[] = {0.5f, 1, -2, 3};
      std::vector<std::vector<float>> first;
      for (int threads = 1; threads <= 3; ++threads) {
        Cpu dev(threads);
        std::vector<std::vector<float>> y;
        for (const Index count : counts) y.push_back(random_values<float>(rows * count, 12, -2, 2));
        const auto before = y;
        std::vector<cpu::detail::RowUpdate> terms;
        for (std::size_t i = 0; i < 4; ++i)
          terms.push_back({{h.data() + static_cast<Index>(i) * rank, rows, rank, 4 * rank},
                           scales[i],
                           {factors[i].bytes.data(), dtype, rank, counts[i]},
                           {y[i].data(), rows, counts[i]}});
        kernel::row_updates<Cpu, float>(dev, terms);
        if (threads > 1) {
          CHECK(y == first);
          continue;
        }
        first = y;
        Index wrong = 0;
        for (std::size_t i = 0; i < 4; ++i)
          for (Index n = 0; n < rows; ++n)
            for (Index c = 0; c < counts[i]; ++c) {
              double expected = before[i][static_cast<std::size_t>(n * counts[i] + c)], size = std::abs(expected);
              for (Index r = 0; r < rank; ++r) {
                const double product = static_cast<double>(scales[i]) *
                                       h[static_cast<std::size_t>(n * 4 * rank + static_cast<Index>(i) * rank + r)] *
                                       factors[i].values[static_cast<std::size_t>(r * counts[i] + c)];
                expected += product;
                size += std::abs(product);
              }
              // One rounding of each scaled h and one of each sum.
              const double bound = 2 * rank * 0x1p-24 * size;
              wrong += !(std::abs(y[i][static_cast<std::size_t>(n * counts[i] + c)] - expected) <= bound);
            }
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("row_update: a factor in blocks of integers, and shapes that don't fit, are refused") {
  Cpu dev(1);
  const std::vector<std::byte> bytes(4096);
  const std::vector<float> h(8);
  std::vector<float> y(64);
  const auto message = [&](DType dtype, Index rows, Index out) {
    const cpu::detail::RowUpdate term{{h.data(), 1, 2}, 1, {bytes.data(), dtype, rows, 32}, {y.data(), 1, out}};
    return message_of<Error>([&] { kernel::row_updates<Cpu, float>(dev, {&term, 1}); });
  };
  CHECK(message(DType::q8_0, 2, 32) == "[cpu] a factor stored as Q8_0 is not one that rows are updated by");
  CHECK(message(DType::f32, 3, 32).starts_with("[row_update] h"));
  CHECK(message(DType::f32, 2, 33).starts_with("[row_update] y"));
}

TEST_CASE("row_product: a row of zeros gives zeros, and a value that is not finite reaches the whole row") {
  Cpu dev(1);
  for (const DType dtype : stored_types) {
    CAPTURE(name_of(dtype));
    constexpr Index cols = 256, out = 3;
    const Stored stored = random_matrix(dtype, out * cols);
    const StoredView<Cpu> w(stored.bytes.data(), dtype, out, cols);
    std::vector<float> x(cols, 0.0f);
    CHECK(product(dev, x, 1, w) == std::vector<float>(out, 0.0f));
    for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      x[100] = value;
      for (const float y : product(dev, x, 1, w)) CHECK_FALSE(std::isfinite(y));
    }
  }
}

TEST_CASE("row_product: weights stored as integers, and shapes that don't fit, are refused") {
  Cpu dev(1);
  const std::vector<std::byte> bytes(64);
  const std::vector<float> x(8);
  std::vector<float> y(4);
  const auto message = [&](DType dtype, Index cols, Index out) {
    return message_of<Error>([&] {
      kernel::row_product<Cpu, float>(dev, {x.data(), 1, 4}, StoredView<Cpu>(bytes.data(), dtype, 4, cols),
                                      {y.data(), 1, out});
    });
  };
  CHECK(message(DType::i8, 4, 4) == "[cpu] a weight stored as I8 can't be read as numbers");
  CHECK(message(DType::f32, 3, 4).find("[row_product] x") == 0);
  CHECK(message(DType::f32, 4, 3).find("[row_product] y") == 0);
}

}  // namespace row_product_test
