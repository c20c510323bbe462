#include "lora/cpu/kernels/embedding.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "lora/cpu/kernels/rope.hpp"
#include "support/backends.hpp"
#include "support/blocks.hpp"
#include "support/matrix.hpp"

namespace embedding_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

void append(std::vector<std::byte>& bytes, const auto& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

/// A table of `rows` rows as a file would hold it, and its values.
struct Table {
  std::vector<std::byte> bytes;
  std::vector<double> values;
};

Table make_table(DType dtype, Index rows, Index cols) {
  Table table;
  Random random(42);
  const auto uniform = [&] { return static_cast<double>(random.uniform()) * 2 - 1; };
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < cols; j += block_elements(dtype)) {
      const auto number = [&]<class T>(T value) {
        append(table.bytes, value);
        table.values.push_back(real(value));
      };
      switch (dtype) {
        case DType::f32:
          number(rounded<float>(uniform()));
          break;
        case DType::bf16:
          number(rounded<bf16>(uniform()));
          break;
        case DType::f64:
          number(uniform());
          break;
        case DType::f16:
          number(f16(static_cast<float>(uniform())));
          break;
        default: {
          const Block block = random_block(dtype, random);
          block.append_to(table.bytes);
          for (std::size_t k = 0; k < block.quanta.size(); ++k) table.values.push_back(block.value(k));
        }
      }
    }
  }
  return table;
}

}  // namespace

TEST_CASE("embedding: rows come out as the table stores them, in every encoding") {
  each_backend_and_type([]<class D, class T>() {
    D dev(2);
    for (const DType dtype : weight_types) {
      CAPTURE(name_of(dtype));
      for (const Index cols : {Index{32}, Index{96}, Index{33}, Index{512}}) {
        if (cols % block_elements(dtype) != 0) continue;
        if (!reads_files<D> && !is_plain(dtype)) continue;
        const Index vocabulary = 7;
        Table table = make_table(dtype, vocabulary, cols);
        // Files align tensors as they like: an odd place must do as well.
        for (const Index offset : {0, 1}) {
          if (!reads_files<D> && offset != 0) continue;
          const StoredMatrix<D> stored(dev, table.bytes, dtype, vocabulary, cols, offset);
          const std::vector<std::int32_t> picked{6, 0, 3, 3, 1};
          Matrix<D, std::int32_t> tokens(dev, 1, 5, picked);
          Matrix<D, T> y(dev, 5, cols, 1, 3);
          kernel::embedding(dev, stored.view(), tokens.in(), y.view());
          std::vector<double> expected, bound;
          for (const std::int32_t token : picked)
            for (Index j = 0; j < cols; ++j) {
              const double value = table.values[static_cast<std::size_t>(token * cols + j)];
              expected.push_back(value);
              // Rounded to Accum<T> and to T.
              bound.push_back((1.01 * roundoff<T> + roundoff<Accum<T>>)*std::fabs(value));
            }
          check_near(y.host(), expected, bound);
        }
      }
    }
  });
}

TEST_CASE("embedding: a table of the same type is copied bit for bit") {
  each_backend([]<class D>() {
    D dev(1);
    Matrix<D, bf16> table(dev, 5, 48, 1), y(dev, 3, 48, 2);
    Matrix<D, std::int32_t> tokens(dev, 1, 3, std::vector<std::int32_t>{4, 4, 1});
    kernel::embedding(dev, StoredView<D>(table.in().data(), DType::bf16, 5, 48), tokens.in(), y.view());
    const auto all = table.host();
    std::vector<bf16> expected(all.begin() + 4 * 48, all.end());
    expected.insert(expected.end(), all.begin() + 4 * 48, all.end());
    expected.insert(expected.end(), all.begin() + 48, all.begin() + 2 * 48);
    check_same_bits(y.host(), expected);
  });
}

