#pragma once

#include <algorithm>
#include <concepts>

#include "lora/core/scalar.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/device.hpp"

namespace lora::nn {

namespace detail {

/// Tiles of rows that are counted in units of 16 where the largest tile has whole ones.
struct RowTiles {
  RowTiles(Index rows, Index tile)
      : unit(tile % 16 == 0 ? 16 : 1), units((rows + unit - 1) / unit), count((rows + tile - 1) / tile) {}

  Index begin(Index i) const { return units * i / count * unit; }

  Index unit, units, count;
};

}  // namespace detail

/// Calls f(begin, count) for tiles of at most `tile` rows, of about equal size, so that a tile of an output is still in
/// cache when the next product is added to it. Where `tile` is a multiple of 16, so is each `begin`: arrays with 4
/// bytes per row then begin on 64 bytes in every tile.
template <class F>
void for_row_tiles(Index rows, Index tile, F&& f) {
  const detail::RowTiles tiles(rows, tile);
  for (Index i = 0; i < tiles.count; ++i) f(tiles.begin(i), std::min(rows, tiles.begin(i + 1)) - tiles.begin(i));
}

/// The rows of the largest of these tiles.
inline Index largest_row_tile(Index rows, Index tile) {
  if (rows == 0) return 0;
  const detail::RowTiles all(rows, tile);
  // The last is among those of most units, and alone may lack rows of its last one.
  const bool only_the_last = (all.units - 1) % all.count == 0;
  return only_the_last ? rows - all.begin(all.count - 1) : (all.units + all.count - 1) / all.count * all.unit;
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
