#pragma once

#include <cstring>

#include "lora/cpu/device.hpp"
#include "lora/kernel/embedding.hpp"

namespace lora::cpu::detail {

/// A row of floating-point values of any alignment, converted to T.
template <class Stored, class T>
void decode_row(const std::byte* row, Index cols, T* y) {
  for (Index j = 0; j < cols; ++j) {
    Stored value;
    std::memcpy(&value, row + static_cast<std::size_t>(j) * sizeof value, sizeof value);
    y[j] = static_cast<T>(static_cast<Accum<T>>(static_cast<Accum<Stored>>(value)));
  }
}

}  // namespace lora::cpu::detail

namespace lora::kernel {

template <>
struct Embedding<cpu::Device> {
  template <class T>
  static void run(cpu::Device& dev, const StoredView<cpu::Device>& table, View<cpu::Device, const std::int32_t> tokens,
                  View<cpu::Device, T> y) {
    const Index cols = table.cols();
    const auto each_row = [&](const auto& decode) {
      dev.parallel_for(y.rows(), 8192 / (cols + 1) + 1, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
          const Index token = tokens.data()[i];
          LORA_ASSERT(token >= 0 && token < table.rows());
          decode(table.data() + static_cast<std::size_t>(token) * table.row_bytes(), y.row(i));
        }
      });
    };
    switch (table.dtype()) {
      case DType::f32:
        return each_row([=](const std::byte* row, T* out) { cpu::detail::decode_row<float>(row, cols, out); });
      case DType::bf16:
        return each_row([=](const std::byte* row, T* out) { cpu::detail::decode_row<bf16>(row, cols, out); });
      case DType::f16:
        return each_row([=](const std::byte* row, T* out) { cpu::detail::decode_row<f16>(row, cols, out); });
      case DType::f64:
        return each_row([=](const std::byte* row, T* out) { cpu::detail::decode_row<double>(row, cols, out); });
      default:
        fail<FormatError>("[embedding] a table of ", name_of(table.dtype()), " can't be read");
    }
  }
};

}  // namespace lora::kernel
