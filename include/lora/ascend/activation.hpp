#pragma once

#include <cstdint>

#include "lora/ascend/elementwise.hpp"
#include "lora/kernel/activation.hpp"

namespace lora::kernel {

template <>
inline constexpr bool swiglu_backward_in_place<ascend::Device> = false;

template <>
struct SwiGlu<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void run(D& dev, View<D, const T> gate_up, View<D, T> y) {
    if (y.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    forward<T>(dev, ascend::compact(dev, gate_up), y);
  }

  template <class T>
  static void backward(D& dev, View<D, const T> gate_up, View<D, const T> dy, View<D, T> d_gate_up, View<D, T> y) {
    if (dy.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, const T> x = ascend::compact(dev, gate_up), grad = ascend::compact(dev, dy);
    // What is read twice may be written over only after it was.
    const bool apart = d_gate_up.data() == gate_up.data();
    const View<D, T> place = apart ? scratch<T>(dev, x.rows(), x.cols()) : d_gate_up;
    ascend::write_aligned(dev, place, false, true, [&](View<D, T> to) {
      ascend::launch(dev, dev.toolkit().operators.swi_glu_grad, grad, x, last_dimension, to);
    });
    if (!y.empty()) forward<T>(dev, x, y);
    if (apart) Elementwise<D>::convert(dev, View<D, const T>(place), d_gate_up, 1, false);
  }

 private:
  static constexpr std::int64_t last_dimension = 1;

  template <class T>
  static void forward(D& dev, View<D, const T> x, View<D, T> y) {
    ascend::write_aligned(dev, y, false, true, [&](View<D, T> to) {
      ascend::launch(dev, dev.toolkit().operators.swi_glu, x, last_dimension, to);
    });
  }
};

}  // namespace lora::kernel
