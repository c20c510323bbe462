#pragma once

#include <algorithm>

#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/stored_row.hpp"
#include "lora/cpu/vectors/tile_product.hpp"
#include "lora/kernel/quantize.hpp"

namespace lora::kernel {

template <>
struct Quantize<cpu::Device> {
  template <class T>
  static void decode(cpu::Device& dev, const StoredView<cpu::Device>& w, View<cpu::Device, T> y);

  template <class A>
  static void decode_with_update(cpu::Device& dev, const StoredView<cpu::Device>& w, View<cpu::Device, const A> b,
                                 View<cpu::Device, const A> a, View<cpu::Device, A> y);
};

template <class T>
void Quantize<cpu::Device>::decode(cpu::Device& dev, const StoredView<cpu::Device>& w, View<cpu::Device, T> y) {
  cpu::with_row_decoder<T>(w.dtype(), w.cols(), [&](const auto& decode) {
    dev.parallel_for(w.rows(), cpu::rows_per_task(w.cols()), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) decode(w.data() + static_cast<std::size_t>(i) * w.row_bytes(), y.row(i));
    });
  });
}

template <class A>
void Quantize<cpu::Device>::decode_with_update(cpu::Device& dev, const StoredView<cpu::Device>& w,
                                               View<cpu::Device, const A> b, View<cpu::Device, const A> a,
                                               View<cpu::Device, A> y) {
  constexpr Index block = 8;
  const Index rank = a.rows(), cols = w.cols();
  const Index tiled = cols / cpu::tile_step * cpu::tile_step;
  cpu::with_row_decoder<A>(w.dtype(), cols, [&](const auto& decode) {
    dev.parallel_for((w.rows() + block - 1) / block, 1024 / (cols + 1) + 1, [&](Index begin, Index end) {
      for (Index i = begin * block; i < std::min(end * block, w.rows()); i += block) {
        const Index count = std::min(block, w.rows() - i);
        for (Index r = i; r < i + count; ++r) decode(w.data() + static_cast<std::size_t>(r) * w.row_bytes(), y.row(r));
        // While these rows are in cache.
        Index done = 0;
        if (count == block) {
          cpu::tile_product<cpu::SingleWords<A>>(block, b.data() + i, 1, b.stride(), a.data(), a.stride(), y.row(i),
                                                 y.stride(), true, cpu::whole(rank, tiled));
          done = tiled;
        }
        for (Index r = i; r < i + count; ++r)
          for (Index k = 0; k < rank; ++k)
            for (Index j = done; j < cols; ++j) y.row(r)[j] += b.row(k)[r] * a.row(k)[j];
      }
    });
  });
}

}  // namespace lora::kernel
