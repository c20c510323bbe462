#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/ascend/kernels/quantize.hpp"
#include "lora/kernel/embedding.hpp"
#include "lora/tensor/staging.hpp"

namespace lora::kernel {

template <>
struct Embedding<ascend::Device> {
  using D = ascend::Device;

  template <class T>
  static void run(D& dev, const StoredView<D>& table, View<D, const std::int32_t> tokens, View<D, T> y) {
    if (y.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    ascend::with_stored(table, [&]<class Stored>(View<D, const Stored> rows) {
      if constexpr (std::same_as<Stored, T>) {
        Elementwise<D>::gather_rows(dev, rows, tokens, y);
      } else {
        const View<D, Stored> gathered = scratch<Stored>(dev, y.rows(), y.cols());
        Elementwise<D>::gather_rows(dev, rows, tokens, gathered);
        Elementwise<D>::convert(dev, View<D, const Stored>(gathered), y, 1, false);
      }
    });
  }

  template <class T>
  static void backward(D& dev, View<D, const std::int32_t> tokens, View<D, const T> dy, View<D, Accum<T>> dtable) {
    if (dy.size() == 0) return;
    // In float32, in which the rows of a token are added up; so many columns at a time that the sums, which are of the
    // whole vocabulary, stay small.
    constexpr Index together = Index{1} << 26;
    constexpr std::uint64_t no_padding = ~std::uint64_t{0};
    const Index step = std::max<Index>(together / dtable.rows() / 32 * 32, 32);
    for (Index first = 0; first < dy.cols(); first += step) {
      const Index cols = std::min(step, dy.cols() - first);
      const Arena::Scope scope(dev.arena());
      const View<D, float> grad = scratch<float>(dev, dy.rows(), cols), sum = scratch<float>(dev, dtable.rows(), cols);
      Elementwise<D>::convert(dev, dy.col_slice(first, cols), grad, 1, false);
      ascend::launch(dev, dev.toolkit().operators.embedding_dense_backward, grad, ascend::vector(tokens),
                     static_cast<std::uint64_t>(dtable.rows()), no_padding, false, sum);
      Elementwise<D>::convert(dev, View<D, const float>(sum), dtable.col_slice(first, cols), 1, true);
    }
  }

  /// Drawn on the host, so that the numbers are the contract's.
  template <class T>
  static void noise(D& dev, const EmbeddingNoise& rule, std::span<const Segment> segments,
                    View<D, const std::int32_t> sequence_index, View<D, const std::int32_t> positions, View<D, T> y) {
    if (y.size() == 0) return;
    const auto place = ascend::on_host(dev, "embedding_noise", sequence_index),
               position = ascend::on_host(dev, "embedding_noise", positions);
    const Index cols = y.cols();
    std::vector<float> noise(static_cast<std::size_t>(y.size()));
    for (const Segment& segment : segments) {
      const auto scale =
          static_cast<float>(rule.alpha / std::sqrt(static_cast<double>(segment.size()) * static_cast<double>(cols)));
      for (Index i = segment.begin; i < segment.end; ++i) {
        const auto row = static_cast<std::size_t>(i);
        for (Index j = 0; j < cols; j += 4) {
          const auto words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(position[row]),
                                     static_cast<std::uint32_t>(place[row]), 0},
                                    rule.key);
          for (Index k = j; k < std::min(j + 4, cols); ++k)
            noise[static_cast<std::size_t>(i * cols + k)] =
                scale * (static_cast<float>(words[static_cast<std::size_t>(k - j)] >> 8) * 0x1p-23f - 1.0f);
        }
      }
    }
    const Arena::Scope scope(dev.arena());
    const View<D, float> drawn = scratch<float>(dev, y.rows(), cols);
    copy_staged<D, float>(dev, noise, drawn);
    Elementwise<D>::convert(dev, View<D, const float>(drawn), y, 1, true);
  }
};

}  // namespace lora::kernel
