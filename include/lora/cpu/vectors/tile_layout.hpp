#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>

#include "lora/core/config.hpp"
#include "lora/cpu/vectors/tile_product.hpp"

namespace lora::cpu::detail {

/// `count` adjacent values read as A, zeros up to `pad`.
template <class T, class A>
void load_row(const T* from, Index count, Index pad, A* to) {
  LORA_SIMD
  for (Index j = 0; j < count; ++j) to[j] = static_cast<A>(from[j]);
  std::fill(to + count, to + pad, A(0));
}

/// Prefetches a row. The rows of one head lie too far apart for the processor to prefetch them itself.
template <class T>
void prefetch_row(const T* row, Index count) {
  for (Index j = 0; j < count; j += 64 / static_cast<Index>(sizeof(T))) __builtin_prefetch(row + j);
}

/// How many rows before its use a row is prefetched.
inline constexpr Index prefetch_distance = 8;

/// The layout of operands of T for products in words of one Accum<T>, padded with zeros.
template <class T>
struct SingleLayout : SingleWords<Accum<T>> {
  using A = Accum<T>;
  using Word = A;

  /// Rows of T, along which the inner extent of a product runs, as rows of pad / pairing words.
  template <class Row>
  static void rows(Index count, Index padded_rows, Index width, Index pad, const Row& row, Word* target) {
    for (Index r = 0; r < count; ++r) {
      if (r + prefetch_distance < count) prefetch_row(row(r + prefetch_distance), width);
      load_row(row(r), width, pad, target + r * pad);
    }
    std::fill(target + count * pad, target + padded_rows * pad, A(0));
  }
  /// Rows of T, over which the inner extent of a product runs, as one row of `pad` words for each `pairing` of them.
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
  /// Rows of T, along which the inner extent of a product runs, as the columns of rows of `target_row` words. `spare`
  /// holds `count` rows of `pad` words.
  static void transposed(const T* from, Index stride, Index count, Index width, Index pad, Word* spare, Word* target,
                         Index target_row) {
    if constexpr (std::same_as<T, A>) {
      transpose(from, stride, count, width, target, target_row);
    } else {
      for (Index r = 0; r < count; ++r) load_row(from + r * stride, width, pad, spare + r * pad);
      transpose(spare, pad, count, width, target, target_row);
    }
    if (count < target_row)
      for (Index c = 0; c < width; ++c) std::fill(target + c * target_row + count, target + (c + 1) * target_row, A(0));
  }
};

#if defined(LORA_BF16_PAIRS)
/// bf16 in words of two.
struct PairLayout : PairWords {
  using A = float;

  template <class Row>
  static void rows(Index count, Index padded_rows, Index width, Index pad, const Row& row, Word* target) {
    const auto bytes = static_cast<std::size_t>(width) * sizeof(bf16);
    for (Index r = 0; r < count; ++r) {
      if (r + prefetch_distance < count) prefetch_row(row(r + prefetch_distance), width);
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
  static void transposed(const bf16* from, Index stride, Index count, Index width, Index pad, Word* spare, Word* target,
                         Index target_row) {
    const Index words = (width + 1) / 2;
    auto* const to = reinterpret_cast<float*>(target);  // words are only copied
    if (stride % 2 == 0 && width % 2 == 0) {
      transpose(reinterpret_cast<const float*>(from), stride / 2, count, words, to, target_row);
    } else {
      const auto row = [&](Index r) { return from + r * stride; };
      rows(count, count, width, pad, row, spare);
      transpose(reinterpret_cast<const float*>(spare), pad / 2, count, words, to, target_row);
    }
    if (count < target_row)
      for (Index c = 0; c < words; ++c)
        std::fill(target + c * target_row + count, target + (c + 1) * target_row, Word{0});
  }
};
#endif

/// Calls body.operator()<L>() with the layout for products of T in this build.
template <class T, class Body>
void with_layout(const Body& body) {
#if defined(LORA_BF16_PAIRS)
  if constexpr (std::same_as<T, bf16>) return body.template operator()<PairLayout>();
#endif
  body.template operator()<SingleLayout<T>>();
}

}  // namespace lora::cpu::detail
