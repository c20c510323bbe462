#include "lora/cpu/kernels/optimizer.hpp"

#include <doctest/doctest.h>

#include "support/backends.hpp"
#include "support/matrix.hpp"

namespace optimizer_test {

namespace {

using namespace lora;
using namespace lora::test;
using Cpu = cpu::Device;

}  // namespace

TEST_CASE("optimizer: adamw equals the formula step after step") {
  each_backend_and_type([]<class D, class T>() {
    using A = Accum<T>;
    if constexpr (std::is_same_v<T, A>) {
      D dev(2);
      for (const auto& extents : {Shape{1, 1}, Shape{0, 4}, Shape{3, 7}, Shape{16, 576}, Shape{1, 9001}}) {
        const Index rows = extents[0], cols = extents[1];
        CAPTURE(cols);
        Matrix<D, A> value(dev, rows, cols, 1),
            m(dev, rows, cols, std::vector<A>(static_cast<std::size_t>(rows * cols)));
        Matrix<D, A> v(dev, rows, cols, std::vector<A>(static_cast<std::size_t>(rows * cols)));
        std::vector<double> w, mean(static_cast<std::size_t>(rows * cols)), square = mean, bound = mean;
        for (const A& x : value.host()) w.push_back(real(x));
        kernel::AdamWStep step{.learning_rate = 0.01, .weight_decay = 0.1, .gradient_scale = 0.5};
        for (step.step = 1; step.step <= 5; ++step.step) {
          Matrix<D, A> grad(dev, rows, cols, static_cast<std::uint64_t>(step.step), 5);
          const auto g = grad.host();
          const auto t = static_cast<double>(step.step);
          for (std::size_t i = 0; i < w.size(); ++i) {
            const double scaled = 0.5 * real(g[i]);
            mean[i] = 0.9 * mean[i] + 0.1 * scaled;
            square[i] = 0.999 * square[i] + 0.001 * scaled * scaled;
            w[i] -= 0.01 * 0.1 * w[i];
            w[i] -= 0.01 / (1 - std::pow(0.9, t)) * mean[i] / (std::sqrt(square[i] / (1 - std::pow(0.999, t))) + 1e-8);
            // A step moves a value by at most lr / √(1 − β₂) = 0.32; its error is a few roundings of the mean, which
            // may have canceled from gradients below 0.5 at a root of v that is at least √(0.001) of the largest.
            bound[i] += roundoff<A> * (3 * std::fabs(w[i]) + 0.01 * 40);
          }
          kernel::adamw<T>(dev, step, grad.in(), value.view(), m.view(), v.view());
          check_near(value.host(), w, bound);
        }
      }
    }
  });
}

TEST_CASE("optimizer: numbers that PyTorch gives") {
  each_backend([]<class D>() {
    // torch.optim.AdamW([w], lr=0.1, weight_decay=0.01) in float64, gradients 0.5, -1, 2 and then -0.25, 1, 0.
    using A = typename D::Sum;  // the widest that it has
    D dev(1);
    Matrix<D, A> w(dev, 1, 3, std::vector<A>{1, -2, 0.25}), m(dev, 1, 3, std::vector<A>(3)),
        v(dev, 1, 3, std::vector<A>(3));
    kernel::AdamWStep step{.learning_rate = 0.1, .weight_decay = 0.01};
    Matrix<D, A> first(dev, 1, 3, std::vector<A>{0.5, -1, 2}), second(dev, 1, 3, std::vector<A>{-0.25, 1, 0});
    kernel::adamw<A>(dev, step, first.in(), w.view(), m.view(), v.view());
    step.step = 2;
    kernel::adamw<A>(dev, step, second.in(), w.view(), m.view(), v.view());
    const std::vector<double> expected{0.8714672987058463, -1.9013651588411051, 0.0825944255597674};
    check_near(w.host(), expected, std::vector<double>(3, std::same_as<A, double> ? 1e-15 : 16 * roundoff<float>));
  });
}

TEST_CASE("optimizer: the number of threads doesn't change a bit") {
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    Cpu dev(threads);
    Matrix<Cpu, float> value(dev, 3, 9001, 1), m(dev, 3, 9001, 2), grad(dev, 3, 9001, 4);
    Matrix<Cpu, float> v(dev, 3, 9001, random_values<float>(3 * 9001, 3, 0, 1));
    kernel::adamw<float>(dev, {.learning_rate = 0.1}, grad.in(), value.view(), m.view(), v.view());
    if (threads == 1) first = value.host();
    check_same_bits(value.host(), first);
  }
}

}  // namespace optimizer_test
