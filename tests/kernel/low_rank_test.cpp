#include "lora/cpu/low_rank.hpp"

#include <doctest/doctest.h>

#include "support/matrix.hpp"
#include "support/oracle.hpp"

namespace {

using namespace lora;
using namespace lora::test;
using kernel::Form;
using D = cpu::Device;

struct Extents {
  Index rows, cols, rank;
};
// Around tiles of 32 rows and 256 columns, blocks of 256 rows, and the limits below which two products do the work.
constexpr Extents shapes[] = {{0, 16, 4},    {1, 16, 16},    {7, 16, 3},    {8, 16, 1},   {33, 48, 16}, {257, 272, 8},
                              {300, 17, 16}, {290, 528, 32}, {515, 64, 24}, {65, 96, 33}, {8300, 16, 2}};

template <class T>
struct Result {
  std::vector<T> dh;
  std::vector<Accum<T>> db;
};

template <class T>
Result<T> check_backward(int threads, const Extents& e, Index padding) {
  D dev(threads);
  Matrix<D, T> dy(dev, e.rows, e.cols, 1, padding), h(dev, e.rows, e.rank, 2, 2 * padding),
      b(dev, e.rank, e.cols, 3, 3 * padding), dh(dev, e.rows, e.rank, 4, padding);
  Matrix<D, Accum<T>> db(dev, e.rank, e.cols, 5, padding);
  const auto to_dh = oracle::gemm(Form::nt, e.rows, e.rank, e.cols, doubles(dy.host()), doubles(b.host()), 1, {},
                                  roundoff<Accum<T>>, roundoff<T>);
  const auto to_db = oracle::gemm(Form::tn, e.rank, e.cols, e.rows, doubles(h.host()), doubles(dy.host()), 1,
                                  doubles(db.host()), roundoff<Accum<T>>, roundoff<Accum<T>>);
  kernel::low_rank_backward<D, T>(dev, dy.in(), h.in(), b.in(), dh.view(), db.view());
  CAPTURE(e.rows);
  CAPTURE(e.cols);
  CAPTURE(e.rank);
  check_near(dh.host(), to_dh.value, to_dh.bound);
  check_near(db.host(), to_db.value, to_db.bound);
  return {dh.host(), db.host()};
}

}  // namespace

TEST_CASE("low rank: both gradients are what two products give, for any number of threads") {
  const auto check = []<class T>(T) {
    for (const Extents& e : shapes)
      for (const Index padding : {0, 1}) {
        const auto alone = check_backward<T>(1, e, padding);
        const auto together = check_backward<T>(3, e, padding);
        const bool fused = cpu::detail::LowRankBackward<T>::takes(e.rows, e.cols, e.rank, 3);
        if constexpr (std::is_same_v<T, Accum<T>>) {
          if (fused) CHECK((alone.dh == together.dh && alone.db == together.db));
        }
      }
  };
  check(0.0f);
  check(0.0);
  check(bf16());
}

TEST_CASE("low rank: shapes must agree") {
  D dev(1);
  Matrix<D, float> dy(dev, 4, 16, 1), h(dev, 4, 2, 2), b(dev, 2, 16, 3), dh(dev, 4, 2, 4), db(dev, 2, 16, 5),
      other(dev, 3, 5, 6);
  const auto backward = [&](auto&... operands) {
    kernel::low_rank_backward<D, float>(dev, dy.in(), operands.view()...);
  };
  CHECK_NOTHROW(backward(h, b, dh, db));
  CHECK_THROWS_AS(backward(other, b, dh, db), ShapeError);
  CHECK_THROWS_AS(backward(h, other, dh, db), ShapeError);
  CHECK_THROWS_AS(backward(h, b, other, db), ShapeError);
  CHECK_THROWS_AS(backward(h, b, dh, other), ShapeError);
}
