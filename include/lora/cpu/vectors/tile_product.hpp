#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>

#include "lora/core/config.hpp"
#include "lora/core/scalar.hpp"
#include "lora/cpu/vectors/eigen.hpp"
#include "lora/cpu/vectors/lanes.hpp"

/// Products of tiles that fit a core's caches, for kernels that keep their operands there. An operand consists of
/// words: the adjacent elements of the inner extent that one instruction takes together, one in float, two in bf16.
namespace lora::cpu {

/// Extents of tiles are padded to whole multiples of this.
inline constexpr Index tile_step = 16;

constexpr Index padded(Index extent, Index step = tile_step) { return (extent + step - 1) / step * step; }

/// Words of one element, products and sums in A.
template <class A>
struct SingleWords {
  using Sum = A;
  using Word = A;
  static constexpr Index pairing = 1;
  using Vector = typename Eigen::internal::packet_traits<A>::type;
  static constexpr Index lanes = Eigen::internal::packet_traits<A>::size;

  static Vector load(const Word* from) { return Eigen::internal::ploadu<Vector>(from); }
  static Vector broadcast(const Word* from) { return Eigen::internal::pset1<Vector>(*from); }
  static Vector multiply_add(const Vector& a, const Vector& b, const Vector& c) {
    return Eigen::internal::pmadd(a, b, c);
  }
};

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#  define LORA_BF16_PAIRS 1

/// Words of two bf16, the first in the lower half; products and sums in float.
struct PairWords {
  using Sum = float;
  using Word = std::uint32_t;
  static constexpr Index pairing = 2;
  using Vector = __m512;
  static constexpr Index lanes = 16;

  static __m512i load(const Word* from) { return _mm512_loadu_si512(from); }
  static __m512i broadcast(const Word* from) { return _mm512_set1_epi32(static_cast<int>(*from)); }
  static Vector multiply_add(const __m512i& a, const __m512i& b, const Vector& c) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  }
};

/// target[i] = (first[i], second[i]) for `count` values, a multiple of 16.
inline void interleave(const bf16* first, const bf16* second, Index count, std::uint32_t* target) {
  for (Index i = 0; i < count; i += 16) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + i));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + i));
    _mm512_storeu_si512(
        target + i, _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
  }
}

/// The same for float values rounded to bf16 (numbers below the smallest normal one become 0).
inline void interleave(const float* first, const float* second, Index count, std::uint32_t* target) {
  for (Index i = 0; i < count; i += 16) {
    const auto low = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(first + i));
    const auto high = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(second + i));
    _mm512_storeu_si512(
        target + i, _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
  }
}

