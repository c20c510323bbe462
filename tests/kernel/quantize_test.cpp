#include "lora/cpu/kernels/quantize.hpp"

#include <doctest/doctest.h>

#include "lora/io/formats/gguf.hpp"
#include "support/backends.hpp"
#include "support/blocks.hpp"
#include "support/effort.hpp"
#include "support/matrix.hpp"
#include "support/random_stored.hpp"

namespace quantize_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

}  // namespace

TEST_CASE("quantize: every stored type decodes to its exact values, rounded once") {
  each_backend_and_type([]<class D, class T>() {
    struct Extents {
      Index rows, blocks, padding;
    };
    for (const int threads : is_cpu<D> ? std::vector{1, 3} : std::vector{2})
      for (const DType dtype : weight_types)
        for (const Extents& e : {Extents{1, 1, 0}, Extents{0, 2, 0}, Extents{5, 3, 1}, Extents{301, 2, 0}}) {
          if (threads == 1 && e.rows > 100 && !effort(true, false, "quantize: many rows on one thread")) continue;
          if (!D::decodes(dtype)) continue;
          const Index cols = e.blocks * block_elements(dtype) + (block_elements(dtype) == 1 ? 4 : 0);
          const Stored stored = random_matrix(dtype, e.rows * cols);
          D dev(threads);
          Matrix<D, T> y(dev, e.rows, cols, 7, e.padding);
          const auto bytes = as_read_by<D>(stored.bytes, dtype, cols);
          kernel::decode(dev, StoredMatrix<D>(dev, bytes, dtype, e.rows, cols).view(), y.view());
          std::vector<double> bound;
          // Rounded to the accumulator's type and to T; T's own rounding is none where it holds the value.
          for (const double value : stored.values)
            bound.push_back(std::fabs(value) * (roundoff<T> + (std::is_same_v<T, double> ? 0 : 0x1p-24)));
          CAPTURE(name_of(dtype));
          check_near(y.host(), stored.values, bound);
          if (dtype == dtype_of<T>) {
            const auto values = y.host();
            CHECK((values.empty() || std::memcmp(values.data(), stored.bytes.data(), stored.bytes.size()) == 0));
          }
        }
  });
}

TEST_CASE("quantize: blocks of every type are the numbers that the gguf library makes of them, bit for bit") {
  const auto file = io::Gguf::open(LORA_FIXTURES "/blocks.gguf");  // by tests/make/blocks.py
  each_backend([&]<class D>() {
    if constexpr (!reads_files<D>) return;
    D dev(1);
    std::size_t types = 0;
    for (const DType dtype : weight_types) {
      if (block_elements(dtype) == 1) continue;
      CAPTURE(name_of(dtype));
      const auto *const stored = file.find(name_of(dtype)), *const reference =
                                                                file.find(concat(name_of(dtype), ".values"));
      REQUIRE((stored != nullptr && reference != nullptr));
      REQUIRE(stored->dtype == dtype);
      const Index rows = stored->shape[0], cols = stored->shape[1];
      Matrix<D, float> y(dev, rows, cols, 1);
      const std::vector<std::byte> bytes(stored->bytes.begin(), stored->bytes.end());
      kernel::decode(dev, StoredMatrix<D>(dev, bytes, dtype, rows, cols).view(), y.view());
      std::vector<float> expected(static_cast<std::size_t>(rows * cols));
      REQUIRE(reference->bytes.size() == expected.size() * sizeof(float));
      std::memcpy(expected.data(), reference->bytes.data(), reference->bytes.size());
      check_same_bits(y.host(), expected);
      ++types;
    }
    CHECK(file.tensors().size() == 2 * types);
  });
}

