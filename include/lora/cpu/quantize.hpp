#pragma once

#include "lora/cpu/device.hpp"
#include "lora/cpu/stored_row.hpp"
#include "lora/kernel/quantize.hpp"

namespace lora::kernel {

template <>
struct Quantize<cpu::Device> {
  template <class T>
  static void widen(cpu::Device& dev, const StoredView<cpu::Device>& w, View<cpu::Device, T> y) {
    cpu::with_row_decoder<T>(w.dtype(), w.cols(), [&](const auto& decode) {
      dev.parallel_for(w.rows(), 8192 / (w.cols() + 1) + 1, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) decode(w.data() + static_cast<std::size_t>(i) * w.row_bytes(), y.row(i));
      });
    });
  }
};

}  // namespace lora::kernel
