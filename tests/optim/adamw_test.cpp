#include "lora/optim/adamw.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lora/cpu/elementwise.hpp"
#include "lora/cpu/optimizer.hpp"
#include "lora/cpu/reduce.hpp"
#include "lora/optim/clip.hpp"
#include "support/proof_kernels.hpp"

namespace adamw_test {

using namespace lora;
using namespace lora::optim;
using Dev = cpu::Device;

namespace {

/// Two parameters, w (2, 3) and b (1, 2), with gradients that change from step to step.
template <class T>
struct Problem {
  Dev dev{2};
  nn::ParamStore<Dev, T> params{};
  nn::Param<Dev, T> w = params.add(2, 3), b;
  Tensor<Dev, double> norm{dev, 1, 1};

  /// b is of `group`.
  explicit Problem(Index group = 0) : b(params.add(1, 2, group)) {
    params.name(w, "w", 0, 2);
    params.name(b, "b", 0, 1);
    params.build(dev);
    copy_from_host<Dev, T>(dev, std::vector<T>{0.5, -1.25, 2.0, 0.125, 3.0, -0.75}, w.value());
    copy_from_host<Dev, T>(dev, std::vector<T>{1.0, -2.0}, b.value());
  }

  void make_gradients(int s) {
    std::vector<T> gw, gb{static_cast<T>(0.25 * (s - 2)), static_cast<T>(s % 2 == 0 ? 1.5 : -1.5)};
    for (int i = 0; i < 3; ++i) gw.push_back(static_cast<T>(std::sin(1.0 * s + i)));
    for (int i = 0; i < 3; ++i) gw.push_back(static_cast<T>(2 * std::cos(0.5 * s + i)));
    if (w.trains()) copy_from_host<Dev, T>(dev, gw, w.grad());
    if (b.trains()) copy_from_host<Dev, T>(dev, gb, b.grad());
  }
  double gradient_norm() {
    kernel::fill(dev, norm.view(), 0.0);
    add_squared_norm(dev, params, norm.view());
    return std::sqrt(to_host(dev, norm.view())[0]);
  }
  std::vector<T> values() {
    auto all = to_host(dev, w.value());
    for (const T value : to_host(dev, b.value())) all.push_back(value);
    return all;
  }
};

constexpr AdamWSettings settings{0.8, 0.95, 1e-6, 0.1};
constexpr double factors[] = {0.0, 0.5, 1.0, 0.75, 0.5, 0.25};

}  // namespace

TEST_CASE("adamw: six clipped steps with weight decay equal PyTorch's") {
  // torch.optim.AdamW(lr=1e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1) after clip_grad_norm_(params, 2)
  const double norms[] = {3.145681858062744, 3.087920665740967, 3.074125289916992,
                          3.14957857131958,  3.223726272583008, 3.2395384311676025};
  const double expected[] = {0.479634613, -1.25875771,  1.99662471, 0.10266652,
                             2.99721718,  -0.718388915, 1.00676835, -1.9968226};
  Problem<float> problem;
  AdamW<Dev, float> optimizer(problem.dev, problem.params, settings);
  for (int s = 0; s < 6; ++s) {
    problem.make_gradients(s);
    const double norm = problem.gradient_norm();
    CHECK(norm == doctest::Approx(norms[s]).epsilon(1e-6));
    optimizer.step(problem.dev, 1e-2 * factors[s], clip_factor(norm, 2));
  }
  CHECK(optimizer.updates() == 6);
  const auto values = problem.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    // Six roundings of values below 4, and of their updates in another order of operations.
    CHECK(values[i] == doctest::Approx(expected[i]).scale(1).epsilon(6 * 0x1p-22));
  }
}

TEST_CASE("adamw: in double it is the published formula") {
  Problem<double> problem;
  AdamW<Dev, double> optimizer(problem.dev, problem.params, settings);
  auto w = problem.values();
  std::vector<double> m(w.size()), v(w.size());
  for (int s = 0; s < 6; ++s) {
    problem.make_gradients(s);
    auto g = to_host(problem.dev, problem.w.grad());
    for (const double value : to_host(problem.dev, problem.b.grad())) g.push_back(value);
    const double lr = 1e-2 * factors[s], scale = 0.5;
    optimizer.step(problem.dev, lr, scale);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= lr * 0.1 * w[i];
      m[i] = 0.8 * m[i] + 0.2 * scale * g[i];
      v[i] = 0.95 * v[i] + 0.05 * scale * g[i] * scale * g[i];
      const double m_hat = m[i] / (1 - std::pow(0.8, s + 1)), v_hat = v[i] / (1 - std::pow(0.95, s + 1));
      w[i] -= lr * m_hat / (std::sqrt(v_hat) + 1e-6);
    }
  }
  const auto values = problem.values();
  for (std::size_t i = 0; i < w.size(); ++i) CHECK(values[i] == doctest::Approx(w[i]).epsilon(1e-14));
}

