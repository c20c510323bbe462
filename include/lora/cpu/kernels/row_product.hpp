#pragma once

#include <concepts>

#include "lora/core/scalar.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/kernel/row_product.hpp"

namespace lora::cpu::detail {

using RowTerm = kernel::RowProductTerm<Device, float>;
using RowTerms = kernel::RowProductTerms<Device, float>;
using RowUpdate = kernel::RowUpdateTerm<Device, float>;
using RowUpdates = kernel::RowUpdateTerms<Device, float>;

/// kernel::row_products of rows in float.
void row_products(Device& dev, View<Device, const float> x, RowTerms terms, bool accumulate);
/// kernel::row_updates
void row_updates(Device& dev, RowUpdates terms);

}  // namespace lora::cpu::detail

namespace lora::kernel {

/// Rows of another type are widened first: they are few, and so the loops are compiled for one type.
template <>
struct RowProduct<cpu::Device> {
  template <class T>
    requires std::same_as<Accum<T>, float>
  static void run(cpu::Device& dev, View<cpu::Device, const T> x, cpu::detail::RowTerms terms, bool accumulate) {
    if constexpr (std::same_as<T, float>) {
      cpu::detail::row_products(dev, x, terms, accumulate);
    } else {
      const Arena::Scope scope(dev.arena());
      const View<cpu::Device, float> wide = scratch<float>(dev, x.rows(), x.cols());
      for (Index r = 0; r < x.rows(); ++r)
        for (Index j = 0; j < x.cols(); ++j) wide.row(r)[j] = static_cast<float>(x.row(r)[j]);
      cpu::detail::row_products(dev, wide, terms, accumulate);
    }
  }
  static void update(cpu::Device& dev, cpu::detail::RowUpdates terms) { cpu::detail::row_updates(dev, terms); }
};

}  // namespace lora::kernel

#ifndef LORA_COMPILED
#  include "lora/cpu/kernels/row_product.ipp"
#endif
