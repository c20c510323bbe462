#include "lora/nn/head.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "support/backends.hpp"
#include "support/matrix.hpp"

namespace head_test {

namespace {

using namespace lora;
using namespace lora::test;

constexpr Index n = 70, e = 24, v = 300;
constexpr double scale = 1.0 / 64;

Tiling tiles(Index rows, Index columns) {
  return {.rows = 512, .head_rows = rows, .head_columns = columns, .fold_ratio = 0.5};
}

/// The first and the last column among them, and both sides of the seams of blocks.
std::vector<std::int32_t> some_labels() {
  std::vector<std::int32_t> labels{0, v - 1, 63, 64, 127, 128, 255, 256};
  for (Index i = static_cast<Index>(labels.size()); i < n; ++i) labels.push_back(static_cast<std::int32_t>(i * 31 % v));
  return labels;
}

/// Loss, largest logit and dx in doubles, with how far rounding may take the head from them.
struct Expected {
  std::vector<double> loss, loss_bound, top, top_bound, dx, dx_bound;
};

/// `blocks`: sums over the vocabulary are formed in so many parts.
template <class T>
Expected expected_of(const std::vector<double>& x, const std::vector<double>& w, Index blocks) {
  constexpr double u = roundoff<Accum<T>>;
  const auto labels = some_labels();
  const auto at = [](const std::vector<double>& m, Index i, Index j) { return m[static_cast<std::size_t>(i * e + j)]; };
  Expected result;
  for (Index i = 0; i < n; ++i) {
    std::vector<double> logits, errors;  // a sum of E products, formed with roundoff u
    double largest = -INFINITY, error = 0, total = 0;
    for (Index j = 0; j < v; ++j) {
      double sum = 0, size = 0;
      for (Index k = 0; k < e; ++k) {
        sum += at(x, i, k) * at(w, j, k);
        size += std::fabs(at(x, i, k) * at(w, j, k));
      }
      logits.push_back(sum);
      errors.push_back(static_cast<double>(e + 3) * u * size);
      largest = std::max(largest, sum);
      error = std::max(error, errors.back());
    }
    const auto label = static_cast<std::size_t>(labels[static_cast<std::size_t>(i)]);
    double others = 0;
    for (std::size_t j = 0; j < logits.size(); ++j) others += j == label ? 0 : std::exp(logits[j] - largest);
    total = others + std::exp(logits[label] - largest);
    // Relative, of a sum of V exponentials whose arguments round, in parts where the largest grew from block to block;
    // 90 bounds them, for smaller ones vanish.
    const double sum_error = static_cast<double>(v + 4 * blocks + 100) * u + error;
    result.loss.push_back(largest - logits[label] + std::log(total));
    result.loss_bound.push_back(error + errors[label] + sum_error +
                                4 * u * (largest - logits[label] + std::log(total)));
    result.top.push_back(largest);
    result.top_bound.push_back(error);
    std::vector<double> dx(static_cast<std::size_t>(e)), bound(dx), size(dx);
    for (std::size_t j = 0; j < logits.size(); ++j) {
      // The exponential is rounded to T; errors of logits and of the sums turn into relative ones of p.
      const double g = scale * (j == label ? -others : std::exp(logits[j] - largest)) / total;
      const double g_bound = std::fabs(g) * 1.01 * (errors[j] + error + 2 * sum_error + 1.05 * roundoff<T>);
      for (Index k = 0; k < e; ++k) {
        const auto place = static_cast<std::size_t>(k);
        const double weight = at(w, static_cast<Index>(j), k);
        dx[place] += g * weight;
        bound[place] += g_bound * std::fabs(weight);
        size[place] += std::fabs(g * weight);
      }
    }
    for (std::size_t k = 0; k < dx.size(); ++k) {
      result.dx.push_back(dx[k]);
      result.dx_bound.push_back(bound[k] + static_cast<double>(v + blocks + 3) * u * size[k] +
                                roundoff<T> * std::fabs(dx[k]));
    }
  }
  return result;
}

/// Checks a head of T over a weight stored as S, with and without dx, for chunks and blocks of many sizes.
template <class D, class T, class S>
void check_tiles() {
  const auto x_values = random_values<T>(n * e, 1, -2, 2);
  const auto w_values = random_values<S>(v * e, 2, -1, 1);
  const std::vector<double> x_doubles = doubles(x_values);
  std::vector<double> w_doubles;  // a weight that is stored wider is rounded to T where it is used
  for (const S w : w_values) w_doubles.push_back(real(rounded<T>(real(w))));
  std::vector<Tiling> tilings{tiles(64, 37)};
  if (is_cpu<D>)
    for (const auto& [rows, columns] : {std::pair{1024, 2048}, {512, 64}, {7, 1}, {1, 299}, {33, 300}})
      tilings.push_back(tiles(rows, columns));
  for (const Tiling& tiling : tilings) {
    const auto expected = expected_of<T>(x_doubles, w_doubles, (v + tiling.head_columns - 1) / tiling.head_columns);
    for (const int threads : {1, 2, 3}) {
      CAPTURE(tiling.head_rows);
      CAPTURE(tiling.head_columns);
      CAPTURE(threads);
      D dev(threads);
      Matrix<D, T> x(dev, n, e, x_values);
      const auto weight = std::make_shared<Tensor<D, S>>(tensor_of<S>(dev, w_values, v, e));
      const nn::Head<D, T> head(nn::Weight<D>(StoredView<D>(weight->view().data(), dtype_of<S>, v, e), weight), tiling);
      Matrix<D, std::int32_t> labels(dev, 1, n, some_labels());
      for (const bool gradient : {false, true}) {
        Matrix<D, Accum<T>> loss(dev, 1, n, 3), target(dev, 1, n, 4), top(dev, 1, n, 5);
        Matrix<D, T> dx(dev, n, e, 6, 3);
        head.loss(dev, x.in(), labels.in(), scale, gradient ? dx.view() : View<D, T>(),
                  {loss.view(), target.view(), top.view()});
        check_near(loss.host(), expected.loss, expected.loss_bound);
        check_near(top.host(), expected.top, expected.top_bound);
        if (gradient) check_near(dx.host(), expected.dx, expected.dx_bound);
      }
    }
  }
}

}  // namespace

TEST_CASE("head: loss and dx equal the formulas whatever the chunks, the blocks and the threads") {
  each_backend_and_type([]<class D, class T>() { check_tiles<D, T, T>(); });
}

TEST_CASE("head: the same over a weight that is stored in another type") {
  SUBCASE("f32 over bf16") { check_tiles<cpu::Device, float, bf16>(); }
  SUBCASE("bf16 over f32") { check_tiles<cpu::Device, bf16, float>(); }
}

TEST_CASE("head: logits are those of every row of the weight, whatever the blocks, past two whole ones of them too") {
  using D = cpu::Device;
  const auto check = [](Index rows, const Tiling& tiling) {
    CAPTURE(rows);
    CAPTURE(tiling.head_columns);
    D dev(2);
    const Matrix<D, float> x(dev, 3, e, 1);
    const auto weights = random_values<bf16>(rows * e, 2);
    const auto weight = std::make_shared<Tensor<D, bf16>>(tensor_of<bf16>(dev, weights, rows, e));
    const nn::Head<D, float> head(nn::Weight<D>(StoredView<D>(weight->view().data(), dtype_of<bf16>, rows, e), weight),
                                  tiling);
    Matrix<D, float> logits(dev, 3, rows, 3, 2);
    head.logits(dev, x.in(), logits.view());
    const auto x_values = random_values<float>(3 * e, 1);
    std::vector<double> expected, bound;
    for (Index i = 0; i < 3; ++i)
      for (Index j = 0; j < rows; ++j) {
        double sum = 0, size = 0;
        for (Index k = 0; k < e; ++k) {
          const double term =
              real(x_values[static_cast<std::size_t>(i * e + k)]) * real(weights[static_cast<std::size_t>(j * e + k)]);
          sum += term;
          size += std::fabs(term);
        }
        expected.push_back(sum);
        bound.push_back(static_cast<double>(e + 1) * roundoff<float> * size);
      }
    check_near(logits.host(), expected, bound);
  };
  check(4200, D(1).tiling());
  for (const Index columns : {64, 150, 299, 300, 301}) check(300, tiles(1024, columns));
}

}  // namespace head_test
