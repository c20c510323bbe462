#include "lora/nn/attention.hpp"

#include <doctest/doctest.h>

#include "support/some_attention.hpp"

namespace attention_module_test {

namespace {

using namespace lora;
using namespace lora::test;

template <class D, class T>
void check(SomeAttention subject) {
  D dev(2);
  const auto rotary = subject.rotary<D, T>(dev);
  nn::ParamStore<D, T> params;
  auto module = subject.module(dev, params, rotary);
  std::vector<reference::Matrix*> trained;
  subject.add_trained(trained);
  check_module(
      dev, module, params, [&](const reference::Matrix& x) { return subject.of(x); }, trained, subject.e);
}

}  // namespace

TEST_CASE("attention module: y, dx and all gradients equal the formula") {
  each_backend_of_modules([]<class D, class T>() {
    check<D, T>({{2, 3, 2}, 2, false, true});
    check<D, T>({{2, 0, 2}, 0, true, true});  // norms of q and k
    check<D, T>({{0, 0, 0}, 2, false, false});
    SomeAttention windowed({2, 3, 2}, 2, false, true);
    windowed.shape.window = 2;
    check<D, T>(std::move(windowed));
  });
}

}  // namespace attention_module_test
