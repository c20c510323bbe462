#pragma once

#include "lora/cpu/device.hpp"
#include "lora/cpu/stored_row.hpp"
#include "lora/kernel/embedding.hpp"

namespace lora::kernel {

template <>
struct Embedding<cpu::Device> {
  template <class T>
  static void run(cpu::Device& dev, const StoredView<cpu::Device>& table, View<cpu::Device, const std::int32_t> tokens,
                  View<cpu::Device, T> y) {
    cpu::with_row_decoder<T>(table.dtype(), table.cols(), [&](const auto& decode) {
      dev.parallel_for(y.rows(), 8192 / (y.cols() + 1) + 1, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
          const Index token = tokens.data()[i];
          LORA_ASSERT(token >= 0 && token < table.rows());
          decode(table.data() + static_cast<std::size_t>(token) * table.row_bytes(), y.row(i));
        }
      });
    });
  }
};

}  // namespace lora::kernel
