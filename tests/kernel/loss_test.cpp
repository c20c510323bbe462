#include "lora/cpu/loss.hpp"

#include <doctest/doctest.h>

#include "support/gradcheck.hpp"
#include "support/matrix.hpp"

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

constexpr double scale = 0.125;

/// What a head does with the logits of n rows, `width` columns at a time.
template <class T>
struct Run {
  std::vector<Accum<T>> lse, loss, top;
  std::vector<T> gradient;
};

template <class T>
Run<T> run(D& dev, View<D, const Accum<T>> logits, const std::vector<std::int32_t>& labels, Index width,
           Index padding = 0) {
  using A = Accum<T>;
  const Index n = logits.rows(), vocabulary = logits.cols(), blocks = (vocabulary + width - 1) / width;
  Matrix<D, std::int32_t> label(dev, 1, n, labels);
  Matrix<D, A> max(dev, blocks, n, 1), sum(dev, blocks, n, 2), target(dev, 1, n, 3), lse(dev, 1, n, 4),
      loss(dev, 1, n, 5), top(dev, 1, n, 6);
  Matrix<D, T> e(dev, n, vocabulary, 7, padding);
  for (Index b = 0; b < blocks; ++b) {
    const Index first = b * width, count = std::min(width, vocabulary - first);
    kernel::softmax_block<T>(dev, logits.col_slice(first, count), label.in(), first, max.view().row_slice(b, 1),
                             sum.view().row_slice(b, 1), target.view(), e.view().col_slice(first, count));
  }
  kernel::softmax_finish<T>(dev, max.in(), sum.in(), target.in(), lse.view(), loss.view(), top.view());
  for (Index b = 0; b < blocks; ++b) {
    const Index first = b * width, count = std::min(width, vocabulary - first);
    kernel::softmax_gradient(dev, e.view().col_slice(first, count), max.in().row_slice(b, 1), lse.in(), label.in(),
                             first, scale);
  }
  return {lse.host(), loss.host(), top.host(), e.host()};
}

std::vector<std::int32_t> some_labels(Index n, Index vocabulary) {
  std::vector<std::int32_t> labels;  // the first and the last column among them
  for (Index i = 0; i < n; ++i)
    labels.push_back(static_cast<std::int32_t>(i == 0 ? 0 : i == 1 ? vocabulary - 1 : i * 31 % vocabulary));
  return labels;
}

struct Case {
  Index rows, vocabulary, width, padding;
  double size;
};
constexpr Case cases[] = {{1, 1, 1, 0, 3},     {3, 7, 7, 0, 3},      {5, 100, 33, 3, 3},
                          {4, 129, 64, 1, 30}, {2, 1000, 999, 0, 1}, {6, 50, 16, 0, 1e4}};

}  // namespace

TEST_CASE("loss: cross entropy and its gradient equal the formulas for every width of blocks") {
  each_type([]<class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const Case& c : cases) {
      CAPTURE(c.vocabulary);
      CAPTURE(c.size);
      Matrix<D, A> logits(dev, c.rows, c.vocabulary, random_values<A>(c.rows * c.vocabulary, 1, -c.size, c.size),
                          c.padding);
      const auto ls = logits.host();
      const auto labels = some_labels(c.rows, c.vocabulary);
      std::vector<double> lse, loss, top, gradient, lse_bound, loss_bound, top_bound, gradient_bound;
      for (Index i = 0; i < c.rows; ++i) {
        const auto l = [&](Index j) { return real(ls[static_cast<std::size_t>(i * c.vocabulary + j)]); };
        double largest = l(0), total = 0;
        for (Index j = 1; j < c.vocabulary; ++j) largest = std::max(largest, l(j));
        for (Index j = 0; j < c.vocabulary; ++j) total += std::exp(l(j) - largest);
        const double value = largest + std::log(total), at_label = l(labels[static_cast<std::size_t>(i)]);
        // A logit minus the largest has one rounding of that difference; terms with |difference| > 40 vanish.
        const double error = (static_cast<double>(c.vocabulary) + 40 + 10) * roundoff<A>;
        lse.push_back(value);
        lse_bound.push_back(error + 2 * roundoff<A> * std::fabs(value));
        loss.push_back(value - at_label);
        loss_bound.push_back(lse_bound.back() + roundoff<A> * std::fabs(value - at_label));
        top.push_back(largest);
        top_bound.push_back(0);
        for (Index j = 0; j < c.vocabulary; ++j) {
          const double p = std::exp(l(j) - value);
          const double hit = j == labels[static_cast<std::size_t>(i)] ? 1 : 0;
          gradient.push_back(scale * (p - hit));
          // e is rounded to T, its product once more; exp(max − lse) turns lse's absolute error into a relative one.
          gradient_bound.push_back(scale * (p * (2 * lse_bound.back() + error + 2.05 * roundoff<T>)+hit *
                                            (2 * roundoff<A> + 1.01 * roundoff<T> * std::fabs(p - hit))) +
                                   1e-37);
        }
      }
      for (const Index width : {c.width, c.vocabulary}) {
        const auto result = run<T>(dev, logits.in(), labels, width, c.padding);
        check_near(result.lse, lse, lse_bound);
        check_near(result.loss, loss, loss_bound);
        check_near(result.top, top, top_bound);
        check_near(result.gradient, gradient, gradient_bound);
      }
    }
  });
}

