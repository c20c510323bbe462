#pragma once

#include <cstdint>

#include "lora/core/random.hpp"
#include "lora/kernel/embedding.hpp"
#include "lora/nn/own_tensor.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn {

/// y_i = table[token_i], the table frozen unless it is a parameter, while training with noise (NEFTune).
/// Shapes   table (V, E) → y (N, E)
template <AnyDevice D, class T>
struct Embedding {
  OwnMatrix<D, T> table;
  double noise_alpha = 0;  ///< 0: none

  void forward(D& dev, const Pass<D, T>& pass, View<D, T> y) const {
    table.use(dev).gather(dev, pass.tokens(), y);
    if (noise_alpha > 0 && pass.random_key() != 0)
      kernel::embedding_noise(dev, {noise_alpha, mix_key(pass.random_key(), noise_purpose)}, pass.segments(),
                              pass.sequence_index(), pass.positions(), y);
  }
  /// Adds the table's gradient.
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> dy) const {
    if (table.trains()) kernel::embedding_backward(dev, pass.tokens(), dy, table.param().grad());
  }

 private:
  // Tells its random numbers from those of dropout, whose purposes are the numbers of modules.
  static constexpr std::uint64_t noise_purpose = 0x6E6F697365;
};

}  // namespace lora::nn
