#include "lora/cpu/kernels/low_rank.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <numeric>
#include <vector>

#include "support/backends.hpp"
#include "support/effort.hpp"
#include "support/matrix.hpp"
#include "support/oracle.hpp"

namespace low_rank_test {

namespace {

using namespace lora;
using namespace lora::test;
using kernel::Form;
using Cpu = cpu::Device;

struct Extents {
  Index rows, cols, rank;
};
// Around tiles of 32 rows and 2048 columns, blocks of 256 rows, and the limits below which plain products do the work.
constexpr Extents shapes[] = {{0, 16, 4},  {1, 16, 16}, {31, 16, 3},    {32, 32, 1},   {40, 48, 16}, {47, 2064, 7},
                              {70, 20, 4}, {70, 32, 0}, {257, 272, 30}, {290, 64, 31}, {515, 64, 5}};

constexpr double scale = 1.7;

template <class T>
struct Result {
  std::vector<T> dh;
  std::vector<Accum<T>> da, db;
  bool operator==(const Result&) const = default;
};

/// Projections of `widths` columns of one x, the j-th of rank `rank` + j and with j + 1 times the scale.
template <class D, class T>
class Subject {
 public:
  Subject(int threads, const Extents& e, const std::vector<Index>& widths, Index padding)
      : e_(e),
        widths_(widths),
        ranks_(e.rank * count() + count() * (count() - 1) / 2),
        dev_(threads),
        x_(dev_, e.rows, e.cols, 1, padding),
        dy_(dev_, e.rows, std::accumulate(widths.begin(), widths.end(), Index{0}), 2, padding),
        a_(dev_, ranks_, e.cols, 3, 2 * padding),
        h_(dev_, e.rows, ranks_, 4, padding),
        dh_(dev_, e.rows, ranks_, 5, 3 * padding),
        da_(dev_, ranks_, e.cols, 6, padding) {
    Index column = 0;
    for (Index j = 0; j < count(); ++j) {
      const Index width = widths[static_cast<std::size_t>(j)];
      b_.emplace_back(dev_, e.rank + j, width, 7 + 2 * static_cast<std::uint64_t>(j), padding);
      db_.emplace_back(dev_, e.rank + j, width, 8 + 2 * static_cast<std::uint64_t>(j), padding);
      terms_.push_back(
          {dy_.in().col_slice(column, width), b_.back().in(), db_.back().view(), scale * static_cast<double>(j + 1)});
      column += width;
    }
  }

  bool fused() const {
    if constexpr (is_cpu<D> && std::is_same_v<T, Accum<T>>) {
      return cpu::detail::LowRankGradients<T>::takes(e_.rows, terms_, dev_.threads());
    } else {
      return false;
    }
  }

  Result<T> backward() {
    const Expected want = expected(doubles(h_.host()), {});
    kernel::low_rank_backward<D, T>(dev_, h_.in(), terms_, dh_.view());
    check_near(dh_.host(), want.dh.value, want.dh.bound);
    check_near(all_db(), want.db.value, want.db.bound);
    return {dh_.host(), {}, all_db()};
  }

  Result<T> gradients() {
    const std::vector<double> x = doubles(x_.host()), a = doubles(a_.host());
    oracle::Bounded h(e_.rows * ranks_);
    each([&](Index j, Index first, Index rank) {
      const auto own = oracle::gemm(Form::nt, e_.rows, rank, e_.cols, x, rows_of(a, first, rank, e_.cols),
                                    terms_[static_cast<std::size_t>(j)].scale, {}, u, u_t);
      place(own.value, h.value, first, rank);
      place(own.bound, h.bound, first, rank);
    });
    const Expected want = expected(h.value, h.bound);
    // Gradients of a, of a dh that is itself only known to within a bound.
    auto to_da = oracle::gemm(Form::tn, ranks_, e_.cols, e_.rows, want.dh.value, x, 1, doubles(da_.host()), u, u);
    add_error_of_left(to_da.bound, ranks_, e_.cols, want.dh.bound, x);
    kernel::low_rank_gradients<D, T>(dev_, x_.in(), a_.in(), da_.view(), terms_);
    check_near(da_.host(), to_da.value, to_da.bound);
    check_near(all_db(), want.db.value, want.db.bound);
    return {{}, da_.host(), all_db()};
  }

