#include "lora/cpu/kernels/loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "support/backends.hpp"
#include "support/gradcheck.hpp"
#include "support/matrix.hpp"

namespace loss_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

constexpr double scale = 0.125;

/// Whether a head takes rows of logits whole on this backend.
template <class D>
constexpr bool takes_whole_rows = kernel::HasCrossEntropy<D, float>;

/// What a head does with the logits of n rows, `width` columns at a time. W is the identity, so that dx is the gradient
/// of the logits.
template <class T>
struct Run {
  std::vector<Accum<T>> loss, top;
  std::vector<T> gradient;
  std::vector<T> logit_gradient;  ///< by the pass for dW, which is the same here
};

template <class T, class D>
Run<T> run(D& dev, Matrix<D, Accum<T>>& logits, const std::vector<std::int32_t>& labels, Index width, Index padding = 0,
           double cap = 0) {
  using A = Accum<T>;
  const Index n = logits.in().rows(), vocabulary = logits.in().cols();
  const std::vector<A> all = logits.host();
  if constexpr (takes_whole_rows<D>) {
    Matrix<D, std::int32_t> label(dev, 1, n, labels);
    Matrix<D, A> values(dev, n, vocabulary, all, padding), loss(dev, 1, n, 1), target(dev, 1, n, 2), top(dev, 1, n, 3);
    Matrix<D, T> gradient(dev, n, vocabulary, 4, padding);
    kernel::cross_entropy<T>(dev, values.view(), label.in(), scale, loss.view(), target.view(), top.view(),
                             gradient.view());
    return {loss.host(), top.host(), gradient.host(), gradient.host()};
  } else {
    std::vector<A> all_sums(static_cast<std::size_t>(n * vocabulary));
    std::vector<T> label_rows(all_sums.size());
    // Where column `first` of row i lies in those.
    const auto at = [&](Index i, Index first) { return static_cast<std::ptrdiff_t>(i * vocabulary + first); };
    for (Index i = 0; i < n; ++i)
      label_rows[static_cast<std::size_t>(at(i, labels[static_cast<std::size_t>(i)]))] = T(1.0f);
    Matrix<D, std::int32_t> label(dev, 1, n, labels);
    Matrix<D, A> others(dev, 1, n, 1), rounded(dev, 1, n, 7), target(dev, 1, n, 2), loss(dev, 1, n, 3),
        top(dev, 1, n, 4);
    Matrix<D, A> sums(dev, n, vocabulary, all_sums, padding);
    Matrix<D, T> w_label(dev, n, vocabulary, label_rows), gradient(dev, n, vocabulary, 5, padding);
    for (Index first = 0; first < vocabulary; first += width) {
      const Index count = std::min(width, vocabulary - first);
      std::vector<A> values;
      for (Index i = 0; i < n; ++i)
        values.insert(values.end(), all.begin() + at(i, first), all.begin() + at(i, first + count));
      Matrix<D, A> block(dev, n, count, values, padding);
      Matrix<D, T> e(dev, n, count, 6, padding);
      kernel::softmax_block<T>(dev, block.view(), label.in(), first, top.view(), others.view(), target.view(), e.view(),
                               rounded.view(), sums.view(), cap);
      const std::vector<T> es = e.host();
      all_sums = sums.host();
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < count; ++j)
          all_sums[static_cast<std::size_t>(at(i, first + j))] =
              static_cast<A>(es[static_cast<std::size_t>(i * count + j)]);
      copy_from_host<D, A>(dev, all_sums, sums.view());
    }
    kernel::softmax_finish<T>(dev, top.in(), others.in(), target.in(), loss.view());
    kernel::softmax_gradient<T>(dev, top.in(), others.in(), target.in(), rounded.in(), w_label.in(), scale, sums.in(),
                                gradient.view(), cap);
    Matrix<D, T> logit_gradient(dev, n, vocabulary, 8, padding);
    for (Index first = 0; first < vocabulary; first += width) {
      const Index count = std::min(width, vocabulary - first);
      kernel::softmax_logit_gradient<T>(dev, logits.in().col_slice(first, count), label.in(), first, top.in(),
                                        others.in(), target.in(), scale, logit_gradient.view().col_slice(first, count),
                                        cap);
    }
    return {loss.host(), top.host(), gradient.host(), logit_gradient.host()};
  }
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
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    D dev(2);
    for (const Case& c : cases) {
      CAPTURE(c.vocabulary);
      CAPTURE(c.size);
      Matrix<D, A> logits(dev, c.rows, c.vocabulary, random_values<A>(c.rows * c.vocabulary, 1, -c.size, c.size),
                          c.padding);
      const auto ls = logits.host();
      const auto labels = some_labels(c.rows, c.vocabulary);
      std::vector<double> loss, top, gradient, loss_bound, top_bound, gradient_bound, capped, capped_bound;
      const double cap = 1.25 * c.size;  // of logits that are capped already
      for (Index i = 0; i < c.rows; ++i) {
        const auto l = [&](Index j) { return real(ls[static_cast<std::size_t>(i * c.vocabulary + j)]); };
        const Index label = labels[static_cast<std::size_t>(i)];
        double largest = l(0), others = 0;
        for (Index j = 1; j < c.vocabulary; ++j) largest = std::max(largest, l(j));
        for (Index j = 0; j < c.vocabulary; ++j) others += j == label ? 0 : std::exp(l(j) - largest);
        const double total = others + std::exp(l(label) - largest);
        // Relative, of a sum of V exponentials. An argument is a difference that is rounded, in parts where the top
        // grew; what is below -87 vanishes (-745 in double), and so does the error of what it would have been. Every
        // growth multiplies by one exponential more.
        const auto blocks = static_cast<double>((c.vocabulary + c.width - 1) / c.width);
        constexpr double farthest = std::same_as<A, double> ? 750 : 90;
        const double error = (static_cast<double>(c.vocabulary) + 4 * blocks + farthest + 10) * roundoff<A>;
        const double below = largest - l(label), value = below + std::log(total);
        loss.push_back(value);
        loss_bound.push_back(error + roundoff<A> * (2 * below + std::fabs(std::log(total)) + std::fabs(value)));
        top.push_back(largest);
        top_bound.push_back(0);
        for (Index j = 0; j < c.vocabulary; ++j) {
          const double p = (j == label ? -others : std::exp(l(j) - largest)) / total;
          gradient.push_back(scale * p);
          // Errors of e and of the total; an exponential rounded to T, and the gradient once more.
          gradient_bound.push_back(scale * std::fabs(p) * (2.02 * error + 2.05 * roundoff<T>)+1e-37);
          // The label's is p - 1, where whole rows are taken.
          if (takes_whole_rows<D> && j == label) gradient_bound.back() += scale * (error + 2 * roundoff<A>);
          const double slope = 1 - l(j) * l(j) / (cap * cap);
          capped.push_back(gradient.back() * slope);
          capped_bound.push_back(gradient_bound.back() * slope + 4 * roundoff<A> * scale * std::fabs(p));
        }
      }
      for (const Index width : {c.width, c.vocabulary}) {
        const auto result = run<T>(dev, logits, labels, width, c.padding);
        check_near(result.loss, loss, loss_bound);
        check_near(result.top, top, top_bound);
        check_near(result.gradient, gradient, gradient_bound);
        check_near(result.logit_gradient, gradient, gradient_bound);
        if constexpr (takes_whole_rows<D>) continue;
        const auto slower = run<T>(dev, logits, labels, width, c.padding, cap);
        check_same_bits(slower.loss, result.loss);
        check_near(slower.gradient, capped, capped_bound);
        check_near(slower.logit_gradient, capped, capped_bound);
      }
    }
  });
}

