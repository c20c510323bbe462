#pragma once

#include "lora/nn/own_tensor.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn {

/// y_i = table[token_i], the table frozen unless it is a parameter. Shapes   table (V, E) → y (N, E)
template <AnyDevice D, class T>
struct Embedding {
  OwnMatrix<D, T> table;

  void forward(D& dev, const Pass<D, T>& pass, View<D, T> y) const { table.use(dev).gather(dev, pass.tokens(), y); }
  /// Adds the table's gradient.
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> dy) const {
    if (table.trains()) kernel::embedding_backward(dev, pass.tokens(), dy, table.param().grad());
  }
};

}  // namespace lora::nn
