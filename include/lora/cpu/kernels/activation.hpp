#pragma once

#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/exp.hpp"
#include "lora/kernel/activation.hpp"

namespace lora::cpu::detail {

/// a(z) of kernel::Gate, and its derivative.
struct Silu {
  template <class A>
  static A argument(A z) {
    return z;
  }
  template <class A>
  static A slope(A) {
    return A(1);
  }
};

struct GeluTanh {
  static constexpr double outer = 1.5957691216057307118;  // 2 √(2/π)
  static constexpr double inner = 0.044715;

  template <class A>
  static A argument(A z) {
    return static_cast<A>(outer) * z * cpu::multiply_add(static_cast<A>(inner) * z, z, A(1));
  }
  template <class A>
  static A slope(A z) {
    return static_cast<A>(outer) * cpu::multiply_add(static_cast<A>(3 * inner) * z, z, A(1));
  }
};

}  // namespace lora::cpu::detail

namespace lora::kernel {

template <>
struct GatedUnit<cpu::Device> {
  template <class T>
  static void run(cpu::Device& dev, Gate gate, View<cpu::Device, const T> gate_up, View<cpu::Device, T> y);

  template <class T>
  static void backward(cpu::Device& dev, Gate gate, View<cpu::Device, const T> gate_up, View<cpu::Device, const T> dy,
                       View<cpu::Device, T> d_gate_up, View<cpu::Device, T> y);

 private:
  /// use(Function) with that of the gate.
  template <class Use>
  static void with_function(Gate gate, const Use& use) {
    if (gate == Gate::silu) return use(cpu::detail::Silu());
    use(cpu::detail::GeluTanh());
  }

  template <bool with_output, class Function, class T>
  static void gradient(cpu::Device& dev, View<cpu::Device, const T> gate_up, View<cpu::Device, const T> dy,
                       View<cpu::Device, T> d_gate_up, View<cpu::Device, T> y) {
    using A = Accum<T>;
    const Index width = dy.cols();
    dev.parallel_for(dy.rows(), 2048 / (width + 1) + 1, [=](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const T* const gate = gate_up.row(i);
        const T* const up = gate + width;
        const T* const grad = dy.row(i);
        T* const d_gate = d_gate_up.row(i);
        T* const d_up = d_gate + width;
        T* const out = with_output ? y.row(i) : nullptr;
        LORA_SIMD
        for (Index j = 0; j < width; ++j) {
          const auto z = static_cast<A>(gate[j]);
          const auto u = static_cast<A>(up[j]);
          const auto g = static_cast<A>(grad[j]);
          const A inverse = A(1) + cpu::exp(-Function::argument(z));
          const A sigma = A(1) / inverse;
          d_gate[j] = narrowed<T>(g * u * sigma * cpu::multiply_add(z * Function::slope(z), A(1) - sigma, A(1)));
          d_up[j] = narrowed<T>(g * z * sigma);
          // As forward divides, for the same bits.
          if constexpr (with_output) out[j] = narrowed<T>(z / inverse * u);
        }
      }
    });
  }
};

template <class T>
void GatedUnit<cpu::Device>::run(cpu::Device& dev, Gate gate, View<cpu::Device, const T> gate_up,
                                 View<cpu::Device, T> y) {
  using A = Accum<T>;
  const Index width = y.cols();
  with_function(gate, [&]<class Function>(Function) {
    dev.parallel_for(y.rows(), 2048 / (width + 1) + 1, [=](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const T* const in = gate_up.row(i);
        const T* const up = in + width;
        T* const out = y.row(i);
        LORA_SIMD
        for (Index j = 0; j < width; ++j) {
          const auto z = static_cast<A>(in[j]);
          out[j] = narrowed<T>(z / (A(1) + cpu::exp(-Function::argument(z))) * static_cast<A>(up[j]));
        }
      }
    });
  });
}

template <class T>
void GatedUnit<cpu::Device>::backward(cpu::Device& dev, Gate gate, View<cpu::Device, const T> gate_up,
                                      View<cpu::Device, const T> dy, View<cpu::Device, T> d_gate_up,
                                      View<cpu::Device, T> y) {
  with_function(gate, [&]<class Function>(Function) {
    if (y.empty()) {
      gradient<false, Function, T>(dev, gate_up, dy, d_gate_up, y);
    } else {
      gradient<true, Function, T>(dev, gate_up, dy, d_gate_up, y);
    }
  });
}

}  // namespace lora::kernel
