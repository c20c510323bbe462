#pragma once

#include <algorithm>
#include <concepts>
#include <cstring>

#include "lora/cpu/exp.hpp"
#include "lora/cpu/tile_layout.hpp"
#include "lora/kernel/attention.hpp"

/// The pieces of attention that work on one tile: rows of queries against `key_tile` keys of one key head.
namespace lora::cpu::detail {

inline constexpr Index key_tile = 64;
inline constexpr Index query_rows = 192;

/// The queries [begin, end) of one segment for all heads that share key head g. Row r is query begin + r / repeat under
/// head g · repeat + r % repeat, so that later rows see no fewer keys than earlier ones.
struct QueryTile {
  Index begin = 0, end = 0;  ///< within the segment
  Index repeat = 1;          ///< H / G
  Index lead = 0;            ///< keys minus queries of the segment

  Index rows() const { return (end - begin) * repeat; }
  /// Keys [0, keys_seen) of the segment are seen by row r.
  Index keys_seen(Index row) const { return lead + begin + row / repeat + 1; }
  /// How many of the `count` keys from `key` on row r sees; rows past the last see as many as it.
  Index seen(Index row, Index key, Index count) const {
    return std::clamp<Index>(keys_seen(std::min(row, rows() - 1)) - key, 0, count);
  }
  /// The first row that sees `key`.
  Index first_seeing(Index key) const { return std::clamp<Index>((key - lead - begin) * repeat, 0, rows()); }
  /// The first row of its block: products of the blocks before want nothing of this key or later ones.
  Index first_block_seeing(Index key) const { return first_seeing(key) / 8 * 8; }
};

/// The largest real part of `count` numbers, a multiple of 16.
template <class A>
auto largest(const A* x, Index count) {
  if constexpr (std::floating_point<A>) {
    using Vector = typename Eigen::internal::packet_traits<A>::type;
    constexpr Index size = Eigen::internal::packet_traits<A>::size;
    auto top = Eigen::internal::ploadu<Vector>(x);
    for (Index j = size; j < count; j += size) top = Eigen::internal::pmax(top, Eigen::internal::ploadu<Vector>(x + j));
    return Eigen::internal::predux_max(top);
  } else {
    auto top = real_part(x[0]);
    for (Index j = 1; j < count; ++j) top = std::max(top, real_part(x[j]));
    return top;
  }
}

template <class A>
A sum(const A* x, Index count) {
  using Vector = typename Eigen::internal::packet_traits<A>::type;
  constexpr Index size = Eigen::internal::packet_traits<A>::size;
  auto total = Eigen::internal::ploadu<Vector>(x);
  for (Index j = size; j < count; j += size)
    total = Eigen::internal::padd(total, Eigen::internal::ploadu<Vector>(x + j));
  return Eigen::internal::predux(total);
}

/// x = exp(scale · x − shift) below `count`, 0 from there to `width`. Whole vectors are written, then the rest is
/// cleared: rows of a tile end anywhere.
template <class A, class Shift>
void exponentials(A* x, Index count, Index width, A scale, Shift shift) {
  for (Index j = 0; j < count; j += tile_step) {
    LORA_SIMD
    for (Index i = j; i < j + tile_step; ++i) x[i] = cpu::exp(x[i] * scale - shift);
  }
  std::fill(x + count, x + width, A(0));
}

/// ds = scale · p ∘ (ds − delta) likewise.
template <class A>
void softmax_gradient(const A* p, A* ds, Index count, Index width, A scale, A delta) {
  for (Index j = 0; j < count; j += tile_step) {
    LORA_SIMD
    for (Index i = j; i < j + tile_step; ++i) ds[i] = scale * p[i] * (ds[i] - delta);
  }
  std::fill(ds + count, ds + width, A(0));
}

}  // namespace lora::cpu::detail
