#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/kernel/loss.hpp"

namespace lora::kernel {

template <>
struct CrossEntropy<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void run(D& dev, View<D, Accum<T>> logits, View<D, const std::int32_t> labels, double scale,
                  View<D, Accum<T>> loss, View<D, Accum<T>> target, View<D, Accum<T>> top, View<D, T> d_logits) {
    const Index n = logits.rows();
    if (n == 0) return;
    const Arena::Scope scope(dev.arena());
    auto& operators = dev.toolkit().operators;
    // The gradient wants labels of 64 bits.
    const View<D, std::int64_t> wide_labels = scratch<std::int64_t>(dev, 1, n);
    ascend::copy(dev, ascend::vector(labels), ascend::vector(wide_labels));
    if (!target.empty())
      ascend::launch(dev, operators.gather, logits, std::int64_t{1}, column(wide_labels), column(target));
    if (!top.empty())
      ascend::launch(dev, operators.amax, logits, std::vector<std::int64_t>{1}, false, ascend::vector(top));
    const View<D, float> log_p = scratch<float>(dev, n, logits.cols()), unused = scratch<float>(dev, 1, n);
    constexpr const char* each_row = "none";
    ascend::launch(dev, operators.cross_entropy_loss, logits, ascend::vector(wide_labels), ascend::no_operand, each_row,
                   no_index, 0.0, 0.0, false, ascend::vector(loss), log_p, ascend::vector(unused),
                   ascend::vector(unused));
    if (d_logits.empty()) return;
    const View<D, float> scales = scratch<float>(dev, 1, n);
    Elementwise<D>::fill(dev, scales, scale);
    constexpr bool rounds = !std::same_as<T, Accum<T>>;
    const View<D, float> gradient = [&] {
      if constexpr (rounds) {
        return logits;  // nobody reads them again
      } else {
        return d_logits;
      }
    }();
    ascend::write_aligned(dev, gradient, false, true, [&](View<D, float> place) {
      ascend::launch(dev, operators.cross_entropy_loss_grad, ascend::vector(scales), log_p, ascend::vector(wide_labels),
                     ascend::no_operand, ascend::no_operand, ascend::no_operand, each_row, no_index, 0.0, 0.0, place);
    });
    if constexpr (rounds) Elementwise<D>::convert(dev, View<D, const float>(gradient), d_logits, 1, false);
  }

 private:
  static constexpr std::int64_t no_index = -100;  // rows without labels are not here

  template <class V>
  static ascend::Operand column(V view) {
    return ascend::Operand(view.data(), ascend::acl_type<std::remove_const_t<typename V::Element>>, {view.size(), 1},
                           {1, 1});
  }
};

}  // namespace lora::kernel
