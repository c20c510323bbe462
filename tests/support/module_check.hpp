#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lora/nn/lora_linear.hpp"
#include "lora/nn/rms_norm.hpp"
#include "support/backends.hpp"
#include "support/effort.hpp"
#include "support/gradcheck.hpp"
#include "support/layer_reference.hpp"

namespace lora::test {

/// float and double on the CPU, float on the proof device. What bfloat16 rounds, tests of kernels and of LoraLinear
/// see.
template <class Body>
void each_backend_of_modules(const Body& body) {
  SUBCASE("cpu, f32") { body.template operator()<cpu::Device, float>(); }
  if (effort(true, false, "modules in f64")) SUBCASE("cpu, f64") {
      body.template operator()<cpu::Device, double>();
    }
  SUBCASE("proof, f32") { body.template operator()<proof::Device, float>(); }
}

/// Relative, of numbers that a few short sums lead to.
template <class T>
inline constexpr double module_tolerance = 128 * roundoff<T>;

/// Rows of three sequences.
struct SomeRows {
  static constexpr Index count = 9;
  std::vector<std::int32_t> positions{0, 1, 2, 3, 0, 0, 1, 2, 3}, places{0, 0, 0, 0, 1, 2, 2, 2, 2};
  std::vector<kernel::Segment> segments{{0, 4}, {4, 5}, {5, 9}};
  nn::Batch view() const { return {positions, positions, places, segments}; }
};

/// Projections of one x, as a module and as plain matrices; ranks of 0 leave one frozen.
struct SomeLinears {
  std::vector<reference::Linear> parts;

  SomeLinears(Index in, const std::vector<Index>& out, const std::vector<Index>& ranks, bool biased,
              std::uint64_t key) {
    for (std::size_t j = 0; j < out.size(); ++j) {
      const auto part_key = mix_key(key, j);
      reference::Linear linear{reference::random_matrix(out[j], in, part_key, -0.5, 0.5), {}, {}, {}, 2.0};
      if (biased) linear.bias = reference::random_matrix(1, out[j], part_key + 1);
      if (ranks[j] > 0) {
        linear.a = reference::random_matrix(ranks[j], in, part_key + 2, -0.5, 0.5);
        linear.b = reference::random_matrix(out[j], ranks[j], part_key + 3, -0.5, 0.5);
      }
      parts.push_back(std::move(linear));
    }
  }

  reference::Matrix of(const reference::Matrix& x, std::size_t j) const { return reference::linear(x, parts[j]); }

  /// What trains goes to `params`, which is still to be built.
  template <class D, class T>
  nn::LoraLinear<D, T> module(D& dev, nn::ParamStore<D, T>& params) const {
    std::vector<std::pair<std::string, nn::Linear<D, T>>> linears;
    std::vector<nn::LoraRank> ranks;
    for (std::size_t j = 0; j < parts.size(); ++j) {
      const auto& part = parts[j];
      const auto held = std::make_shared<Tensor<D, T>>(tensor_of<T>(dev, part.w.as<T>(), part.w.rows, part.w.cols));
      const StoredView<D> stored(held->view().data(), dtype_of<T>, part.w.rows, part.w.cols);
      nn::Linear<D, T> linear{nn::Weight<D>(stored, held)};
      if (!part.bias.empty()) linear.bias = tensor_of<Accum<T>>(dev, part.bias.as<Accum<T>>(), 1, part.bias.cols);
      linears.emplace_back(concat("part ", j), std::move(linear));
      ranks.push_back({part.a.rows, part.scale});
    }
    nn::LoraLinear<D, T> module(std::move(linears), 1);
    module.attach(params, "", ranks, 0);
    return module;
  }