TEST_CASE("loss: a block without the label leaves the target, and what is not wanted changes nothing else") {
  each_backend([]<class D>() {
    if constexpr (!takes_whole_rows<D>) {
      D dev(1);
      const std::vector<std::int32_t> labels{2, 5, 9};
      const auto values = random_values<float>(12, 1);
      Matrix<D, float> logits(dev, 3, 4, values), again(dev, 3, 4, values), top(dev, 1, 3, 2), target(dev, 1, 3, 3);
      Matrix<D, float> others(dev, 1, 3, 4), same_others(dev, 1, 3, 4), e(dev, 3, 4, 5);
      Matrix<D, std::int32_t> label(dev, 1, 3, labels);
      copy_from_host<D, float>(dev, std::vector<float>(3, 0.5f), top.view());
      copy_from_host<D, float>(dev, std::vector<float>{-1, -2, -3}, target.view());
      kernel::softmax_block<float>(dev, logits.view(), label.in(), 4, top.view(), others.view(), target.view(), {}, {},
                                   {});
      CHECK(target.host() == std::vector<float>{-1, values[4 + 1], -3});
      copy_from_host<D, float>(dev, std::vector<float>(3, 0.5f), top.view());
      kernel::softmax_block<float>(dev, again.view(), label.in(), 4, top.view(), same_others.view(), target.view(),
                                   e.view(), {}, {});
      check_same_bits(others.host(), same_others.host());
    }
  });
}

