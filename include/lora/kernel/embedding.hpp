#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::kernel {

template <class D>
struct Embedding;

template <class D, class T>
concept HasEmbedding = requires(D& dev, StoredView<D> table, View<D, const std::int32_t> tokens, View<D, T> y) {
  Embedding<D>::run(dev, table, tokens, y);
};

/// y_i = table[tokens_i], decoded to T
/// Shapes   table (V, E) · tokens (N), each in [0, V) · y (N, E)
/// Writes   y
template <class D, class T>
void embedding(D& dev, const StoredView<D>& table, ConstView<D, std::int32_t> tokens, View<D, T> y) {
  static_assert(HasEmbedding<D, T>, "include lora/<backend>/kernels.hpp");
  expect_shape("embedding", "tokens", tokens, 1, y.rows());
  expect_shape("embedding", "y", y, y.rows(), table.cols());
  const Span span(profile_of(dev), "embedding", "embedding", 0, bytes_of(y) + count_of(y.rows(), table.row_bytes()));
  Embedding<D>::run(dev, table, tokens, y);
}

}  // namespace lora::kernel
