#pragma once

#include <algorithm>

#include "lora/kernel/gemm.hpp"
#include "lora/nn/param.hpp"
#include "lora/nn/weight.hpp"

namespace lora::nn {

/// A frozen projection: y = x Wᵀ + b. The part that every adapter shares; it has nothing to train and nothing to save.
template <AnyDevice D, class T>
struct Linear {
  Weight<D> weight;            // (O, I)
  Tensor<D, Accum<T>> bias{};  // (O), or empty

  Index in_features() const { return weight.cols(); }
  Index out_features() const { return weight.rows(); }
};

/// Calls f(begin, count) for tiles of at most `tile` rows of about equal size, so that a tile of an output is still in
/// cache when it is added to. Where `tile` is a multiple of 16, so is each `begin`: then what holds a number of 4 bytes
/// for each row begins on 64 bytes in every tile.
template <class F>
void for_row_tiles(Index rows, Index tile, F&& f) {
  const Index unit = tile % 16 == 0 ? 16 : 1;
  const Index units = (rows + unit - 1) / unit, tiles = (rows + tile - 1) / tile;
  for (Index i = 0; i < tiles; ++i) {
    const Index begin = units * i / tiles * unit;
    f(begin, std::min(rows, units * (i + 1) / tiles * unit) - begin);
  }
}

/// Where a sum of several products that ends in y is formed: y itself, or scratch where y would round every partial
/// sum.
template <class T, AnyDevice D>
View<D, Accum<T>> sum_for(D& dev, View<D, T> y) {
  if constexpr (std::same_as<T, Accum<T>>) {
    return y;
  } else {
    return scratch<Accum<T>>(dev, y.rows(), y.cols());
  }
}

}  // namespace lora::nn
