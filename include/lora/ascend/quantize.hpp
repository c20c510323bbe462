#pragma once

#include "lora/ascend/gemm.hpp"
#include "lora/kernel/quantize.hpp"

namespace lora::ascend {

/// Calls f(view) with the weight as its stored element type. Blocks are decoded before they come to the device.
/// Throws   FormatError for what no operator reads
template <class F>
void with_stored(const StoredView<Device>& stored, F&& f) {
  switch (stored.dtype()) {
    case DType::f32:
      return f(stored.as<float>());
    case DType::bf16:
      return f(stored.as<bf16>());
    case DType::f16:
      return f(stored.as<f16>());
    default:
      fail<FormatError>("[ascend] a weight is stored as ", name_of(stored.dtype()),
                        ", which no operator reads; expected F32, BF16 or F16");
  }
}

}  // namespace lora::ascend

namespace lora::kernel {

template <>
struct Quantize<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void decode(D& dev, const StoredView<D>& w, View<D, T> y) {
    if (y.size() == 0) return;
    ascend::with_stored(w, [&](auto view) { Elementwise<D>::convert(dev, view, y, 1, false); });
  }

  template <class A>
  static void decode_with_update(D& dev, const StoredView<D>& w, View<D, const A> b, View<D, const A> a, View<D, A> y) {
    decode(dev, w, y);
    Gemm<D>::run(dev, Form::tn, b, a, y, 1, true);
  }
};

}  // namespace lora::kernel
