#pragma once

#include <algorithm>
#include <cstddef>

#include "lora/ascend/kernels/gemm.hpp"
#include "lora/kernel/quantize.hpp"

namespace lora::ascend {

/// Calls f(view) with the weight as its stored element type. Blocks are decoded before they come to the device, but for
/// Q8_0's of products.
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
    if (w.dtype() == DType::q8_0) return decode_q8_0(dev, w, y);
    ascend::with_stored(w, [&](auto view) { Elementwise<D>::convert(dev, view, y, 1, false); });
  }

  template <class A>
  static void decode_with_update(D& dev, const StoredView<D>& w, View<D, const A> b, View<D, const A> a, View<D, A> y) {
    decode(dev, w, y);
    Gemm<D>::run(dev, Form::tn, b, a, y, 1, true);
  }

 private:
  /// A row has its quanta, int8, and then a float16 scale for each 32 of them. Their product has 19 bits at most, so
  /// that it is rounded to T once. Rows are taken so many at a time that the cache still has the quanta as T when they
  /// are scaled: whole sixteens of them, whose bytes are a multiple of 32 whatever a row's are.
  template <class T>
  static void decode_q8_0(D& dev, const StoredView<D>& w, View<D, T> y) {
    constexpr Index block = 32, sixteen = 16;
    const Index cols = w.cols(), row = static_cast<Index>(w.row_bytes());
    const Index step = std::max(sixteen, dev.settings().chunks.decoded / cols / sixteen * sixteen);
    for (Index first = 0; first < w.rows(); first += step) {
      const Index rows = std::min(step, w.rows() - first);
      const std::byte* const begin = w.data() + first * row;
      const ascend::Operand quanta(begin, ascend::ACL_INT8, {rows, cols}, {row, 1});
      const ascend::Operand scales(begin + cols, ascend::ACL_FLOAT16, {rows, cols / block, 1}, {row / 2, 1, 1});
      ascend::write_aligned(dev, y.row_slice(first, rows), false, true, [&](View<D, T> place) {
        ascend::copy(dev, quanta, place);
        const ascend::Operand blocks(place.data(), ascend::acl_type<T>, {rows, cols / block, block}, {cols, block, 1});
        ascend::launch(dev, dev.toolkit().operators.inplace_mul, blocks, scales);
      });
    }
  }
};

}  // namespace lora::kernel