TEST_CASE("loss: in place or apart, the exponentials are the same bits") {
  each_backend([]<class D>() {
    if constexpr (!takes_whole_rows<D>) {
      D dev(2);
      const std::vector<std::int32_t> labels{2, 5, 30};
      const auto values = random_values<float>(3 * 31, 1);
      Matrix<D, float> logits(dev, 3, 31, values), place(dev, 3, 31, values), e(dev, 3, 31, 2), top(dev, 1, 3, 3),
          target(dev, 1, 3, 4), others(dev, 1, 3, 5);
      Matrix<D, std::int32_t> label(dev, 1, 3, labels);
      for (auto* const matrix : {&logits, &place})
        kernel::softmax_block<float>(dev, matrix->view(), label.in(), 0, top.view(), others.view(), target.view(),
                                     matrix == &place ? place.view() : e.view(), {}, {});
      check_same_bits(place.host(), e.host());
    }
  });
}

TEST_CASE("loss: what dx takes for the others' sum is the sum of rounded exponentials") {
  each_backend([]<class D>() {
    if constexpr (!takes_whole_rows<D>) {
      D dev(1);
      const Index columns = 40;
      Matrix<D, float> logits(dev, 3, columns, 1), top(dev, 1, 3, 2), others(dev, 1, 3, 3), target(dev, 1, 3, 4),
          rounded(dev, 1, 3, 5);
      Matrix<D, bf16> e(dev, 3, columns, 6);
      Matrix<D, std::int32_t> label(dev, 1, 3, std::vector<std::int32_t>{2, 5, 39});
      kernel::softmax_block<bf16>(dev, logits.view(), label.in(), 0, top.view(), others.view(), target.view(), e.view(),
                                  rounded.view(), {});
      std::vector<double> sums(3), bounds(3);
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < columns; ++j) sums[i] += real(e.host()[i * columns + j]);
        bounds[i] = columns * roundoff<float> * sums[i];
        CHECK(std::fabs(real(others.host()[i]) - sums[i]) > 10 * bounds[i]);  // which rounding has moved by far more
      }
      check_near(rounded.host(), sums, bounds);
    }
  });
}

TEST_CASE("loss: a label that is all but certain keeps the digits of its gradient") {
  each_backend([]<class D>() {
    if constexpr (takes_whole_rows<D>) return;  // there it is p - 1
    D dev(1);
    std::vector<float> values(20, -18.0f);
    values[3] = 0;
    Matrix<D, float> logits(dev, 1, 20, values);
    const auto result = run<float>(dev, logits, {3}, 8);
    const double others = 19 * std::exp(-18.0);  // 2.9e-7: of p - 1 in float32 a digit or two would be left
    CHECK(result.gradient[3] == doctest::Approx(-scale * others / (1 + others)).epsilon(1e-6));
  });
}

