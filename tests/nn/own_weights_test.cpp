// Modules whose own weights, biases and norms train, with adapters beside them or without, against their formulas.

#include <doctest/doctest.h>

#include "lora/nn/embedding.hpp"
#include "lora/nn/head.hpp"
#include "lora/nn/stack.hpp"
#include "support/effort.hpp"
#include "support/some_attention.hpp"

namespace own_weights_test {

namespace {

using namespace lora;
using namespace lora::test;

/// Collects what trains: gives it to the store, and remembers the formula's matrix for it.
template <class D, class T>
struct Training {
  nn::ParamStore<D, T>& params;
  std::vector<reference::Matrix*>& trained;

  template <class Tensor>
  void add(Tensor& tensor, reference::Matrix& matrix) {
    tensor.add_to(params, concat("tensor ", trained.size()), matrix.rows > 1 ? 0 : 1);
    trained.push_back(&matrix);
  }
  void add_weights(nn::LoraLinear<D, T>& module, SomeLinears& formula) {
    for (std::size_t j = 0; j < formula.parts.size(); ++j) add(module.linear(j).weight, formula.parts[j].w);
  }
  void add_biases(nn::LoraLinear<D, T>& module, SomeLinears& formula) {
    for (std::size_t j = 0; j < formula.parts.size(); ++j) add(module.linear(j).bias, formula.parts[j].bias);
  }
};

struct What {
  bool weights = true, biases = true, norms = true;
};

template <class D, class T>
void check_attention(SomeAttention subject, const What& what) {
  D dev(2);
  const auto rotary = subject.rotary<D, T>(dev);
  nn::ParamStore<D, T> params;
  auto module = subject.module(dev, params, rotary);
  std::vector<reference::Matrix*> trained;
  subject.add_trained(trained);
  Training<D, T> training{params, trained};
  if (what.weights) {
    training.add_weights(module.qkv_proj(), subject.qkv);
    training.add_weights(module.o_proj(), subject.o);
  }
  if (what.biases && !subject.qk_norm) training.add_biases(module.qkv_proj(), subject.qkv);
  if (what.norms) {
    training.add(module.norm().weight, subject.norm);
    if (subject.qk_norm) {
      training.add(module.q_norm().weight, subject.q_norm);
      training.add(module.k_norm().weight, subject.k_norm);
    }
  }
  check_module(
      dev, module, params, [&](const reference::Matrix& x) { return subject.of(x); }, trained, subject.e);
}

struct SomeMlp {
  static constexpr Index e = 10, f = 14;
  static constexpr double eps = 1e-5;
  reference::Matrix norm = reference::random_matrix(1, e, 1, 0.5, 1.5);
  SomeLinears gate_up, down;

  explicit SomeMlp(Index rank) : gate_up(e, {f, f}, {rank, rank}, true, 2), down(f, {e}, {rank}, true, 3) {}

  reference::Matrix of(const reference::Matrix& x) const {
    const auto normed = reference::rms_norm(x, norm, eps);
    return x + down.of(reference::gated_unit(kernel::Gate::silu, gate_up.of(normed, 0), gate_up.of(normed, 1)), 0);
  }