TEST_CASE("embedding: the table's gradient adds the rows of a token in their order, to what is there") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    for (const Index cols : {Index{1}, Index{64}, Index{200}}) {
      CAPTURE(cols);
      const Index vocabulary = 9, n = 83;
      std::vector<std::int32_t> picked;
      for (Index i = 0; i < n; ++i) picked.push_back(static_cast<std::int32_t>(i * i % 7));  // some often, 8 never
      for (const int threads : {1, 2, 3}) {
        D dev(threads);
        Matrix<D, std::int32_t> tokens(dev, 1, n, picked);
        Matrix<D, T> dy(dev, n, cols, 1, 3);
        Matrix<D, A> dtable(dev, vocabulary, cols, 2, 1);
        auto expected = dtable.host();
        std::vector<double> size = doubles(expected);
        for (double& each : size) each = std::fabs(each);
        kernel::embedding_backward(dev, tokens.in(), dy.in(), dtable.view());
        const auto rows = dy.host();
        for (Index i = 0; i < n; ++i)
          for (Index j = 0; j < cols; ++j) {
            const auto at = static_cast<std::size_t>(picked[static_cast<std::size_t>(i)] * cols + j);
            expected[at] += static_cast<A>(rows[static_cast<std::size_t>(i * cols + j)]);
            size[at] += std::fabs(real(rows[static_cast<std::size_t>(i * cols + j)]));
          }
        if (rounds_parts<D> == 0) {
          check_same_bits(dtable.host(), expected);
        } else {  // the rows' sum is added as one
          for (double& each : size) each *= 2 * n * roundoff<A>;
          check_near(dtable.host(), doubles(expected), size);
        }
      }
    }
    D dev(1);
    Matrix<D, std::int32_t> two(dev, 1, 2, std::vector<std::int32_t>{0u, 1u});
    Matrix<D, T> dy(dev, 3, 4, 1);
    Matrix<D, A> dtable(dev, 5, 4, 2);
    CHECK_THROWS_AS(kernel::embedding_backward(dev, two.in(), dy.in(), dtable.view()), ShapeError);
  });
}

TEST_CASE("embedding: the noise is the one that the contract defines, and depends on no neighbor") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    const kernel::EmbeddingNoise rule{5, 0x0123456789ABCDEFu};
    const std::vector<kernel::Segment> segments{{0, 7}, {7, 8}, {8, 8}, {8, 21}};
    std::vector<std::int32_t> at, where;
    for (const kernel::Segment& segment : segments)
      for (Index i = 0; i < segment.size(); ++i) {
        at.push_back(static_cast<std::int32_t>(3000 + segment.begin));
        where.push_back(static_cast<std::int32_t>(i));
      }
    for (const Index cols : {Index{1}, Index{6}, Index{64}, Index{700}})
      for (const int threads : {1, 3}) {
        CAPTURE(cols);
        D dev(threads);
        Matrix<D, std::int32_t> places(dev, 1, 21, at), positions(dev, 1, 21, where);
        Matrix<D, T> y(dev, 21, cols, 1, 5);
        const auto before = y.host();
        std::vector<double> expected, bound;
        double largest = 0;
        for (const kernel::Segment& segment : segments)
          for (Index row = segment.begin; row < segment.end; ++row)
            for (Index j = 0; j < cols; ++j) {
              const auto i = static_cast<std::size_t>(row);
              const auto words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(where[i]),
                                         static_cast<std::uint32_t>(at[i]), 0},
                                        rule.key);
              const double u = (words[static_cast<std::size_t>(j % 4)] >> 8) * 0x1p-23 - 1;
              const double noise = rule.alpha / std::sqrt(static_cast<double>(segment.size() * cols)) * u;
              const double value = real(before[static_cast<std::size_t>(row * cols + j)]) + noise;
              largest = std::max(largest, std::fabs(u));
              expected.push_back(value);
              bound.push_back(3 * roundoff<A> * (std::fabs(noise) + std::fabs(value)) +
                              1.01 * roundoff<T> * std::fabs(value));
            }
        CHECK(largest > (cols > 60 ? 0.99 : 0.5));
        kernel::embedding_noise<D, T>(dev, rule, segments, places.in(), positions.in(), y.view());
        check_near(y.host(), expected, bound);
      }
    D dev(1);
    Matrix<D, std::int32_t> two(dev, 1, 2, std::vector<std::int32_t>{0u, 1u});
    Matrix<D, T> y(dev, 3, 4, 1);
    CHECK_THROWS_AS((kernel::embedding_noise<D, T>(dev, rule, {}, two.in(), two.in(), y.view())), ShapeError);
    Matrix<D, T> rows(dev, 2, 4, 1);
    const std::vector<kernel::Segment> parts{{0, 1}, {1, 2, 0}};
    CHECK_THROWS_WITH_AS((kernel::embedding_noise<D, T>(dev, rule, parts, two.in(), two.in(), rows.view())),
                         "[embedding_noise] segment 1 goes on from segment 0; noise is a whole sequence's",
                         ConfigError);
  });
}

