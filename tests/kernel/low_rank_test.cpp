#include "lora/cpu/low_rank.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <vector>

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

constexpr double scale = 1.7;

template <class T>
struct Result {
  std::vector<T> dh;
  std::vector<Accum<T>> da, db;
  bool operator==(const Result&) const = default;
};

/// What a factor that is itself only known to within `bound` (n, m) adds to the error of its transpose times b (n, k).
std::vector<double> plus_error_of_left(std::vector<double> bounds, Index m, Index k, Index n,
                                       const std::vector<double>& bound, const std::vector<double>& b) {
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < k; ++j)
      for (Index p = 0; p < n; ++p)
        oracle::at(bounds, i * k + j) += oracle::at(bound, p * m + i) * std::fabs(oracle::at(b, p * k + j));
  return bounds;
}

template <class T>
Result<T> check_backward(int threads, const Extents& e, Index padding) {
  D dev(threads);
  Matrix<D, T> dy(dev, e.rows, e.cols, 1, padding), h(dev, e.rows, e.rank, 2, 2 * padding),
      b(dev, e.rank, e.cols, 3, 3 * padding), dh(dev, e.rows, e.rank, 4, padding);
  Matrix<D, Accum<T>> db(dev, e.rank, e.cols, 5, padding);
  // Rounded three times at most: s b or dy b, and dh.
  const auto to_dh = oracle::gemm(Form::nt, e.rows, e.rank, e.cols, doubles(dy.host()), doubles(b.host()), scale, {},
                                  roundoff<Accum<T>>, 2 * roundoff<T>);
  const auto to_db = oracle::gemm(Form::tn, e.rank, e.cols, e.rows, doubles(h.host()), doubles(dy.host()), 1,
                                  doubles(db.host()), roundoff<Accum<T>>, roundoff<Accum<T>>);
  kernel::low_rank_backward<D, T>(dev, h.in(), {dy.in(), b.in(), db.view(), scale}, dh.view());
  CAPTURE(e.rows);
  CAPTURE(e.cols);
  CAPTURE(e.rank);
  check_near(dh.host(), to_dh.value, to_dh.bound);
  check_near(db.host(), to_db.value, to_db.bound);
  return {dh.host(), {}, db.host()};
}

/// Projections of `widths` columns, the j-th of rank `rank` + j and with j + 1 times the scale.
template <class T>
Result<T> check_gradients(int threads, const Extents& e, const std::vector<Index>& widths, Index padding) {
  D dev(threads);
  Index outputs = 0, ranks = 0;
  for (std::size_t j = 0; j < widths.size(); ++j) {
    outputs += widths[j];
    ranks += e.rank + static_cast<Index>(j);
  }
  Matrix<D, T> x(dev, e.rows, e.cols, 1, padding), dy(dev, e.rows, outputs, 2, padding),
      a(dev, ranks, e.cols, 3, 2 * padding);
  Matrix<D, Accum<T>> da(dev, ranks, e.cols, 4, padding);
  std::deque<Matrix<D, T>> b;
  std::deque<Matrix<D, Accum<T>>> db;
  for (std::size_t j = 0; j < widths.size(); ++j) {
    b.emplace_back(dev, e.rank + static_cast<Index>(j), widths[j], 5 + 2 * j, padding);
    db.emplace_back(dev, e.rank + static_cast<Index>(j), widths[j], 6 + 2 * j, padding);
  }
  const std::vector<double> all_dy = doubles(dy.host()), all_a = doubles(a.host()), all_da = doubles(da.host());
  std::vector<kernel::LowRankTerm<D, T>> terms;
  std::vector<double> want_da, da_bound, want_db, db_bound;
  Index column = 0, row = 0;
  for (std::size_t j = 0; j < widths.size(); ++j) {
    const Index rank = e.rank + static_cast<Index>(j), width = widths[j];
    const double s = scale * static_cast<double>(j + 1);
    terms.push_back({dy.in().col_slice(column, width), b[j].in(), db[j].view(), s});
    std::vector<double> dy_j, a_j(all_a.begin() + row * e.cols, all_a.begin() + (row + rank) * e.cols),
        da_j(all_da.begin() + row * e.cols, all_da.begin() + (row + rank) * e.cols);
    for (Index i = 0; i < e.rows; ++i)
      for (Index k = 0; k < width; ++k) dy_j.push_back(oracle::at(all_dy, i * outputs + column + k));
    constexpr double u = roundoff<Accum<T>>, u_t = 2 * roundoff<T>;
    const auto h = oracle::gemm(Form::nt, e.rows, rank, e.cols, doubles(x.host()), a_j, s, {}, u, u_t);
    const auto dh = oracle::gemm(Form::nt, e.rows, rank, width, dy_j, doubles(b[j].host()), s, {}, u, u_t);
    const auto to_db = oracle::gemm(Form::tn, rank, width, e.rows, h.value, dy_j, 1, doubles(db[j].host()), u, u);
    const auto to_da = oracle::gemm(Form::tn, rank, e.cols, e.rows, dh.value, doubles(x.host()), 1, da_j, u, u);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(want_db, to_db.value);
    append(db_bound, plus_error_of_left(to_db.bound, rank, width, e.rows, h.bound, dy_j));
    append(want_da, to_da.value);
    append(da_bound, plus_error_of_left(to_da.bound, rank, e.cols, e.rows, dh.bound, doubles(x.host())));
    column += width;
    row += rank;
  }
  kernel::low_rank_gradients<D, T>(dev, x.in(), a.in(), da.view(), terms);
  Result<T> result{{}, da.host(), {}};
  for (auto& gradient : db)
    for (const Accum<T> value : gradient.host()) result.db.push_back(value);
  CAPTURE(e.rows);
  CAPTURE(e.cols);
  CAPTURE(e.rank);
  check_near(result.da, want_da, da_bound);
  check_near(result.db, want_db, db_bound);
  return result;
}

}  // namespace

