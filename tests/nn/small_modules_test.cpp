// The embedding and the norm, which train nothing, and the promise that every module keeps.

#include <doctest/doctest.h>

#include "lora/nn/embedding.hpp"
#include "lora/nn/stack.hpp"
#include "support/module_check.hpp"

namespace small_modules_test {

namespace {

using namespace lora;
using namespace lora::test;

template <class D, class T>
constexpr bool all_are_modules = nn::Module<nn::LoraLinear<D, T>, D, T> && nn::Module<nn::Attention<D, T>, D, T> &&
                                 nn::Module<nn::Mlp<D, T>, D, T> && nn::Module<nn::Block<D, T>, D, T> &&
                                 nn::Module<nn::Recomputed<nn::Block<D, T>>, D, T>;
static_assert(all_are_modules<cpu::Device, float> && all_are_modules<cpu::Device, bf16>);
static_assert(all_are_modules<proof::Device, float> && all_are_modules<proof::Device, bf16>);

}  // namespace

TEST_CASE("embedding: rows of the table, in the order of the tokens, stored alike or not") {
  each_backend_of_modules([]<class D, class T>() {
    D dev(1);
    const Index vocabulary = 11, e = 6;
    const auto values = random_values<bf16>(vocabulary * e, 1);
    const auto held = std::make_shared<Tensor<D, bf16>>(tensor_of<bf16>(dev, values, vocabulary, e));
    const nn::Embedding<D, T> embedding{
        nn::Weight<D>(StoredView<D>(held->view().data(), DType::bf16, vocabulary, e), held)};
    const std::vector<std::int32_t> tokens{10, 0, 3, 3}, positions{0, 1, 2, 3};
    const std::vector<kernel::Segment> segments{{0, 4}};
    const nn::Pass<D, T> pass(dev, nn::Batch{tokens, positions, {}, segments});
    Matrix<D, T> y(dev, 4, e, 2, 3);
    embedding.forward(dev, pass, y.view());
    std::vector<T> expected;
    for (const auto token : tokens)
      for (Index j = 0; j < e; ++j)
        expected.push_back(rounded<T>(real(values[static_cast<std::size_t>(token * e + j)])));
    check_same_bits(y.host(), expected);
  });
}

TEST_CASE("rms_norm module: y and dx equal the formula, and a residual sum's gradient is completed") {
  each_backend_of_modules([]<class D, class T>() {
    D dev(1);
    const Index n = 5, heads = 3, c = 4;
    reference::Matrix x = reference::random_matrix(n, heads * c, 1), g = reference::random_matrix(n, heads * c, 2);
    const auto weight = reference::random_matrix(1, c, 3, 0.5, 1.5);
    const auto norm = norm_of<D, T>(dev, weight, 1e-5);
    const auto y_of = [&] { return reference::rms_norm(x, weight, 1e-5); };
    const auto dx_expected = complex_step(x.values, [&] { return reference::dot(g, y_of()); });

    Matrix<D, T> in(dev, n, x.cols, x.as<T>(), 2), y(dev, n, x.cols, 4, 3), copy(dev, n, x.cols, 5);
    Matrix<D, T> dy(dev, n, x.cols, g.as<T>()), dx(dev, n, x.cols, 6);
    Matrix<D, Accum<T>> rstd(dev, n, heads, 7);
    norm.forward(dev, in.in(), y.view(), rstd.view(), copy.view());
    CHECK(gradient_error(std::span<const T>(y.host()), y_of().template as<double>()) < module_tolerance<T>);
    check_same_bits(copy.host(), in.host());
    norm.backward(dev, in.in(), rstd.in(), dy.in(), dx.view());
    CHECK(gradient_error(std::span<const T>(dx.host()), dx_expected) < module_tolerance<T>);

    // Of z = x + f(norm(x)), where f's input has the gradient g and z has, too.
    Matrix<D, T> normed(dev, n, x.cols, g.as<T>()), sum(dev, n, x.cols, g.as<T>());
    norm.backward_residual(dev, in.in(), rstd.in(), normed.view(), sum.view());
    check_same_bits(normed.host(), y.host());
    auto residual = dx_expected;
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += g.values[i].real();
    CHECK(gradient_error(std::span<const T>(sum.host()), residual) < module_tolerance<T>);
    norm.backward_residual(dev, in.in(), rstd.in(), copy.view(), View<D, T>());  // nobody wants dx
    check_same_bits(copy.host(), y.host());
  });
}

}  // namespace small_modules_test
