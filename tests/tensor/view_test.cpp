#include "lora/tensor/view.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "lora/tensor/stored.hpp"
#include "support/process.hpp"

namespace view_test {

namespace {

using namespace lora;

struct Host {};  // views need no device to exist
struct Readable {
  static constexpr bool reads_host_memory = true;
};
using Matrix = View<Host, int>;

std::vector<int> numbers(int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace

TEST_CASE("view: rows, columns, stride and slices") {
  auto values = numbers(24);
  const Matrix view(values.data(), 4, 5, 6);
  CHECK(view.size() == 20);
  CHECK(view.shape() == Shape{4, 5});
  CHECK(view.row(2)[3] == 15);
  CHECK_FALSE(view.contiguous());
  CHECK_FALSE(view.empty());

  const Matrix rows = view.row_slice(1, 2);
  CHECK(rows.shape() == Shape{2, 5});
  CHECK(rows.stride() == 6);
  CHECK(rows.row(1)[0] == 12);
  const Matrix cols = view.col_slice(2, 3);
  CHECK(cols.shape() == Shape{4, 3});
  CHECK(cols.row(3)[2] == 22);
  CHECK(view.row_slice(4, 0).rows() == 0);
  CHECK(view.row_slice(1, 1).contiguous());
}

TEST_CASE("view: flat, vectors and what is empty") {
  auto values = numbers(12);
  const Matrix view(values.data(), 3, 4);
  CHECK(view.contiguous());
  CHECK(view.flat().shape() == Shape{1, 12});
  CHECK(view.flat().row(0)[11] == 11);
  CHECK(Matrix(values.data(), 12).shape() == Shape{1, 12});
  CHECK(Matrix().empty());
  CHECK(Matrix().size() == 0);
}

TEST_CASE("view: what may be written may be read, not the other way round") {
  auto values = numbers(4);
  const Matrix view(values.data(), 2, 2);
  const View<Host, const int> read = view;
  CHECK(read.row(1)[1] == 3);
  static_assert(std::is_convertible_v<Matrix, View<Host, const int>>);
  static_assert(!std::is_convertible_v<View<Host, const int>, Matrix>);
}

TEST_CASE("view: a wrong shape is named with its operation") {
  auto values = numbers(4);
  const Matrix view(values.data(), 2, 2);
  expect_shape("op", "x", view, 2, 2);
  CHECK_THROWS_WITH_AS(expect_shape("op", "x", view, 2, 3), "[op] x is (2, 2) but (2, 3) was expected", ShapeError);
  CHECK_THROWS_AS(expect_shape("op", "x", view, 1, 2), ShapeError);
}

TEST_CASE("view: a stored matrix knows its rows in bytes") {
  std::vector<std::byte> bytes(4 * 68 + 1);
  const StoredView<Host> blocks(bytes.data(), DType::q8_0, 4, 64);
  CHECK(blocks.row_bytes() == 68);
  CHECK(blocks.bytes() == 4 * 68);
  CHECK(blocks.row_slice(2, 2).data() == bytes.data() + 2 * 68);
  CHECK(blocks.row_slice(2, 2).shape() == Shape{2, 64});
  CHECK_FALSE(blocks.is<float>());
  CHECK_THROWS_WITH_AS(StoredView<Host>(bytes.data(), DType::q4_0, 1, 33),
                       "[stored] rows of 33 elements are no whole blocks of Q4_0", ShapeError);
}

TEST_CASE("view: stored values are read in place only where type and alignment allow it") {
  std::vector<float> values(8, 1.5f);
  const StoredView<Host> aligned(values.data(), DType::f32, 2, 4);
  CHECK(aligned.is<float>());
  CHECK_FALSE(aligned.is<bf16>());
  CHECK_FALSE(aligned.is<double>());
  CHECK(aligned.as<float>().row(1)[3] == 1.5f);
  const auto* const odd = reinterpret_cast<const std::byte*>(values.data()) + 1;
  CHECK_FALSE(StoredView<Host>(odd, DType::f32, 1, 4).is<float>());
}

TEST_CASE("view: slices outside, and one row of rows that lie apart, are errors that show both") {
  auto values = numbers(12);
  const Matrix view(values.data(), 3, 4);
  constexpr Index most = std::numeric_limits<Index>::max();
  CHECK_THROWS_WITH_AS((void)view.row_slice(2, 2), "[view] 2 rows from 2 on were asked for, of (3, 4)", ShapeError);
  CHECK_THROWS_WITH_AS((void)view.col_slice(1, 4), "[view] 4 columns from 1 on were asked for, of (3, 4)", ShapeError);
  for (const auto& [begin, count] : {std::pair<Index, Index>{-1, 1}, {0, -1}, {1, most}, {most, 1}, {5, 0}}) {
    CHECK_THROWS_AS((void)view.row_slice(begin, count), ShapeError);
    CHECK_THROWS_AS((void)view.col_slice(begin, count), ShapeError);
  }
  CHECK_THROWS_WITH_AS((void)view.col_slice(0, 3).flat(), "[view] rows of 3 columns that lie 4 apart are no one row",
                       ShapeError);
  const std::vector<std::byte> bytes(48);
  const StoredView<Host> stored(bytes.data(), DType::f32, 3, 4);
  CHECK_THROWS_WITH_AS((void)stored.row_slice(1, 3), "[view] 3 rows from 1 on were asked for, of (3, 4)", ShapeError);
  CHECK_THROWS_WITH_AS((void)stored.as<bf16>(), "[stored] a matrix of F32 can't be read in place as BF16", ShapeError);
}

TEST_CASE("view: numbers of rows are looked at where the host can, each of them") {
  const std::vector<std::int32_t> fine{0, 4, 2}, high{0, 4, 5}, low{-1, 0, 0};
  const auto view = [](const std::vector<std::int32_t>& numbers_of) {
    return View<Readable, const std::int32_t>(numbers_of.data(), static_cast<Index>(numbers_of.size()));
  };
  CHECK_NOTHROW(expect_indices("op", "row", view(fine), 5));
  CHECK_THROWS_WITH_AS(expect_indices("op", "row", view(high), 5), "[op] row 2 is 5, but there are 5 rows", ShapeError);
  CHECK_THROWS_WITH_AS(expect_indices("op", "row", view(low), 5), "[op] row 0 is -1, but there are 5 rows", ShapeError);
  const std::vector<std::int32_t> one{0};
  CHECK_THROWS_WITH_AS(expect_indices("op", "row", view(one), 0), "[op] row 0 is 0, but there are 0 rows", ShapeError);
}

TEST_CASE("view: slices up to the last row and column are taken, and know where they begin") {
  auto values = numbers(24);
  const Matrix view(values.data(), 4, 5, 6);
  CHECK(view.row_slice(3, 1).data() == values.data() + 18);
  CHECK(view.col_slice(4, 1).data() == values.data() + 4);
  CHECK(view.col_slice(5, 0).cols() == 0);
  CHECK(view.col_slice(0, 5).stride() == 6);
  CHECK(view.row_slice(0, 4).rows() == 4);
  CHECK(Matrix(values.data(), 1, 5, 6).contiguous());
  CHECK(Matrix(values.data(), 1, 5, 6).flat().shape() == Shape{1, 5});
  CHECK((Matrix().rows() == 0 && Matrix().cols() == 0 && Matrix().stride() == 0 && Matrix().data() == nullptr));
  const StoredView<Host> none, stored(values.data(), DType::f32, 4, 6);
  CHECK(none.empty());
  CHECK((none.dtype() == DType::f32 && none.rows() == 0 && none.cols() == 0));
  CHECK(stored.row_slice(4, 0).rows() == 0);
  CHECK(stored.row_slice(1, 3).data() == stored.data() + 24);
  CHECK_THROWS_WITH_AS((void)stored.row_slice(-1, 2), "[view] 2 rows from -1 on were asked for, of (4, 6)", ShapeError);
  CHECK_THROWS_WITH_AS((void)stored.row_slice(0, -1), "[view] -1 rows from 0 on were asked for, of (4, 6)", ShapeError);
}

#if LORA_DEBUG
TEST_CASE("view: rows outside, and a stride below the columns, end a debug build") {
  auto values = numbers(12);
  const Matrix view(values.data(), 3, 4);
  const std::string failed = "assertion failed";
  CHECK(test::abort_message([&] { (void)view.row(3); }).find(failed) != std::string::npos);
  CHECK(test::abort_message([&] { (void)view.row(-1); }).find(failed) != std::string::npos);
  CHECK(test::abort_message([&] { (void)Matrix(values.data(), 2, 4, 3); }).find(failed) != std::string::npos);
}
#endif

}  // namespace view_test