TEST_CASE("low rank: the gradients of a projection are what two products give, for any number of threads") {
  const auto check = []<class T>(T) {
    for (const Extents& e : shapes)
      for (const Index padding : {0, 1}) {
        const auto alone = check_backward<T>(1, e, padding);
        const auto together = check_backward<T>(3, e, padding);
        const bool fused = cpu::detail::LowRankGradients<T>::takes(e.rows, e.cols, e.rank, 3);
        if constexpr (std::is_same_v<T, Accum<T>>) {
          if (fused) CHECK(alone == together);
        }
      }
  };
  check(0.0f);
  check(0.0);
  check(bf16());
}

TEST_CASE("low rank: the gradients of all projections of x are what single products give, for any number of threads") {
  const auto check = []<class T>(T) {
    for (const Extents& e : {Extents{3, 16, 2}, Extents{33, 48, 16}, Extents{47, 528, 7}, Extents{290, 32, 31},
                             Extents{70, 20, 4}, Extents{70, 32, 33}})
      for (const auto& widths : {std::vector<Index>{16}, std::vector<Index>{544, 32}, std::vector<Index>{48, 16, 16}})
        for (const Index padding : {0, 1}) {
          const auto alone = check_gradients<T>(1, e, widths, padding);
          const auto together = check_gradients<T>(3, e, widths, padding);
          if constexpr (std::is_same_v<T, Accum<T>>) {
            const Index most = e.rank + static_cast<Index>(widths.size()) - 1;
            if (cpu::detail::LowRankGradients<T>::takes(e.rows, e.cols, most, 3)) CHECK(alone == together);
          }
        }
  };
  check(0.0f);
  check(0.0);
  check(bf16());
}

TEST_CASE("low rank: shapes must agree") {
  D dev(1);
  Matrix<D, float> x(dev, 4, 8, 1), dy(dev, 4, 16, 2), h(dev, 4, 2, 3), a(dev, 2, 8, 4), b(dev, 2, 16, 5),
      dh(dev, 4, 2, 6), da(dev, 2, 8, 7), db(dev, 2, 16, 8), other(dev, 3, 5, 9);
  const auto backward = [&](auto& of_h, auto& of_dy, auto& of_b, auto& of_db, auto& of_dh) {
    kernel::low_rank_backward<D, float>(dev, of_h.in(), {of_dy.in(), of_b.in(), of_db.view()}, of_dh.view());
  };
  CHECK_NOTHROW(backward(h, dy, b, db, dh));
  CHECK_THROWS_AS(backward(other, dy, b, db, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, other, b, db, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, dy, other, db, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, dy, b, other, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, dy, b, db, other), ShapeError);
  const auto gradients = [&](auto& of_x, auto& of_a, auto& of_da, auto& of_dy, auto& of_b, auto& of_db) {
    const kernel::LowRankTerm<D, float> term{of_dy.in(), of_b.in(), of_db.view()};
    kernel::low_rank_gradients<D, float>(dev, of_x.in(), of_a.in(), of_da.view(), {&term, 1});
  };
  CHECK_NOTHROW(gradients(x, a, da, dy, b, db));
  CHECK_THROWS_AS(gradients(other, a, da, dy, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, other, da, dy, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, other, dy, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, da, other, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, da, dy, other, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, da, dy, b, other), ShapeError);
}
