#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "lora/cpu/runtime/device.hpp"
#include "lora/cpu/vectors/random_words.hpp"
#include "lora/cpu/vectors/stored_row.hpp"
#include "lora/kernel/embedding.hpp"

namespace lora::kernel {

template <>
struct Embedding<cpu::Device> {
  template <class T>
  static void run(cpu::Device& dev, const StoredView<cpu::Device>& table, View<cpu::Device, const std::int32_t> tokens,
                  View<cpu::Device, T> y);

  // Threads share the columns, not the rows: each adds up the rows of a token in their order.
  template <class T>
  static void backward(cpu::Device& dev, View<cpu::Device, const std::int32_t> tokens, View<cpu::Device, const T> dy,
                       View<cpu::Device, Accum<T>> dtable);

  template <class T>
  static void noise(cpu::Device& dev, const EmbeddingNoise& rule, std::span<const Segment> segments,
                    View<cpu::Device, const std::int32_t> sequence_index,
                    View<cpu::Device, const std::int32_t> positions, View<cpu::Device, T> y);
};

template <class T>
void Embedding<cpu::Device>::run(cpu::Device& dev, const StoredView<cpu::Device>& table,
                                 View<cpu::Device, const std::int32_t> tokens, View<cpu::Device, T> y) {
  cpu::with_row_decoder<T>(table.dtype(), table.cols(), [&](const auto& decode) {
    dev.parallel_for(y.rows(), cpu::rows_per_task(y.cols()), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index token = tokens.data()[i];
        decode(table.data() + static_cast<std::size_t>(token) * table.row_bytes(), y.row(i));
      }
    });
  });
}

template <class T>
void Embedding<cpu::Device>::backward(cpu::Device& dev, View<cpu::Device, const std::int32_t> tokens,
                                      View<cpu::Device, const T> dy, View<cpu::Device, Accum<T>> dtable) {
  constexpr Index piece = 64;  // columns
  const Index cols = dy.cols(), pieces = (cols + piece - 1) / piece;
  dev.parallel_for(pieces, cpu::rows_per_task(dy.rows() * piece), [=](Index first, Index last) {
    const Index begin = first * piece, end = std::min(cols, last * piece);
    for (Index i = 0; i < dy.rows(); ++i) {
      const Index token = tokens.data()[i];
      const T* const in = dy.row(i);
      Accum<T>* const out = dtable.row(token);
      LORA_SIMD
      for (Index j = begin; j < end; ++j) out[j] += static_cast<Accum<T>>(in[j]);
    }
  });
}

template <class T>
void Embedding<cpu::Device>::noise(cpu::Device& dev, const EmbeddingNoise& rule, std::span<const Segment> segments,
                                   View<cpu::Device, const std::int32_t> sequence_index,
                                   View<cpu::Device, const std::int32_t> positions, View<cpu::Device, T> y) {
  using A = Accum<T>;
  for (const Segment& segment : segments) {
    const double numbers = static_cast<double>(segment.size()) * static_cast<double>(y.cols());
    const A amplitude = static_cast<A>(rule.alpha / std::sqrt(numbers));
    dev.parallel_for(segment.size(), 4096 / (y.cols() + 1) + 1, [=](Index first, Index last) {
      for (Index row = segment.begin + first; row < segment.begin + last; ++row) {
        const auto piece = [&](Index at, Index count, const std::uint32_t* words) {
          T* const out = y.row(row) + at;
          LORA_SIMD
          for (Index j = 0; j < count; ++j) {
            const float u = static_cast<float>(static_cast<std::int32_t>(words[j] >> 8)) * 0x1p-23f - 1;
            out[j] = narrowed<T>(static_cast<A>(out[j]) + amplitude * static_cast<A>(u));
          }
        };
        cpu::detail::with_random_words(sequence_index.data()[row], positions.data()[row], rule.key, 0, y.cols(), piece);
      }
    });
  }
}

}  // namespace lora::kernel