TEST_CASE("loss: a block without the label leaves the target, an unwanted e is not written") {
  D dev(1);
  const std::vector<std::int32_t> labels{2, 5, 9};
  Matrix<D, float> logits(dev, 3, 4, 1), max(dev, 1, 3, 2), sum(dev, 1, 3, 3), wide_sum(dev, 1, 3, 4);
  Matrix<D, float> target(dev, 1, 3, std::vector<float>{-1, -2, -3}), e(dev, 3, 4, 5);
  Matrix<D, std::int32_t> label(dev, 1, 3, labels);
  kernel::softmax_block<float>(dev, logits.in(), label.in(), 4, max.view(), sum.view(), target.view(), {});
  kernel::softmax_block<float>(dev, logits.in(), label.in(), 4, max.view(), wide_sum.view(), target.view(), e.view());
  CHECK(target.host() == std::vector<float>{-1, logits.host()[4 + 1], -3});
  check_same_bits(sum.host(), wide_sum.host());
}

TEST_CASE("loss: a logit that is not a number shows in the loss") {
  D dev(1);
  for (const Index bad : {0, 1, 2, 30}) {
    std::vector<float> values(31, 1.0f);
    values[static_cast<std::size_t>(bad)] = std::numeric_limits<float>::quiet_NaN();
    Matrix<D, float> logits(dev, 1, 31, values);
    CHECK(std::isnan(run<float>(dev, logits.in(), {2}, 8).loss[0]));
  }
}

TEST_CASE("loss: the gradient is exact by complex step") {
  using C = std::complex<double>;
  D dev(1);
  const Index n = 4, vocabulary = 11;
  Matrix<D, double> logits(dev, n, vocabulary, 1);
  Matrix<D, C> z(dev, n, vocabulary, 1);
  const auto labels = some_labels(n, vocabulary);
  for (const Index width : {Index{4}, vocabulary}) {
    auto result = run<double>(dev, logits.in(), labels, width);
    const auto loss = [&] {
      C total = 0;
      for (const C& value : run<C>(dev, z.in(), labels, width).loss) total += scale * value;
      return total;
    };
    CHECK(gradient_error(std::span<double>(result.gradient), complex_step(elements(z.view()), loss)) < 1e-12);
  }
}

TEST_CASE("loss: the number of threads doesn't change a bit") {
  each_type([]<class T>() {
    Run<T> first;
    for (const int threads : {1, 2, 3}) {
      D dev(threads);
      Matrix<D, Accum<T>> logits(dev, 100, 130, 1);
      const auto result = run<T>(dev, logits.in(), some_labels(100, 130), 64);
      if (threads == 1) first = result;
      check_same_bits(result.loss, first.loss);
      check_same_bits(result.gradient, first.gradient);
    }
  });
}
