#pragma once

#include <concepts>

#include "lora/core/scalar.hpp"
#include "lora/cpu/device.hpp"
#include "lora/kernel/row_product.hpp"

namespace lora::cpu::detail {

/// kernel::row_product of rows in float.
void row_product(Device& dev, View<Device, const float> x, const StoredView<Device>& w, View<Device, float> y,
                 bool accumulate);

}  // namespace lora::cpu::detail

namespace lora::kernel {

/// Rows of another type are widened first: they are few, and so the loops are compiled for one type.
template <>
struct RowProduct<cpu::Device> {
  template <class T>
    requires std::same_as<Accum<T>, float>
  static void run(cpu::Device& dev, View<cpu::Device, const T> x, const StoredView<cpu::Device>& w,
                  View<cpu::Device, float> y, bool accumulate) {
    if constexpr (std::same_as<T, float>) {
      cpu::detail::row_product(dev, x, w, y, accumulate);
    } else {
      const Arena::Scope scope(dev.arena());
      const View<cpu::Device, float> wide = scratch<float>(dev, x.rows(), x.cols());
      for (Index r = 0; r < x.rows(); ++r)
        for (Index j = 0; j < x.cols(); ++j) wide.row(r)[j] = static_cast<float>(x.row(r)[j]);
      cpu::detail::row_product(dev, wide, w, y, accumulate);
    }
  }
};

}  // namespace lora::kernel

#ifndef LORA_COMPILED
#  include "lora/cpu/row_product.ipp"
#endif