/// `count` floats, a multiple of 16, rounded to bf16 likewise, as count / 2 words.
inline void round_to_words(const float* from, Index count, std::uint32_t* target) {
  for (Index i = 0; i < count; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i / 2),
                        (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
}
#endif

namespace detail {

/// Rows of c that are computed together: as many sums as fit the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int block_rows = 8;
#else
inline constexpr int block_rows = 4;
#endif

/// A block of block_rows rows and `vectors` vectors of c.
template <class P, int vectors>
[[gnu::flatten]] void block_product(Index depth, const typename P::Word* a, Index a_row, Index a_word,
                                    const typename P::Word* b, Index b_row, typename P::Sum* c, Index c_row,
                                    bool accumulate) {
  using Vector = typename P::Vector;
  using Eigen::internal::ploadu;
  using Eigen::internal::pset1;
  using Eigen::internal::pstoreu;
  constexpr std::size_t width = std::size_t{vectors};
  Vector sums[block_rows][width];
  if (accumulate) {
    unrolled<block_rows, vectors>([&](auto i, auto j) { sums[i][j] = ploadu<Vector>(c + i * c_row + j * P::lanes); });
  } else {
    unrolled<block_rows, vectors>([&](auto i, auto j) { sums[i][j] = pset1<Vector>(typename P::Sum(0)); });
  }
  for (Index k = 0; k < depth; ++k) {
    decltype(P::load(b)) right[width];
    unrolled<vectors>([&](auto j) { right[j] = P::load(b + j * P::lanes); });
    unrolled<block_rows>([&](auto i) {
      const auto left = P::broadcast(a + i * a_row);
      unrolled<vectors>([&](auto j) { sums[i][j] = P::multiply_add(left, right[j], sums[i][j]); });
    });
    a += a_word;
    b += b_row;
  }
  unrolled<block_rows, vectors>([&](auto i, auto j) { pstoreu(c + i * c_row + j * P::lanes, sums[i][j]); });
}

}  // namespace detail

/// The part of a product that some rows of c need: words [first, last) of the inner extent, the columns below
/// `columns`.
struct TileRange {
  Index first = 0;
  Index last = 0;
  Index columns = 0;
};

/// c (m, n) = a b  (+ c if accumulate), restricted by range(i, rows) for the rows [i, i + rows).
/// Shapes   a (m, k words) with any strides · b (k words, n), rows of adjacent words · c (m, n); m a multiple of 8, and
///          as many columns as the range says, rounded up to a multiple of tile_step, lie in b and c
template <class P, class Range>
void tile_product(Index m, const typename P::Word* a, Index a_row, Index a_word, const typename P::Word* b, Index b_row,
                  typename P::Sum* c, Index c_row, bool accumulate, const Range& range) {
  for (Index i = 0; i < m; i += detail::block_rows) {
    const TileRange wanted = range(i, Index{detail::block_rows});
    const Index depth = wanted.last - wanted.first;
    if (depth <= 0 && accumulate) continue;
    const auto* const left = a + i * a_row + wanted.first * a_word;
    const auto* const right = b + wanted.first * b_row;
    auto* const out = c + i * c_row;
    Index j = 0;
    for (; wanted.columns - j > P::lanes; j += 2 * P::lanes)
      detail::block_product<P, 2>(depth, left, a_row, a_word, right + j, b_row, out + j, c_row, accumulate);
    for (; j < wanted.columns; j += P::lanes)
      detail::block_product<P, 1>(depth, left, a_row, a_word, right + j, b_row, out + j, c_row, accumulate);
  }
}

/// The whole tile, the same for every row.
inline auto whole(Index words, Index columns) {
  return [=](Index, Index) { return TileRange{0, words, columns}; };
}

/// target (cols, rows) = sourceᵀ: `rows` rows of `cols` words, which lie `source_row` and `target_row` words apart.
/// Words are copied, never read as numbers: pairs of bf16 may be passed as float.
template <class Word>
void transpose(const Word* source, Index source_row, Index rows, Index cols, Word* target, Index target_row) {
  Index i = 0;
  if constexpr (std::same_as<Word, float>) {
    using Vector = typename Eigen::internal::packet_traits<float>::type;
    constexpr int size = Eigen::internal::packet_traits<float>::size;
    if constexpr (size > 1) {
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wignored-attributes"  // of a vector type as template argument
#endif
      using Block = Eigen::internal::PacketBlock<Vector, size>;
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic pop
#endif
      for (; i + size <= rows; i += size) {
        Index j = 0;
        for (; j + size <= cols; j += size) {
          Block block;
          LORA_UNROLL
          for (int k = 0; k < size; ++k)
            block.packet[k] = Eigen::internal::ploadu<Vector>(source + (i + k) * source_row + j);
          Eigen::internal::ptranspose(block);
          LORA_UNROLL
          for (int k = 0; k < size; ++k) Eigen::internal::pstoreu(target + (j + k) * target_row + i, block.packet[k]);
        }
        for (; j < cols; ++j)
          for (int k = 0; k < size; ++k)
            std::memcpy(target + j * target_row + i + k, source + (i + k) * source_row + j, sizeof(Word));
      }
    }
  }
  for (; i < rows; ++i)
    for (Index j = 0; j < cols; ++j)
      std::memcpy(target + j * target_row + i, source + i * source_row + j, sizeof(Word));
}

}  // namespace lora::cpu
