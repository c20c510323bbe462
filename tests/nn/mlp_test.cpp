#include "lora/nn/mlp.hpp"

#include <doctest/doctest.h>

#include "support/module_check.hpp"

namespace mlp_test {

namespace {

using namespace lora;
using namespace lora::test;

struct Subject {
  static constexpr Index e = 10, f = 14;
  static constexpr double eps = 1e-5;
  reference::Matrix norm = reference::random_matrix(1, e, 1, 0.5, 1.5);
  SomeLinears gate_up, down;

  Subject(Index gate, Index up, Index down_rank, bool biased)
      : gate_up(e, {f, f}, {gate, up}, biased, 2), down(f, {e}, {down_rank}, biased, 3) {}

  reference::Matrix of(const reference::Matrix& x) const {
    const auto normed = reference::rms_norm(x, norm, eps);
    return x + down.of(reference::gated_unit(kernel::Gate::silu, gate_up.of(normed, 0), gate_up.of(normed, 1)), 0);
  }

  template <class D, class T>
  void check() {
    D dev(2);
    nn::ParamStore<D, T> params;
    auto in = gate_up.module(dev, params), out = down.module(dev, params);
    nn::Mlp<D, T> module(norm_of<D, T>(dev, norm, eps), std::move(in), std::move(out));
    std::vector<reference::Matrix*> trained;
    gate_up.add_trained(trained);
    down.add_trained(trained);
    check_module(
        dev, module, params, [&](const reference::Matrix& x) { return of(x); }, trained, e);
  }
};

}  // namespace

TEST_CASE("mlp: y, dx and all gradients equal the formula, whichever projections train") {
  each_backend_of_modules([]<class D, class T>() {
    Subject(2, 3, 2, false).check<D, T>();
    Subject(0, 2, 0, true).check<D, T>();
    Subject(0, 0, 2, true).check<D, T>();
  });
}

}  // namespace mlp_test