TEST_CASE("loss: a logit that is not a number shows in the loss") {
  each_backend([]<class D>() {
    D dev(1);
    for (const Index bad : {0, 1, 2, 30}) {
      std::vector<float> values(31, 1.0f);
      values[static_cast<std::size_t>(bad)] = std::numeric_limits<float>::quiet_NaN();
      Matrix<D, float> logits(dev, 1, 31, values);
      CHECK(std::isnan(run<float>(dev, logits, {2}, 8).loss[0]));
    }
  });
}

TEST_CASE("loss: the gradient is exact by complex step") {
  using C = std::complex<double>;
  Cpu dev(1);
  const Index n = 4, vocabulary = 11;
  Matrix<Cpu, double> logits(dev, n, vocabulary, 1);
  Matrix<Cpu, C> z(dev, n, vocabulary, 1);
  const auto labels = some_labels(n, vocabulary);
  for (const Index width : {Index{4}, vocabulary}) {
    auto result = run<double>(dev, logits, labels, width);
    const auto loss = [&] {
      C total = 0;
      for (const C& value : run<C>(dev, z, labels, width).loss) total += scale * value;
      return total;
    };
    for (auto* gradient : {&result.gradient, &result.logit_gradient})
      CHECK(gradient_error(std::span<double>(*gradient), complex_step(elements(z.view()), loss)) < 1e-12);
  }
}

TEST_CASE("loss: the gradient through a soft cap is exact by complex step") {
  using C = std::complex<double>;
  Cpu dev(1);
  const Index n = 4, vocabulary = 11;
  constexpr double cap = 0.8;
  Matrix<Cpu, double> logits(dev, n, vocabulary, 1);
  Matrix<Cpu, C> z(dev, n, vocabulary, 1);
  kernel::soft_cap<double>(dev, logits.view(), cap);
  const auto labels = some_labels(n, vocabulary);
  for (const Index width : {Index{4}, vocabulary}) {
    auto result = run<double>(dev, logits, labels, width, 0, cap);
    const auto loss = [&] {
      Matrix<Cpu, C> capped(dev, n, vocabulary, z.host());
      kernel::soft_cap<C>(dev, capped.view(), cap);
      C total = 0;
      for (const C& value : run<C>(dev, capped, labels, width).loss) total += scale * value;
      return total;
    };
    for (auto* gradient : {&result.gradient, &result.logit_gradient})
      CHECK(gradient_error(std::span<double>(*gradient), complex_step(elements(z.view()), loss)) < 1e-12);
  }
}

TEST_CASE("loss: a soft cap equals the formula, near 0 and far from it") {
  each_backend([]<class D>() {
    if constexpr (kernel::HasSoftCap<D, float>) {
      D dev(2);
      for (const double cap : {0.5, 30.0}) {
        std::vector<float> values = random_values<float>(70, 1, -4 * cap, 4 * cap);
        for (std::size_t i = 0; i < 20; ++i) values[i] *= 1e-6f;
        values[20] = 0;
        values[21] = std::numeric_limits<float>::infinity();
        Matrix<D, float> x(dev, 5, 14, values, 3);
        std::vector<double> expected, bound;
        for (const float value : values) {
          expected.push_back(cap * std::tanh(static_cast<double>(value) / cap));
          // tanh is within 2 units in the last place, its argument and the product are rounded.
          bound.push_back(7 * roundoff<float> * std::fabs(expected.back()));
        }
        kernel::soft_cap<float>(dev, x.view(), cap);
        check_near(x.host(), expected, bound);
      }
    }
  });
}

TEST_CASE("loss: the number of threads doesn't change a bit") {
  each_type([]<class T>() {
    Run<T> first;
    for (const int threads : {1, 2, 3}) {
      Cpu dev(threads);
      Matrix<Cpu, Accum<T>> logits(dev, 100, 130, 1);
      const auto result = run<T>(dev, logits, some_labels(100, 130), 64);
      if (threads == 1) first = result;
      check_same_bits(result.loss, first.loss);
      check_same_bits(result.gradient, first.gradient);
      check_same_bits(result.logit_gradient, first.logit_gradient);
    }
  });
}

}  // namespace loss_test