TEST_CASE("quantize: a low-rank update is added to the decoded values") {
  const auto check = []<class D, class A>() {
    struct Extents {
      Index rows, cols, rank, padding;
    };
    for (const int threads : is_cpu<D> ? std::vector{1, 3} : std::vector{2})
      for (const Extents& e : {Extents{1, 3, 1, 0}, Extents{0, 32, 2, 0}, Extents{8, 64, 5, 3}, Extents{43, 37, 16, 1},
                               Extents{64, 96, 0, 0}, Extents{301, 80, 9, 0}}) {
        const Stored w = random_stored<bf16>(e.rows * e.cols, 2);
        D dev(threads);
        Matrix<D, A> b(dev, e.rank, e.rows, 3, e.padding), a(dev, e.rank, e.cols, 4, 2 * e.padding);
        Matrix<D, A> y(dev, e.rows, e.cols, 7, e.padding);
        kernel::decode_with_update<D, A>(dev, StoredMatrix<D>(dev, w.bytes, DType::bf16, e.rows, e.cols).view(), b.in(),
                                         a.in(), y.view());
        const auto left = b.host(), right = a.host();
        std::vector<double> expected = w.values, bound;
        for (Index i = 0; i < e.rows; ++i)
          for (Index j = 0; j < e.cols; ++j) {
            double& sum = expected[static_cast<std::size_t>(i * e.cols + j)];
            double size = std::fabs(sum);
            for (Index k = 0; k < e.rank; ++k) {
              const double term = real(left[static_cast<std::size_t>(k * e.rows + i)]) *
                                  real(right[static_cast<std::size_t>(k * e.cols + j)]);
              sum += term;
              size += std::fabs(term);
            }
            // Each of the R terms is rounded at most twice, each partial sum once.
            bound.push_back(2 * static_cast<double>(e.rank + 1) * size * roundoff<A>);
          }
        CAPTURE(e.rows);
        CAPTURE(e.cols);
        check_near(y.host(), expected, bound);
      }
  };
  SUBCASE("cpu, f64") { check.operator()<Cpu, double>(); }
  each_backend([&]<class D>() { check.operator()<D, float>(); });
}

TEST_CASE("quantize: half precision's whole range, and bytes of any alignment") {
  each_backend([]<class D>() {
    D dev(1);
    std::vector<std::byte> bytes;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) put(bytes, static_cast<std::uint16_t>(bits));
    Matrix<D, float> y(dev, 256, 256, 1);
    kernel::decode(dev, StoredMatrix<D>(dev, bytes, DType::f16, 256, 256, reads_files<D> ? 1 : 0).view(), y.view());
    const auto values = y.host();
    for (std::size_t bits = 0; bits < 0x10000; ++bits) {
      f16 half;
      half.bits = static_cast<std::uint16_t>(bits);
      const auto expected = static_cast<float>(half);
      if (std::isnan(expected)) {
        REQUIRE(std::isnan(values[bits]));
      } else {
        REQUIRE(std::memcmp(&values[bits], &expected, sizeof expected) == 0);
      }
    }
  });
}

TEST_CASE("quantize: complex numbers take a stored value as their real part") {
  Cpu dev(1);
  const std::vector<float> stored = {1.5f, -2};
  Matrix<Cpu, std::complex<double>> y(dev, 1, 2, std::vector<std::complex<double>>(2));
  kernel::decode(dev, StoredView<Cpu>(stored.data(), DType::f32, 1, 2), y.view());
  CHECK(y.host() == std::vector<std::complex<double>>{1.5, -2});
}

TEST_CASE("quantize: integers are no weights, and shapes must agree") {
  each_backend([]<class D>() {
    D dev(1);
    Matrix<D, float> y(dev, 1, 32, 1);
    const StoredMatrix<D> integers(dev, std::vector<std::byte>(256), DType::i64, 1, 32),
        blocks(dev, std::vector<std::byte>(68), DType::q8_0, 1, 64);
    // Where kernels run later, so does the error come.
    CHECK_THROWS_AS((kernel::decode(dev, integers.view(), y.view()), dev.synchronize()), FormatError);
    CHECK_THROWS_AS(kernel::decode(dev, blocks.view(), y.view()), ShapeError);
  });
}

}  // namespace quantize_test