TEST_CASE("adamw: state taken out and put into another optimizer goes on with the same bits") {
  Problem<float> whole, half;
  AdamW<Dev, float> one(whole.dev, whole.params, settings), first(half.dev, half.params, settings);
  for (int s = 0; s < 3; ++s) {
    for (auto* problem : {&whole, &half}) problem->make_gradients(s);
    one.step(whole.dev, 1e-2, 1);
    first.step(half.dev, 1e-2, 1);
  }
  std::vector<std::string> names;
  std::vector<std::vector<float>> state;
  first.for_each_state([&](const auto& tensor) {
    names.push_back(tensor.name);
    state.push_back(to_host(half.dev, tensor.own));
  });
  CHECK(names == std::vector<std::string>{"w.exp_avg", "w.exp_avg_sq", "b.exp_avg", "b.exp_avg_sq"});

  AdamW<Dev, float> second(half.dev, half.params, settings);
  second.set_updates(first.updates());
  std::size_t next = 0;
  second.for_each_state([&](const auto& tensor) { copy_from_host<Dev, float>(half.dev, state[next++], tensor.own); });
  for (int s = 3; s < 6; ++s) {
    for (auto* problem : {&whole, &half}) problem->make_gradients(s);
    one.step(whole.dev, 1e-2, 1);
    second.step(half.dev, 1e-2, 1);
  }
  CHECK(whole.values() == half.values());
}

TEST_CASE("adamw: groups have their own learning rate and decay") {
  Problem<float> problem(1), fast, slow;
  AdamW<Dev, float> both(problem.dev, problem.params, settings, {{1, 0.1}, {4, 0}});
  AdamW<Dev, float> one(fast.dev, fast.params, settings), other(slow.dev, slow.params, {0.8, 0.95, 1e-6, 0});
  for (int s = 0; s < 4; ++s) {
    for (auto* each : {&problem, &fast, &slow}) each->make_gradients(s);
    both.step(problem.dev, 1e-2, 1);
    one.step(fast.dev, 1e-2, 1);
    other.step(slow.dev, 4e-2, 1);
  }
  CHECK(to_host(problem.dev, problem.w.value()) == to_host(fast.dev, fast.w.value()));
  CHECK(to_host(problem.dev, problem.b.value()) == to_host(slow.dev, slow.b.value()));
}

TEST_CASE("adamw: state on another device than the parameters gives the same bits") {
  Problem<float> here, beside;
  proof::Device host(1);
  {
    AdamW<Dev, float> optimizer(here.dev, here.params, settings);
    AdamW<Dev, float, proof::Device> offloaded(beside.dev, host, beside.params, settings);
    for (int s = 0; s < 6; ++s) {
      for (auto* each : {&here, &beside}) each->make_gradients(s);
      optimizer.step(here.dev, 1e-2, 0.5);
      offloaded.step(beside.dev, 1e-2, 0.5);
    }
    std::vector<std::vector<float>> states[2];
    optimizer.for_each_state([&](const auto& tensor) { states[0].push_back(to_host(here.dev, tensor.own)); });
    offloaded.for_each_state([&](const auto& tensor) { states[1].push_back(to_host(host, tensor.own)); });
    CHECK(states[0] == states[1]);
  }
  CHECK(here.values() == beside.values());
}

TEST_CASE("adamw: what begins to train later counts its own updates, what is frozen stays") {
  // As torch.optim.AdamW does with parameters whose gradient is None.
  Problem<double> problem;
  AdamW<Dev, double> optimizer(problem.dev, problem.params, settings);
  Problem<double> w_alone, b_alone;
  AdamW<Dev, double> of_w(w_alone.dev, w_alone.params, settings), of_b(b_alone.dev, b_alone.params, settings);
  const auto only = [](std::string_view wanted) { return [=](std::string_view name) { return name == wanted; }; };
  problem.params.train(problem.dev, only("w"));
  optimizer.follow(problem.dev);
  const auto before = to_host(problem.dev, problem.b.value());
  for (int s = 0; s < 3; ++s) {
    for (auto* each : {&problem, &w_alone}) each->make_gradients(s);
    optimizer.step(problem.dev, 1e-2, 1);
    of_w.step(w_alone.dev, 1e-2, 1);
  }
  CHECK(to_host(problem.dev, problem.b.value()) == before);
  problem.params.train(problem.dev, [](std::string_view) { return true; });
  optimizer.follow(problem.dev);
  for (int s = 3; s < 6; ++s) {
    for (auto* each : {&problem, &w_alone, &b_alone}) each->make_gradients(s);
    optimizer.step(problem.dev, 1e-2, 1);
    of_w.step(w_alone.dev, 1e-2, 1);
    of_b.step(b_alone.dev, 1e-2, 1);
  }
  CHECK(to_host(problem.dev, problem.w.value()) == to_host(w_alone.dev, w_alone.w.value()));
  CHECK(to_host(problem.dev, problem.b.value()) == to_host(b_alone.dev, b_alone.b.value()));
}

}  // namespace adamw_test
