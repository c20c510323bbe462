#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstring>

#include "lora/cpu/exp.hpp"
#include "lora/cpu/stored_row.hpp"
#include "lora/cpu/tile_product.hpp"
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

/// Adjacent columns of a row that belong to one head, read as A.
template <class T, class A>
void load_row(const T* from, Index count, Index pad, A* to) {
  LORA_SIMD
  for (Index j = 0; j < count; ++j) to[j] = static_cast<A>(from[j]);
  std::fill(to + count, to + pad, A(0));
}

/// How operands of T are laid out for products in words of one Accum<T>.
template <class T>
struct SingleLayout : SingleWords<Accum<T>> {
  using A = Accum<T>;
  using Word = A;

  /// Rows of T as rows of words, zeros up to `pad` columns.
  template <class Row>
  static void rows(Index count, Index padded_rows, Index width, Index pad, const Row& row, Word* target) {
    for (Index r = 0; r < count; ++r) load_row(row(r), width, pad, target + r * pad);
    std::fill(target + count * pad, target + padded_rows * pad, A(0));
  }
  /// Rows of T so that the inner extent of a product runs over them: the same layout.
  template <class Row>
  static void stacked(Index count, Index padded_rows, Index width, Index pad, const Row& row, Word* target) {
    rows(count, padded_rows, width, pad, row, target);
  }
  /// Σ x y over one row. `spare` holds two rows.
  static A dot(const T* x, const T* y, Index width, Index pad, Word* spare) {
    load_row(x, width, pad, spare);
    load_row(y, width, pad, spare + pad);
    using Vector = typename SingleWords<A>::Vector;
    auto total = Eigen::internal::pset1<Vector>(A(0));
    for (Index j = 0; j < pad; j += SingleWords<A>::lanes)
      total = Eigen::internal::pmadd(Eigen::internal::ploadu<Vector>(spare + j),
                                     Eigen::internal::ploadu<Vector>(spare + pad + j), total);
    return Eigen::internal::predux(total);
  }
  /// (width words, key_tile): columns of T as rows. `spare` holds `count` rows of `pad` words.
  static void transposed(const T* from, Index stride, Index count, Index width, Index pad, Word* spare, Word* target) {
    if constexpr (std::same_as<T, A>) {
      transpose(from, stride, count, width, target, key_tile);
    } else {
      for (Index r = 0; r < count; ++r) load_row(from + r * stride, width, pad, spare + r * pad);
      transpose(spare, pad, count, width, target, key_tile);
    }
    if (count < key_tile)
      for (Index c = 0; c < width; ++c) std::fill(target + c * key_tile + count, target + (c + 1) * key_tile, A(0));
  }
};

#if defined(LORA_BF16_PAIRS)
/// bf16 in words of two; the width of a head is even.
struct PairLayout : PairWords {
  using A = float;

  template <class Row>
  static void rows(Index count, Index padded_rows, Index width, Index pad, const Row& row, Word* target) {
    const auto bytes = static_cast<std::size_t>(width) * sizeof(bf16);
    for (Index r = 0; r < count; ++r) {
      std::memcpy(target + r * pad / 2, row(r), bytes);
      std::memset(reinterpret_cast<std::byte*>(target + r * pad / 2) + bytes, 0,
                  static_cast<std::size_t>(pad) * sizeof(bf16) - bytes);
    }
    std::fill(target + count * pad / 2, target + padded_rows * pad / 2, Word{0});
  }
  template <class Row>
  static void stacked(Index count, Index padded_rows, Index width, Index pad, const Row& row, Word* target) {
    static constexpr std::array<bf16, 16> zeros{};
    const Index whole_part = width / 16 * 16;
    for (Index r = 0; r < padded_rows; r += 2) {
      Word* const to = target + r / 2 * pad;
      if (r + 1 < count) {
        interleave(row(r), row(r + 1), whole_part, to);
      } else if (r < count) {
        for (Index j = 0; j < whole_part; j += 16) interleave(row(r) + j, zeros.data(), 16, to + j);
      } else {
        std::fill_n(to, pad, Word{0});
        continue;
      }
      if (whole_part < pad) {
        std::array<bf16, 16> first{}, second{};
        std::copy_n(row(r) + whole_part, width - whole_part, first.begin());
        if (r + 1 < count) std::copy_n(row(r + 1) + whole_part, width - whole_part, second.begin());
        interleave(first.data(), second.data(), 16, to + whole_part);
      }
    }
  }
  static A dot(const bf16* x, const bf16* y, Index width, Index, Word*) {
    __m512 total = _mm512_setzero_ps();
    for (Index j = 0; j < width; j += 32) {
      const __mmask32 there = width - j >= 32 ? ~__mmask32{0} : (__mmask32{1} << (width - j)) - 1;
      total = _mm512_dpbf16_ps(total, (__m512bh)_mm512_maskz_loadu_epi16(there, x + j),
                               (__m512bh)_mm512_maskz_loadu_epi16(there, y + j));
    }
    return Eigen::internal::predux(total);
  }
  static void transposed(const bf16* from, Index stride, Index count, Index width, Index pad, Word* spare,
                         Word* target) {
    if (stride % 2 == 0) {
      transpose(reinterpret_cast<const float*>(from), stride / 2, count, width / 2, reinterpret_cast<float*>(target),
                key_tile);
    } else {
      rows(
          count, count, width, pad, [&](Index r) { return from + r * stride; }, spare);
      transpose(reinterpret_cast<const float*>(spare), pad / 2, count, width / 2, reinterpret_cast<float*>(target),
                key_tile);
    }
    if (count < key_tile)
      for (Index c = 0; c < width / 2; ++c)
        std::fill(target + c * key_tile + count, target + (c + 1) * key_tile, Word{0});
  }
};
#endif

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