TEST_CASE("embedding: indices outside are errors that name the first of them, where the host can read them") {
  using D = cpu::Device;
  D dev(2);
  const StoredMatrix<D> table(dev, std::vector<std::byte>(48), DType::f32, 3, 4);
  Matrix<D, float> y(dev, 2, 4, 1), x(dev, 3, 4, 2);
  for (const std::int32_t wrong : {3, -1, std::numeric_limits<std::int32_t>::max()}) {
    CAPTURE(wrong);
    Matrix<D, std::int32_t> index(dev, 1, 2, std::vector<std::int32_t>{2, wrong});
    const auto told = [&](std::string_view start) {
      return concat("[", start, " 1 is ", wrong, ", but there are 3 rows");
    };
    CHECK_THROWS_WITH_AS(kernel::embedding(dev, table.view(), index.in(), y.view()), told("embedding] token").c_str(),
                         ShapeError);
    CHECK_THROWS_WITH_AS((kernel::embedding_backward<D, float>(dev, index.in(), y.in(), x.view())),
                         told("embedding_backward] token").c_str(), ShapeError);
    CHECK_THROWS_WITH_AS((kernel::gather_rows<D, float>(dev, x.in(), index.in(), y.view())),
                         told("gather_rows] index").c_str(), ShapeError);
    CHECK_THROWS_WITH_AS((kernel::scatter_rows<D, float>(dev, y.in(), index.in(), x.view())),
                         told("scatter_rows] index").c_str(), ShapeError);
    Matrix<D, float> angles(dev, 3, 2, 3);
    CHECK_THROWS_WITH_AS((kernel::rope<D, float>(dev, y.in(), angles.in(), angles.in(), index.in(),
                                                 kernel::Rotation::forward, y.view())),
                         told("rope] position").c_str(), ShapeError);
  }
}

TEST_CASE("embedding: no tokens, wrong shapes and tables of integers") {
  each_backend([]<class D>() {
    D dev(1);
    const StoredMatrix<D> table(dev, std::vector<std::byte>(48), DType::f32, 3, 4);
    const StoredMatrix<D> integers(dev, std::vector<std::byte>(48), DType::i32, 3, 4);
    Matrix<D, std::int32_t> none(dev, 1, 0, std::vector<std::int32_t>{}),
        two(dev, 1, 2, std::vector<std::int32_t>{0u, 1u});
    Matrix<D, float> empty(dev, 0, 4, 1), y(dev, 2, 4, 1), narrow(dev, 2, 3, 1), three(dev, 3, 4, 1);
    kernel::embedding(dev, table.view(), none.in(), empty.view());
    CHECK_THROWS_AS(kernel::embedding(dev, table.view(), two.in(), narrow.view()), ShapeError);
    CHECK_THROWS_AS(kernel::embedding(dev, table.view(), two.in(), three.view()), ShapeError);
    // Where kernels run later, so does the error come.
    CHECK_THROWS_AS((kernel::embedding(dev, integers.view(), two.in(), y.view()), dev.synchronize()), FormatError);
  });
}

}  // namespace embedding_test
