// Views that begin between places of 32 bytes, or have gaps, where operators want neither.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/matrix.hpp"
#include "support/message_of.hpp"
#include "support/stand_in.hpp"

namespace ascend_aligned_test {

namespace {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;

/// Columns [first, first + cols) of a matrix of 5 rows and 40 columns, or all of its first row from `first` on.
template <class T>
struct Part {
  Part(Npu& dev, Index first_column, Index columns)
      : whole(dev, 5, 40, 7), first(first_column), cols(columns), rows(columns > 0 ? 5 : 1) {
    view = cols > 0 ? whole.view().col_slice(first, cols) : whole.view().row_slice(0, 1).col_slice(first, 40 - first);
    if (cols == 0) cols = 40 - first;
    before = whole.host();
  }
  /// What it holds, row by row.
  std::vector<T> values() {
    const std::vector<T> all = whole.host();
    std::vector<T> part;
    for (Index i = 0; i < rows; ++i)
      part.insert(part.end(), all.begin() + i * 40 + first, all.begin() + i * 40 + first + cols);
    return part;
  }
  /// Fails if anything else of the matrix was written.
  void check_rest() {
    const std::vector<T> all = whole.host();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Index row = static_cast<Index>(i) / 40, column = static_cast<Index>(i) % 40;
      if (row < rows && column >= first && column < first + cols) continue;
      CAPTURE(i);
      REQUIRE(real(all[i]) == real(before[i]));
    }
  }

  Matrix<Npu, T> whole;
  Index first, cols, rows;
  View<Npu, T> view;
  std::vector<T> before;
};

template <class T>
void check(Npu& dev, Index first, Index cols) {
  CAPTURE(first);
  CAPTURE(cols);
  Part<T> x(dev, first, cols), y(dev, first, cols), sum(dev, first, cols);
  const std::vector<T> values = x.values();
  const bool begins = static_cast<std::size_t>(first) * sizeof(T) % 32 == 0;
  CHECK((ascend::misalignment(x.view) == 0) == begins);
  {
    const Arena::Scope scope(dev.arena());
    const View<Npu, const T> in(x.view), begin = ascend::aligned(dev, in), tight = ascend::compact(dev, in);
    CHECK(ascend::misalignment(begin) == 0);
    CHECK(ascend::misalignment(tight) == 0);
    CHECK(tight.contiguous());
    CHECK((begin.data() == in.data()) == begins);
    check_same_bits(to_host(dev, begin), values);
    check_same_bits(to_host(dev, tight), values);
  }
  const Index n = x.view.rows(), width = x.view.cols();
  for (const bool tight : {false, true}) {
    ascend::write_aligned(dev, y.view, false, tight, [&](View<Npu, T> place) {
      CHECK(ascend::misalignment(place) == 0);
      CHECK((place.contiguous() || !tight));
      CHECK(place.rows() == n);
      CHECK(place.cols() == width);
      kernel::fill(dev, place, tight ? 2.0 : 3.0);
    });
    CHECK(doubles(y.values()) == std::vector<double>(values.size(), tight ? 2.0 : 3.0));
    y.check_rest();
    const std::vector<T> former = sum.values();
    ascend::write_aligned(dev, sum.view, true, tight,
                          [&](View<Npu, T> place) { kernel::convert(dev, View<Npu, const T>(place), place, 2.0); });
    std::vector<double> doubled = doubles(former);
    for (double& value : doubled) value *= 2;
    CHECK(doubles(sum.values()) == doubled);
    sum.check_rest();
  }
  // As kernels use it.
  Part<T> scaled(dev, first, cols);
  kernel::convert(dev, View<Npu, const T>(x.view), scaled.view, 0.5, true);
  std::vector<double> expected = doubles(x.values());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = real(scaled.before[static_cast<std::size_t>(static_cast<Index>(i) / width * 40 + first +
                                                                     static_cast<Index>(i) % width)]);
    expected[i] = real(rounded<T>(value + 0.5 * expected[i]));
  }
  CHECK(doubles(scaled.values()) == expected);
  scaled.check_rest();
}

}  // namespace

TEST_CASE("ascend aligned: parts of matrices are read and written wherever they begin, and nothing beside them") {
  on_stand_in([] {
    Npu dev;
    for (const Index first : {0, 1, 3, 8, 13, 16, 32})
      for (const Index cols : {0, 1, 5, 8}) {
        check<float>(dev, first, cols);
        check<bf16>(dev, first, cols);
      }
  });
}

TEST_CASE("ascend aligned: rows that leave no room for what is before them are refused") {
  on_stand_in([] {
    Npu dev;
    Matrix<Npu, float> whole(dev, 1, 64, 7);
    const View<Npu, float> view(whole.view().data() + 3, 4, 9, 10);  // 3 before, and 1 between the rows
    const auto refused = [&](const auto& f) {
      CHECK(message_of<ShapeError>(f) ==
            "[ascend] rows of 9 float32, with a stride of 10, begin 3 elements behind an address aligned to 32 bytes; "
            "expected as many between "
            "the rows");
    };
    refused([&] { ascend::write_aligned(dev, view, false, false, [](View<Npu, float>) {}); });
    refused([&] {
      const Arena::Scope scope(dev.arena());
      (void)ascend::aligned(dev, View<Npu, const float>(view));
    });
  });
}

}  // namespace ascend_aligned_test
