#pragma once

#include <cstdint>

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/kernel/activation.hpp"

namespace lora::kernel {

template <>
inline constexpr bool gated_unit_backward_in_place<ascend::Device> = false;

template <>
struct GatedUnit<ascend::Device> {
  using D = ascend::Device;

  /// Throws   DeviceError for GELU where the toolkit lacks its operators
  template <class T>
  static void run(D& dev, Gate gate, View<D, const T> gate_up, View<D, T> y) {
    if (y.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, T> of_gate = gate == Gate::silu ? View<D, T>() : scratch<T>(dev, y.rows(), y.cols());
    forward<T>(dev, ascend::compact(dev, gate_up), of_gate, y);
  }

  template <class T>
  static void backward(D& dev, Gate gate, View<D, const T> gate_up, View<D, const T> dy, View<D, T> d_gate_up,
                       View<D, T> y) {
    if (dy.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const View<D, const T> x = ascend::compact(dev, gate_up), grad = ascend::compact(dev, dy);
    // What is read twice may be written over only after it was.
    const bool apart = d_gate_up.data() == gate_up.data();
    const View<D, T> place = apart ? scratch<T>(dev, x.rows(), x.cols()) : d_gate_up;
    const auto write = [&](const auto& launch) { ascend::write_aligned(dev, place, false, true, launch); };
    if (gate == Gate::silu) {
      write([&](View<D, T> to) {
        ascend::launch(dev, dev.toolkit().operators.swi_glu_grad, grad, x, last_dimension, to);
      });
      if (!y.empty()) forward<T>(dev, x, {}, y);
    } else {
      // Its operator wants the gate's function, which forward forms beside y, and y may be dy.
      const View<D, T> of_gate = scratch<T>(dev, dy.rows(), dy.cols()), again = scratch<T>(dev, dy.rows(), dy.cols());
      forward<T>(dev, x, of_gate, again);
      write([&](View<D, T> to) {
        ascend::launch(dev, dev.toolkit().operators.ge_glu_grad, grad, x, View<D, const T>(of_gate), last_dimension,
                       tanh_form, gate_left, to);
      });
      if (!y.empty()) Elementwise<D>::convert(dev, View<D, const T>(again), y, 1, false);
    }
    if (apart) Elementwise<D>::convert(dev, View<D, const T>(place), d_gate_up, 1, false);
  }

 private:
  static constexpr std::int64_t last_dimension = 1;
  static constexpr std::int64_t tanh_form = 1;
  static constexpr bool gate_left = true;

  /// of_gate: GELU of the gate; empty for SiLU.
  template <class T>
  static void forward(D& dev, View<D, const T> x, View<D, T> of_gate, View<D, T> y) {
    const auto& operators = dev.toolkit().operators;
    if (!of_gate.empty() && !(operators.ge_glu.there() && operators.ge_glu_grad.there()))
      fail<DeviceError>("[gated_unit] gates are GELU, and the toolkit lacks the operator ", operators.ge_glu.name,
                        " or ", operators.ge_glu_grad.name, "; install one that has both, or take device cpu");
    ascend::write_aligned(dev, y, false, true, [&](View<D, T> to) {
      if (of_gate.empty()) {
        ascend::launch(dev, operators.swi_glu, x, last_dimension, to);
      } else {
        ascend::launch(dev, operators.ge_glu, x, last_dimension, tanh_form, gate_left, to, of_gate);
      }
    });
  }
};

}  // namespace lora::kernel
