#pragma once

#include <algorithm>
#include <span>

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/kernel/optimizer.hpp"
#include "lora/tensor/staging.hpp"

namespace lora::kernel {

template <>
struct AdamW<ascend::Device> {
  using D = ascend::Device;

  template <class A>
  static void run(D& dev, const AdamWStep& step, View<D, const A> grad, View<D, A> value, View<D, A> m, View<D, A> v) {
    if (value.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    // The operator counts from 0: it adds 1 to what it is given.
    const View<D, float> done = scratch<float>(dev, 1, 1);
    const float number = static_cast<float>(step.step - 1);
    copy_staged<D, float>(dev, std::span<const float>(&number, 1), done);
    const View<D, const A> whole = ascend::compact(dev, grad);
    const auto each = [&](Index begin, Index count) {
      const auto part = [&](auto view) { return view.flat().col_slice(begin, count); };
      View<D, const A> g = part(whole);
      const Arena::Scope inner(dev.arena());
      if (step.gradient_scale != 1) {
        const View<D, A> scaled = scratch<A>(dev, 1, count);
        ascend::launch(dev, dev.toolkit().operators.muls, g, ascend::WideScalar{step.gradient_scale}, scaled);
        g = scaled;
      }
      ascend::launch(dev, dev.toolkit().operators.apply_adam_w_v2, ascend::vector(part(value)), ascend::vector(part(m)),
                     ascend::vector(part(v)), ascend::no_operand, ascend::vector(g), ascend::vector(done),
                     static_cast<float>(step.learning_rate), static_cast<float>(step.beta1),
                     static_cast<float>(step.beta2), static_cast<float>(step.weight_decay),
                     static_cast<float>(step.epsilon), false, false);
    };
    // Scaled gradients are a copy, of a part at a time.
    const Index pieces = step.gradient_scale == 1 ? value.size() : dev.settings().chunks.scaled;
    for (Index begin = 0; begin < value.size(); begin += pieces) each(begin, std::min(pieces, value.size() - begin));
  }
};

}  // namespace lora::kernel
