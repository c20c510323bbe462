#pragma once

#include "lora/kernel/embedding.hpp"
#include "lora/nn/pass.hpp"
#include "lora/nn/weight.hpp"

namespace lora::nn {

/// y_i = table[token_i]; frozen. Shapes   table (V, E) → y (N, E)
template <AnyDevice D, class T>
struct Embedding {
  Weight<D> table;

  void forward(D& dev, const Pass<D, T>& pass, View<D, T> y) const {
    const auto use = table.use(dev);
    kernel::embedding(dev, use.view(), pass.tokens(), y);
  }
};

}  // namespace lora::nn