 private:
  // Rounded to T twice, which the oracle's bound allows for: a product, and s times it.
  static constexpr double u = roundoff<Accum<T>>, u_t = roundoff<T>;

  struct Expected {
    oracle::Bounded dh, db;
  };

  Index count() const { return static_cast<Index>(widths_.size()); }

  /// f(j, its first rank, its rank).
  template <class F>
  void each(const F& f) const {
    for (Index j = 0, first = 0; j < count(); first += e_.rank + j++) f(j, first, e_.rank + j);
  }
  static std::vector<double> rows_of(const std::vector<double>& from, Index first, Index rows, Index cols) {
    return {from.begin() + first * cols, from.begin() + (first + rows) * cols};
  }
  /// Columns [first, first + cols) of a matrix with a row for each of x.
  void place(const std::vector<double>& from, std::vector<double>& to, Index first, Index cols) const {
    for (Index i = 0; i < e_.rows; ++i)
      for (Index r = 0; r < cols; ++r) oracle::at(to, i * ranks_ + first + r) = oracle::at(from, i * cols + r);
  }
  std::vector<double> columns_of(const std::vector<double>& from, Index stride, Index first, Index cols) const {
    std::vector<double> result;
    for (Index i = 0; i < e_.rows; ++i)
      for (Index j = 0; j < cols; ++j) result.push_back(oracle::at(from, i * stride + first + j));
    return result;
  }

  /// dh and db, of an h known to within `h_bound` (exactly where that is empty).
  Expected expected(const std::vector<double>& h, const std::vector<double>& h_bound) {
    const std::vector<double> dy = doubles(dy_.host());
    Expected result{oracle::Bounded(e_.rows * ranks_), oracle::Bounded(0)};
    Index column = 0;
    each([&](Index j, Index first, Index rank) {
      const auto place_of = static_cast<std::size_t>(j);
      const Index width = widths_[place_of];
      const auto dy_j = columns_of(dy, dy_.view().cols(), column, width), h_j = columns_of(h, ranks_, first, rank);
      const auto dh = oracle::gemm(Form::nt, e_.rows, rank, width, dy_j, doubles(b_[place_of].host()),
                                   terms_[place_of].scale, {}, u, u_t);
      auto db = oracle::gemm(Form::tn, rank, width, e_.rows, h_j, dy_j, 1, doubles(db_[place_of].host()), u, u);
      if (!h_bound.empty()) add_error_of_left(db.bound, rank, width, columns_of(h_bound, ranks_, first, rank), dy_j);
      place(dh.value, result.dh.value, first, rank);
      place(dh.bound, result.dh.bound, first, rank);
      result.db.value.insert(result.db.value.end(), db.value.begin(), db.value.end());
      result.db.bound.insert(result.db.bound.end(), db.bound.begin(), db.bound.end());
      column += width;
    });
    return result;
  }

  /// What an error within `bound` (n, m) of a factor adds to its transpose times b (n, k).
  void add_error_of_left(std::vector<double>& bounds, Index m, Index k, const std::vector<double>& bound,
                         const std::vector<double>& b) const {
    for (Index i = 0; i < m; ++i)
      for (Index p = 0; p < e_.rows; ++p) {
        const double error = oracle::at(bound, p * m + i);
        const double* const from = b.data() + p * k;
        double* const to = bounds.data() + i * k;
        for (Index j = 0; j < k; ++j) to[j] += error * (from[j] < 0 ? -from[j] : from[j]);
      }
  }

  std::vector<Accum<T>> all_db() {
    std::vector<Accum<T>> all;
    for (auto& gradient : db_)
      for (const Accum<T> value : gradient.host()) all.push_back(value);
    return all;
  }