  /// Everything that trains, in the order in which a store gets it.
  void add_trained(std::vector<reference::Matrix*>& trained) {
    for (auto& part : parts)
      if (!part.a.empty()) {
        trained.push_back(&part.a);
        trained.push_back(&part.b);
      }
  }
};

template <class D, class T>
nn::RmsNorm<D, T> norm_of(D& dev, const reference::Matrix& weight, double eps) {
  return {tensor_of<Accum<T>>(dev, weight.as<Accum<T>>(), 1, weight.cols), eps};
}

/// Builds the store and fills it with the formula's matrices.
template <class D, class T>
void build(D& dev, nn::ParamStore<D, T>& params, const std::vector<reference::Matrix*>& trained) {
  if (trained.empty()) return;
  params.build(dev);
  std::size_t count = 0;
  params.for_each([&](const nn::ParamRef<D, T>& param) {
    REQUIRE(count < trained.size());
    const reference::Matrix& from = *trained[count++];
    const auto values = (param.transposed ? reference::transposed(from) : from).template as<Accum<T>>();
    copy_from_host<D, Accum<T>>(dev, values, param.value);
    dev.synchronize();
  });
  REQUIRE(count == trained.size());
  params.refresh(dev);
}

/// The gradients of what trains, each in the order of the formula's matrix.
template <class D, class T>
std::vector<std::vector<double>> gradients_of(D& dev, nn::ParamStore<D, T>& params) {
  std::vector<std::vector<double>> result;
  params.for_each([&](const nn::ParamRef<D, T>& param) {
    reference::Matrix grad(param.grad.rows(), param.grad.cols());
    const auto values = to_host(dev, param.grad);
    std::copy(values.begin(), values.end(), grad.values.begin());
    result.push_back((param.transposed ? reference::transposed(grad) : grad).template as<double>());
  });
  return result;
}

/// Gradients against those of loss(), which reads `trained`: relative errors in the Euclidean norm.
template <class T, class Loss>
void check_gradients(const std::vector<std::vector<double>>& grads, const std::vector<reference::Matrix*>& trained,
                     const Loss& loss) {
  REQUIRE(grads.size() == trained.size());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    CAPTURE(i);
    CHECK(gradient_error(std::span<const double>(grads[i]), complex_step(trained[i]->values, loss)) <
          module_tolerance<T>);
  }
}

/// A module, whose store is still to be built, against its formula y = formula(x), which reads `trained`: y, dx and the
/// gradients of Σ g ∘ y. All that it may keep or leave out gives the same bits.
template <class D, class T, class M, class Formula>
void check_module(D& dev, M& module, nn::ParamStore<D, T>& params, const Formula& formula,
                  const std::vector<reference::Matrix*>& trained, Index width) {
  static_assert(nn::Module<M, D, T>);
  const SomeRows rows;
  const nn::Pass<D, T> pass(dev, rows.view());
  reference::Matrix x = reference::random_matrix(rows.count, width, 91);
  const reference::Matrix y_expected = formula(x), g = reference::random_matrix(rows.count, y_expected.cols, 92);
  const auto loss = [&] { return reference::dot(g, formula(x)); };
  build(dev, params, trained);
  CHECK(module.trains() == !trained.empty());

  struct Outcome {
    std::vector<T> y, dx;
    std::vector<std::vector<double>> grads;
  };
  enum class Dx { none, apart, in_place };
  const auto run = [&](nn::Keep keep, Dx place) {
    Matrix<D, T> in(dev, x.rows, x.cols, x.as<T>()), y(dev, g.rows, g.cols, 93), dy(dev, g.rows, g.cols, g.as<T>());
    Matrix<D, T> other(dev, x.rows, x.cols, 94), &dx = place == Dx::in_place ? dy : other;
    const Arena::Scope scope(dev.arena());
    const Arena::SavedScope saved_here(dev.arena());
    params.zero_grad(dev);
    typename M::Saved saved;
    module.forward(dev, pass, in.in(), y.view(), saved, keep);
    Outcome outcome{y.host(), {}, {}};
    if (keep == nn::Keep::nothing) return outcome;
    if (keep == nn::Keep::attention) {
      if constexpr (requires { module.recompute(dev, pass, in.in(), saved); })
        module.recompute(dev, pass, in.in(), saved);
      if constexpr (requires { module.recompute(dev, pass, in.in(), y.view(), saved); })
        module.recompute(dev, pass, in.in(), y.view(), saved);
    }
    module.backward(dev, pass, in.in(), saved, dy.in(), place == Dx::none ? View<D, T>() : dx.view());
    if (place != Dx::none) outcome.dx = dx.host();
    outcome.grads = gradients_of(dev, params);
    return outcome;
  };

  const Outcome whole = run(nn::Keep::all, Dx::apart);
  CHECK(gradient_error(std::span<const T>(whole.y), y_expected.as<double>()) < module_tolerance<T>);
  CHECK(gradient_error(std::span<const T>(whole.dx), complex_step(x.values, loss)) < module_tolerance<T>);
  check_gradients<T>(whole.grads, trained, loss);

  check_same_bits(run(nn::Keep::nothing, Dx::none).y, whole.y);
  const Outcome recomputed = run(nn::Keep::attention, Dx::apart), in_place = run(nn::Keep::all, Dx::in_place);
  check_same_bits(recomputed.y, whole.y);
  check_same_bits(recomputed.dx, whole.dx);
  check_same_bits(in_place.dx, whole.dx);
  CHECK(recomputed.grads == whole.grads);
  CHECK(in_place.grads == whole.grads);
  CHECK(run(nn::Keep::all, Dx::none).grads == whole.grads);
}

}  // namespace lora::test
