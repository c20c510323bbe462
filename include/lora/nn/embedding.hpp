#pragma once

#include <cstdint>

#include "lora/core/random.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/embedding.hpp"
#include "lora/nn/own_tensor.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn {

/// y_i = scale · table[token_i], the table frozen unless it is a parameter, while training with noise (NEFTune).
/// Shapes   table (V, E) → y (N, E)
/// Source   Gemma Team 2024 for the scale
template <AnyDevice D, class T>
struct Embedding {
  OwnMatrix<D, T> table;
  double noise_alpha = 0;  ///< 0: none
  double scale = 1;        ///< of T

  void forward(D& dev, const Pass<D, T>& pass, View<D, T> y) const {
    table.use(dev).gather(dev, pass.tokens(), y);
    if (scale != 1) kernel::convert(dev, y, y, scale);
    if (noise_alpha > 0 && pass.random_key() != 0)
      kernel::embedding_noise(dev, {noise_alpha, mix_key(pass.random_key(), noise_purpose)}, pass.segments(),
                              pass.sequence_index(), pass.positions(), y);
  }
  /// Adds the table's gradient. dy is overwritten.
  void backward(D& dev, const Pass<D, T>& pass, View<D, T> dy) const {
    if (!table.trains()) return;
    if (scale != 1) kernel::convert(dev, dy, dy, scale);
    kernel::embedding_backward(dev, pass.tokens(), View<D, const T>(dy), table.param().grad());
  }

 private:
  // Tells its random numbers from those of dropout, whose purposes are the numbers of modules.
  static constexpr std::uint64_t noise_purpose = 0x6E6F697365;
};

}  // namespace lora::nn