  Extents e_;
  std::vector<Index> widths_;
  Index ranks_;
  D dev_;
  Matrix<D, T> x_, dy_, a_, h_, dh_;
  Matrix<D, Accum<T>> da_;
  std::deque<Matrix<D, T>> b_;
  std::deque<Matrix<D, Accum<T>>> db_;
  std::vector<kernel::LowRankTerm<D, T>> terms_;
};

/// run(subject) for all extents, on one thread and on more; where all is fused, the same bits.
template <class Run>
void check_all(const Run& run) {
  const auto check = [&]<class T>(T) {
    int compared = 0;
    int number[] = {0, 0};  // of those that are fused or not, which the processor decides
    for (const Extents& e : shapes)
      for (const auto& widths : {std::vector<Index>{16}, std::vector<Index>{2064, 32}, std::vector<Index>{48, 16, 16}})
        for (const int threads : {2, 3}) {
          if (e.rows > 100 && widths.front() > 100) continue;  // much work that shows nothing new
          CAPTURE(e.rows);
          CAPTURE(e.cols);
          CAPTURE(e.rank);
          CAPTURE(threads);
          const Index padding = threads - 2;
          Subject<Cpu, T> alone(1, e, widths, padding), together(threads, e, widths, padding);
          if (number[together.fused()]++ % test::effort(1, 11, "low_rank: ten of eleven combinations of extents") != 0)
            continue;
          const auto one = run(alone), other = run(together);
          if constexpr (std::is_same_v<T, Accum<T>>) {
            if (!together.fused()) continue;
            ++compared;
            CHECK(one == other);
          }
        }
    CHECK((compared > 0) == std::is_same_v<T, Accum<T>>);
  };
  SUBCASE("cpu, f32") { check(0.0f); }
  SUBCASE("cpu, f64") { check(0.0); }
  SUBCASE("cpu, bf16") { check(bf16()); }
  each_other_backend_and_type([&]<class D, class T>() {
    for (const Extents& e : shapes)
      for (const auto& widths : {std::vector<Index>{16}, std::vector<Index>{48, 16, 16}}) {
        if (e.rows > 300) continue;
        CAPTURE(e.rows);
        CAPTURE(e.rank);
        Subject<D, T> subject(2, e, widths, 1);
        run(subject);
      }
  });
}

}  // namespace

TEST_CASE("low rank: with h kept, dh and the gradients of b are what single products give") {
  check_all([](auto& subject) { return subject.backward(); });
}

TEST_CASE("low rank: all gradients of the projections of x are what single products give") {
  check_all([](auto& subject) { return subject.gradients(); });
}

TEST_CASE("low rank: many rows are summed in blocks, as one thread sums them") {
  const Extents many{8300, 16, 2};
  Subject<Cpu, float> alone(1, many, {16}, 0), together(3, many, {16}, 0);
  CHECK(together.fused());
  CHECK(alone.gradients() == together.gradients());
}

TEST_CASE("low rank: shapes must agree") {
  Cpu dev(1);
  Matrix<Cpu, float> x(dev, 4, 8, 1), dy(dev, 4, 16, 2), h(dev, 4, 2, 3), a(dev, 2, 8, 4), b(dev, 2, 16, 5),
      dh(dev, 4, 2, 6), da(dev, 2, 8, 7), db(dev, 2, 16, 8), other(dev, 3, 5, 9);
  const auto backward = [&](auto& of_h, auto& of_dy, auto& of_b, auto& of_db, auto& of_dh) {
    const kernel::LowRankTerm<Cpu, float> term{of_dy.in(), of_b.in(), of_db.view()};
    kernel::low_rank_backward<Cpu, float>(dev, of_h.in(), {&term, 1}, of_dh.view());
  };
  CHECK_NOTHROW(backward(h, dy, b, db, dh));
  CHECK_THROWS_AS(backward(other, dy, b, db, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, other, b, db, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, dy, other, db, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, dy, b, other, dh), ShapeError);
  CHECK_THROWS_AS(backward(h, dy, b, db, other), ShapeError);
  const auto gradients = [&](auto& of_x, auto& of_a, auto& of_da, auto& of_dy, auto& of_b, auto& of_db) {
    const kernel::LowRankTerm<Cpu, float> term{of_dy.in(), of_b.in(), of_db.view()};
    kernel::low_rank_gradients<Cpu, float>(dev, of_x.in(), of_a.in(), of_da.view(), {&term, 1});
  };
  CHECK_NOTHROW(gradients(x, a, da, dy, b, db));
  CHECK_THROWS_AS(gradients(other, a, da, dy, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, other, da, dy, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, other, dy, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, da, other, b, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, da, dy, other, db), ShapeError);
  CHECK_THROWS_AS(gradients(x, a, da, dy, b, other), ShapeError);
}

}  // namespace low_rank_test
