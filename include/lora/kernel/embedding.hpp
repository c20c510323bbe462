#pragma once

#include <cstdint>
#include <span>

#include "lora/kernel/cost.hpp"
#include "lora/kernel/segment.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::kernel {

/// The noise of one micro-batch: column j of the row at (place, position), in a sequence of L rows, gets
///   α / √(L E) · u,   u = ⌊word / 2⁸⌋ · 2⁻²³ − 1, uniform in [−1, 1),
///   word = philox(counter = (j / 4, position, place, 0), key)[j mod 4]
/// so that it does not depend on how a step is split.
/// Source   Jain et al. 2023, NEFTune
struct EmbeddingNoise {
  double alpha = 0;
  std::uint64_t key = 0;  ///< of seed and step
};

template <class D>
struct Embedding;

template <class D, class T>
concept HasEmbedding = requires(D& dev, StoredView<D> table, View<D, const std::int32_t> tokens, View<D, T> y,
                                View<D, Accum<T>> gradient, std::span<const Segment> segments) {
  Embedding<D>::run(dev, table, tokens, y);
  Embedding<D>::backward(dev, tokens, View<D, const T>(y), gradient);
  Embedding<D>::noise(dev, EmbeddingNoise{}, segments, tokens, tokens, y);
};

/// y_i = table[tokens_i], decoded to T
/// Shapes   table (V, E) · tokens (N), each in [0, V) · y (N, E)
/// Writes   y
template <class D, class T>
void embedding(D& dev, const StoredView<D>& table, ConstView<D, std::int32_t> tokens, View<D, T> y) {
  static_assert(HasEmbedding<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("embedding", "tokens", tokens, 1, y.rows());
  expect_shape("embedding", "y", y, y.rows(), table.cols());
  expect_indices("embedding", "token", tokens, table.rows());
  const ProfileScope span(dev, "embedding", "embedding", 0, bytes_of(y) + count_of(y.rows(), table.row_bytes()));
  Embedding<D>::run(dev, table, tokens, y);
}

/// The table's gradient: dtable_v += Σ_{i: tokens_i = v} dy_i, the rows of a token added in their order, so that bits
/// do not depend on the number of threads.
/// Shapes   tokens (N), each in [0, V) · dy (N, E) · dtable (V, E)
/// Writes   dtable, added to
template <class D, class T>
void embedding_backward(D& dev, ConstView<D, std::int32_t> tokens, View<D, const T> dy, OutView<D, Accum<T>> dtable) {
  static_assert(HasEmbedding<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("embedding_backward", "tokens", tokens, 1, dy.rows());
  expect_shape("embedding_backward", "dtable", dtable, dtable.rows(), dy.cols());
  expect_indices("embedding_backward", "token", tokens, dtable.rows());
  const ProfileScope span(dev, "embedding", "embedding_backward", 0, 3 * bytes_of(dy));
  Embedding<D>::backward(dev, tokens, dy, dtable);
}

/// y += noise, rounded to T. Its backward is nothing.
/// Shapes   segments (B), the rows of each sequence, without parents, which they cut y into · sequence_index, positions
/// (N) · y (N, E)
template <class D, class T>
void embedding_noise(D& dev, const EmbeddingNoise& rule, std::span<const Segment> segments,
                     ConstView<D, std::int32_t> sequence_index, ConstView<D, std::int32_t> positions, View<D, T> y) {
  static_assert(HasEmbedding<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("embedding_noise", "sequence_index", sequence_index, 1, y.rows());
  expect_shape("embedding_noise", "positions", positions, 1, y.rows());
  for (std::size_t b = 0; b < segments.size(); ++b)
    if (segments[b].parent >= 0)
      fail<ConfigError>("[embedding_noise] segment ", b, " goes on from segment ", segments[b].parent,
                        "; noise is a whole sequence's");
  const ProfileScope span(dev, "embedding", "embedding_noise", 0, 2 * bytes_of(y));
  Embedding<D>::noise(dev, rule, segments, sequence_index, positions, y);
}

}  // namespace lora::kernel
