#pragma once

#include <algorithm>
#include <concepts>

#include "lora/core/scalar.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/device.hpp"

namespace lora::nn {

/// Calls f(begin, count) for tiles of at most `tile` rows, of about equal size, so that a tile of an output is still in
/// cache when the next product is added to it. Where `tile` is a multiple of 16, so is each `begin`: arrays with 4
/// bytes per row then begin on 64 bytes in every tile.
template <class F>
void for_row_tiles(Index rows, Index tile, F&& f) {
  const Index unit = tile % 16 == 0 ? 16 : 1;
  const Index units = (rows + unit - 1) / unit, tiles = (rows + tile - 1) / tile;
  for (Index i = 0; i < tiles; ++i) {
    const Index begin = units * i / tiles * unit;
    f(begin, std::min(rows, units * (i + 1) / tiles * unit) - begin);
  }
}

/// The rows of the largest of these tiles.
inline Index largest_row_tile(Index rows, Index tile) {
  Index largest = 0;
  for_row_tiles(rows, tile, [&](Index, Index count) { largest = std::max(largest, count); });
  return largest;
}

/// Where to accumulate several products that end in y: y itself, or scratch where y would round every partial sum.
template <class T, AnyDevice D>
View<D, Accum<T>> sum_for(D& dev, View<D, T> y) {
  if constexpr (std::same_as<T, Accum<T>>) {
    return y;
  } else {
    return scratch<Accum<T>>(dev, y.rows(), y.cols());
  }
}

}  // namespace lora::nn
