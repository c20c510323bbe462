// A layer against its formula; checkpointing around it; a stack of them against the layers called one by one.

#include "lora/nn/block.hpp"

#include <doctest/doctest.h>

#include "lora/nn/stack.hpp"
#include "support/some_attention.hpp"

namespace block_test {

namespace {

using namespace lora;
using namespace lora::test;

struct Subject {
  static constexpr Index e = SomeAttention::e, f = 14;
  SomeAttention attention;
  reference::Matrix norm = reference::random_matrix(1, e, 21, 0.5, 1.5);
  reference::Matrix post_norm{};  // empty: none
  kernel::Gate gate = kernel::Gate::silu;
  SomeLinears gate_up, down;

  Subject(Index attention_rank, Index mlp_rank)
      : attention({attention_rank, attention_rank, attention_rank}, attention_rank, true, true),
        gate_up(e, {f, f}, {mlp_rank, mlp_rank}, false, 22),
        down(f, {e}, {mlp_rank}, false, 23) {}

  reference::Matrix of(const reference::Matrix& x) const {
    const auto h = attention.of(x);
    const auto normed = reference::rms_norm(h, norm, attention.eps);
    const auto branch = down.of(reference::gated_unit(gate, gate_up.of(normed, 0), gate_up.of(normed, 1)), 0);
    return h + (post_norm.empty() ? branch : reference::rms_norm(branch, post_norm, attention.eps));
  }

  template <class D, class T>
  nn::Block<D, T> module(D& dev, nn::ParamStore<D, T>& params, const nn::Rotary<D, T>& rotary) const {
    auto first = attention.module(dev, params, rotary);
    auto in = gate_up.module(dev, params), out = down.module(dev, params);
    nn::PostNorm<D, T> behind;
    if (!post_norm.empty()) behind = nn::PostNorm<D, T>(norm_of<D, T>(dev, post_norm, attention.eps));
    return {std::move(first), nn::Mlp<D, T>(norm_of<D, T>(dev, norm, attention.eps), std::move(in), std::move(out),
                                            gate, std::move(behind))};
  }

  /// With norms behind both halves and GELU, and with a cap of attention's scores where the device has caps.
  template <class D>
  Subject as_gemma() const {
    Subject other = *this;
    other.attention.post_norm = reference::random_matrix(1, e, 25, 0.5, 1.5);
    other.post_norm = reference::random_matrix(1, e, 26, 0.5, 1.5);
    other.gate = kernel::Gate::gelu_tanh;
    if (kernel::HasSoftCap<D, float>) other.attention.shape.cap = 0.7;
    return other;
  }

  std::vector<reference::Matrix*> trained() {
    std::vector<reference::Matrix*> result;
    attention.add_trained(result);
    gate_up.add_trained(result);
    down.add_trained(result);
    return result;
  }

  template <class D, class T>
  void check(bool recompute) {
    D dev(2);
    const auto rotary = attention.rotary<D, T>(dev);
    nn::ParamStore<D, T> params;
    nn::Recomputed<nn::Block<D, T>> block(module(dev, params, rotary));
    block.recompute(recompute);
    const auto formula = [&](const reference::Matrix& x) { return of(x); };
    if (recompute) {
      check_module(dev, block, params, formula, trained(), e);
    } else {
      check_module(dev, block.inner(), params, formula, trained(), e);
    }
  }
};

}  // namespace

TEST_CASE("block: y, dx and all gradients equal the formula, whichever half trains") {
  each_backend_of_modules([]<class D, class T>() {
    Subject(2, 2).check<D, T>(false);
    Subject(0, 2).check<D, T>(false);
    Subject(2, 0).check<D, T>(false);
  });
}

TEST_CASE("block: the same under gradient checkpointing") {
  each_backend_of_modules([]<class D, class T>() { Subject(2, 2).check<D, T>(true); });
}

TEST_CASE("block: the same with norms behind both halves, GELU and a cap, kept and under gradient checkpointing") {
  each_backend_of_modules([]<class D, class T>() {
    for (const bool recompute : {false, true}) {
      Subject(2, 2).as_gemma<D>().template check<D, T>(recompute);
      Subject(0, 2).as_gemma<D>().template check<D, T>(recompute);
      Subject(2, 0).as_gemma<D>().template check<D, T>(recompute);
    }
  });
}

TEST_CASE("stack: its layers one after the other, kept from the lowest that trains on, equal the formula") {
  each_backend_of_modules([]<class D, class T>() {
    D dev(2);
    const SomeRows rows;
    const nn::Pass<D, T> pass(dev, rows.view());
    Subject layers[] = {{0, 0}, {0, 2}, {2, 0}};
    const auto rotary = layers[0].attention.template rotary<D, T>(dev);
    nn::ParamStore<D, T> params;
    nn::Stack<D, T> stack;
    std::vector<reference::Matrix*> trained;
    for (Subject& layer : layers) {
      stack.push_back(typename nn::Stack<D, T>::Layer(layer.module(dev, params, rotary)));
      for (reference::Matrix* matrix : layer.trained()) trained.push_back(matrix);
    }
    build(dev, params, trained);
    CHECK(stack.first_trained() == 1);
    const auto x = reference::random_matrix(rows.count, Subject::e, 31);
    const auto g = reference::random_matrix(rows.count, Subject::e, 32);
    const auto y_of = [&] { return layers[2].of(layers[1].of(layers[0].of(x))); };
    const auto loss = [&] { return reference::dot(g, y_of()); };

    Matrix<D, T> in(dev, x.rows, x.cols, x.as<T>()), y(dev, x.rows, x.cols, 33);
    std::vector<std::vector<T>> outputs;
    std::vector<std::size_t> kept;  // bytes
    std::vector<std::vector<std::vector<double>>> gradients;
    const std::size_t mark = dev.arena().mark();
    for (const bool recompute : {false, true}) {
      for (Index i = 0; i < stack.size(); ++i) stack.layer(i).recompute(recompute);
      params.zero_grad(dev);
      Matrix<D, T> dy(dev, g.rows, g.cols, g.as<T>());
      typename nn::Stack<D, T>::Saved saved;
      stack.forward(dev, pass, in.in(), y.view(), saved, nn::Keep::nothing);
      outputs.push_back(y.host());
      CHECK(saved.entries.empty());
      CHECK(dev.arena().mark() == mark);
      stack.forward(dev, pass, in.in(), y.view(), saved, nn::Keep::all);
      outputs.push_back(y.host());
      CHECK(saved.entries.size() == 2);
      kept.push_back(dev.arena().mark() - mark);
      stack.backward(dev, pass, saved, dy.view());
      CHECK(dev.arena().mark() == mark);
      gradients.push_back(gradients_of(dev, params));
    }
    CHECK(gradient_error(std::span<const T>(outputs[0]), y_of().template as<double>()) < 2 * module_tolerance<T>);
    for (const auto& output : outputs) check_same_bits(output, outputs[0]);
    check_gradients<T>(gradients[0], trained, loss);
    CHECK(gradients[1] == gradients[0]);
    CHECK(kept[1] < kept[0]);
  });
}

}  // namespace block_test