  template <class D, class T>
  void check(const What& what) {
    D dev(2);
    nn::ParamStore<D, T> params;
    auto in = gate_up.module(dev, params), out = down.module(dev, params);
    nn::Mlp<D, T> module(norm_of<D, T>(dev, norm, eps), std::move(in), std::move(out));
    std::vector<reference::Matrix*> trained;
    gate_up.add_trained(trained);
    down.add_trained(trained);
    Training<D, T> training{params, trained};
    if (what.weights) {
      training.add_weights(module.gate_up_proj(), gate_up);
      training.add_weights(module.down_proj(), down);
    }
    if (what.biases) {
      training.add_biases(module.gate_up_proj(), gate_up);
      training.add_biases(module.down_proj(), down);
    }
    if (what.norms) training.add(module.norm().weight, norm);
    check_module(
        dev, module, params, [&](const reference::Matrix& x) { return of(x); }, trained, e);
  }
};

constexpr What all{}, only_weights{true, false, false}, only_biases{false, true, false}, only_norms{false, false, true};

}  // namespace

TEST_CASE("own weights: attention's projections, biases and norms") {
  each_backend_of_modules([]<class D, class T>() {
    check_attention<D, T>({{0, 0, 0}, 0, false, true}, all);
    check_attention<D, T>({{0, 0, 0}, 0, true, true}, all);
    check_attention<D, T>({{2, 0, 2}, 2, true, true}, all);  // beside an adapter
    if (!is_cpu<D> && !effort(true, false, "own weights: some of attention's alone, on the proof device")) return;
    check_attention<D, T>({{0, 0, 0}, 0, false, false}, only_weights);
    check_attention<D, T>({{0, 0, 0}, 0, false, true}, only_biases);
    check_attention<D, T>({{0, 0, 0}, 0, true, true}, only_norms);
  });
}

TEST_CASE("own weights: the MLP's projections, biases and norm") {
  each_backend_of_modules([]<class D, class T>() {
    SomeMlp(0).check<D, T>(all);
    SomeMlp(2).check<D, T>(all);
    SomeMlp(0).check<D, T>(only_weights);
    SomeMlp(0).check<D, T>(only_biases);
    SomeMlp(0).check<D, T>(only_norms);
  });
}

TEST_CASE("own weights: in bfloat16 products read the copy, and gradients are those of the rounded operands") {
  using D = cpu::Device;
  D dev(2);
  const Index n = 70, in = 32, out = 48;
  const auto w = random_values<float>(out * in, 1), bias = random_values<float>(out, 2);
  const auto x = random_values<bf16>(n * in, 3), dy = random_values<bf16>(n * out, 4);
  const auto held = std::make_shared<Tensor<D, float>>(tensor_of<float>(dev, w, out, in));
  nn::Linear<D, bf16> linear{nn::Weight<D>(StoredView<D>(held->view().data(), DType::f32, out, in), held)};
  linear.bias = tensor_of<float>(dev, bias, 1, out);
  std::vector<std::pair<std::string, nn::Linear<D, bf16>>> parts;
  parts.emplace_back("part", std::move(linear));
  nn::LoraLinear<D, bf16> module(std::move(parts), 1);
  const std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
  const std::vector<kernel::Segment> segments{{0, n}};
  const nn::Pass<D, bf16> pass(dev, nn::Batch{positions, positions, {}, segments});
  const Matrix<D, bf16> input(dev, n, in, x), gradient(dev, n, out, dy);
  Matrix<D, bf16> frozen(dev, n, out, 5), y(dev, n, out, 6), dx(dev, n, in, 7), dx_frozen(dev, n, in, 8);
  nn::LoraLinear<D, bf16>::Saved saved;
  module.forward(dev, pass, input.in(), frozen.view(), saved, nn::Keep::all);
  module.backward(dev, pass, input.in(), saved, gradient.in(), dx_frozen.view());

  nn::ParamStore<D, bf16> params;
  module.linear(0).weight.add_to(params, "weight", 0);
  module.linear(0).bias.add_to(params, "bias", 1);
  params.build(dev);
  module.linear(0).weight.start(dev, params);
  module.linear(0).bias.start(dev, params);
  params.refresh(dev);
  module.forward(dev, pass, input.in(), y.view(), saved, nn::Keep::all);
  module.backward(dev, pass, input.in(), saved, gradient.in(), dx.view());
  check_same_bits(y.host(), frozen.host());  // what is frozen is rounded alike where it is decoded
  check_same_bits(dx.host(), dx_frozen.host());
  const auto dw = to_host(dev, module.linear(0).weight.param().grad());
  const auto db = to_host(dev, module.linear(0).bias.param().grad());
  for (Index o = 0; o < out; ++o) {
    double sum = 0;
    for (Index r = 0; r < n; ++r) sum += real(dy[static_cast<std::size_t>(r * out + o)]);
    CHECK(std::fabs(db[static_cast<std::size_t>(o)] - sum) < static_cast<double>(n) * n * 0x1p-24);
    for (Index i = 0; i < in; ++i) {
      double product = 0;
      for (Index r = 0; r < n; ++r)
        product += real(dy[static_cast<std::size_t>(r * out + o)]) * real(x[static_cast<std::size_t>(r * in + i)]);
      CHECK(std::fabs(dw[static_cast<std::size_t>(o * in + i)] - product) < static_cast<double>(n) * n * 0x1p-24);
    }
  }
}

TEST_CASE("own weights: the table of an embedding gets the gradients of its tokens' rows") {
  each_backend_of_modules([]<class D, class T>() {
    for (const double scale : {1.0, 2.0}) {
      D dev(2);
      const Index vocabulary = 11, e = 16;
      const auto values = random_values<float>(vocabulary * e, 1);
      const auto held = std::make_shared<Tensor<D, float>>(tensor_of<float>(dev, values, vocabulary, e));
      nn::Embedding<D, T> embedding{nn::Weight<D>(StoredView<D>(held->view().data(), DType::f32, vocabulary, e), held)};
      nn::ParamStore<D, T> params;
      embedding.table.add_to(params, "table", 0);
      params.build(dev);
      embedding.table.start(dev, params);
      params.refresh(dev);
      const std::vector<std::int32_t> tokens{10, 0, 3, 3, 10, 3}, positions{0, 1, 2, 3, 4, 5};
      const std::vector<kernel::Segment> segments{{0, 6}};
      const nn::Pass<D, T> pass(dev, nn::Batch{tokens, positions, {}, segments});
      Matrix<D, T> y(dev, 6, e, 2), dy(dev, 6, e, 3), again(dev, 6, e, 3);
      const auto gradients = dy.host();
      embedding.scale = scale;
      embedding.forward(dev, pass, y.view());
      embedding.backward(dev, pass, dy.view());
      embedding.backward(dev, pass, again.view());  // added to
      const auto outputs = y.host();
      std::vector<double> expected(values.size());
      for (std::size_t i = 0; i < tokens.size(); ++i)
        for (std::size_t j = 0; j < static_cast<std::size_t>(e); ++j) {
          const auto at = static_cast<std::size_t>(tokens[i]) * static_cast<std::size_t>(e) + j;
          CHECK(real(outputs[i * static_cast<std::size_t>(e) + j]) == scale * static_cast<double>(values[at]));
          expected[at] += 2 * scale * real(gradients[i * static_cast<std::size_t>(e) + j]);
        }
      const auto found = to_host(dev, embedding.table.param().grad());
      for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(std::fabs(real(found[i]) - expected[i]) <= 6 * 4 * scale * roundoff<T>);
    }
  });
}

TEST_CASE("own weights: the head's gradient is that of its loss, whatever the chunks and blocks") {
  each_backend_of_modules([]<class D, class T>() {
    const Index n = 23, e = 16, v = 60;
    const double scale = 0.25;
    const auto x = reference::random_matrix(n, e, 1);
    auto w = reference::random_matrix(v, e, 2);
    std::vector<std::int32_t> label_values;
    for (Index i = 0; i < n; ++i) label_values.push_back(static_cast<std::int32_t>(i * 7 % v));
    double cap = 0;
    const auto loss = [&] {
      auto logits = reference::product(x, w);
      for (reference::Number& logit : logits.values)
        if (cap > 0) logit = cap * std::tanh(logit / cap);
      reference::Number total = 0;
      for (Index i = 0; i < n; ++i) {
        reference::Number sum = 0;
        for (Index j = 0; j < v; ++j) sum += std::exp(logits.at(i, j));
        total += std::log(sum) - logits.at(i, label_values[static_cast<std::size_t>(i)]);
      }
      return scale * total;
    };
    for (const double limit : {0.0, 0.8}) {
      if (limit > 0 && !kernel::HasSoftCap<D, T>) continue;
      cap = limit;
      const auto expected = complex_step(w.values, loss);
      for (const std::pair<Index, Index>& extents : {std::pair<Index, Index>{64, 64}, {16, 24}, {8, 16}}) {
        const Index rows = extents.first, columns = extents.second;
        CAPTURE(rows);
        D dev(2);
        Tiling tiling = dev.tiling();
        tiling.head_rows = rows;
        tiling.head_columns = columns;
        const auto held = std::make_shared<Tensor<D, T>>(tensor_of<T>(dev, w.as<T>(), v, e));
        nn::Head<D, T> head(nn::Weight<D>(StoredView<D>(held->view().data(), dtype_of<T>, v, e), held), tiling, cap);
        Matrix<D, std::int32_t> labels(dev, 1, n, label_values);
        const Matrix<D, T> input(dev, n, e, x.as<T>());
        std::vector<std::vector<T>> dx;
        nn::ParamStore<D, T> params;
        for (const bool trains : {false, true}) {
          if (trains) {
            head.weight().add_to(params, "lm_head.weight", 0);
            params.build(dev);
            head.weight().start(dev, params);
            params.refresh(dev);
          }
          Matrix<D, Accum<T>> row_loss(dev, 1, n, 3), target(dev, 1, n, 4), top(dev, 1, n, 5);
          Matrix<D, T> gradient(dev, n, e, 6);
          const nn::LossRows<D, T> outcome{row_loss.view(), target.view(), top.view()};
          head.loss(dev, input.in(), labels.in(), scale, gradient.view(), outcome);
          dx.push_back(gradient.host());
          if (trains) head.loss(dev, input.in(), labels.in(), scale, View<D, T>(), outcome);  // without gradients
        }
        check_same_bits(dx[1], dx[0]);
        const auto found = to_host(dev, head.weight().param().grad());
        CHECK(gradient_error(std::span<const T>(found), expected) < module_tolerance<T>);
      }
    }
  });
}

TEST_CASE("own weights: a stack hands its input's gradient on where it is wanted") {
  each_backend_of_modules([]<class D, class T>() {
    D dev(2);
    const SomeRows rows;
    const nn::Pass<D, T> pass(dev, rows.view());
    SomeAttention attention({0, 0, 0}, 0, true, true);
    SomeMlp mlp(0);
    const auto rotary = attention.template rotary<D, T>(dev);
    nn::ParamStore<D, T> params;
    nn::Stack<D, T> stack;
    for (int layer = 0; layer < 2; ++layer) {
      auto in = mlp.gate_up.module(dev, params), out = mlp.down.module(dev, params);
      stack.push_back(typename nn::Stack<D, T>::Layer(
          nn::Block<D, T>(attention.module(dev, params, rotary),
                          nn::Mlp<D, T>(norm_of<D, T>(dev, mlp.norm, mlp.eps), std::move(in), std::move(out)))));
    }
    CHECK(stack.first_trained() == 2);
    const auto x = reference::random_matrix(rows.count, SomeMlp::e, 31);
    const auto g = reference::random_matrix(rows.count, SomeMlp::e, 32);
    reference::Matrix moved = x;
    const auto loss = [&] { return reference::dot(g, mlp.of(attention.of(mlp.of(attention.of(moved))))); };
    const auto expected = complex_step(moved.values, loss);
    for (const bool recompute : {false, true}) {
      for (Index i = 0; i < stack.size(); ++i) stack.layer(i).recompute(recompute);
      const Matrix<D, T> in(dev, x.rows, x.cols, x.as<T>());
      Matrix<D, T> y(dev, x.rows, x.cols, 33), dy(dev, g.rows, g.cols, g.as<T>());
      typename nn::Stack<D, T>::Saved saved;
      const std::size_t mark = dev.arena().mark();
      stack.forward(dev, pass, in.in(), y.view(), saved, nn::Keep::all, true);
      stack.backward(dev, pass, saved, dy.view());
      CHECK(dev.arena().mark() == mark);
      CHECK(gradient_error(std::span<const T>(dy.host()), expected) < 4 * module_tolerance<T>);
    }
  });
}

}  // namespace own_weights_test
