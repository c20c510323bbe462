#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lora/cpu/vectors/eigen.hpp"
#include "lora/cpu/vectors/lanes.hpp"
#include "lora/cpu/vectors/quanta.hpp"
#include "lora/cpu/vectors/stored_row.hpp"

/// Products of blocks of 32 integers by several rows of x: each lane of a vector is another row of the weight, so that
/// what is multiplied needs neither to be unpacked for each row of x nor to be summed across lanes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
namespace lora::cpu::detail {

/// A block of a row of x, whose numbers are put into all lanes.
struct LaneOperand {
  std::int32_t fours[8];           // four q each
  std::int32_t negated_halves[2];  // see RoundedRow, and so below
  float scale, sum;

  LaneOperand(const RoundedRow& x, Index b) : scale(x.scales[b]), sum(x.sums[b]) {
    std::memcpy(fours, x.q + b, sizeof fours);
    std::memcpy(negated_halves, x.negated_halves + b, sizeof negated_halves);
  }
};

/// Rows of a weight that vectors of 64 bytes have in their lanes.
inline constexpr int lane_rows = 16;

#if defined(__AVX512BW__)
using Bits16 = std::uint32_t __attribute__((vector_size(64)));

/// Blocks of 16 rows of a weight.
struct LaneBlock {
  PartBytes q[8];  // of each row the numbers 4c to 4c + 3, without a sign
  Floats16 scales, minima;
};

/// Words that stand behind the beginning of a block of each row.
template <class Weights>
[[gnu::always_inline]] inline void load_words(const Weights& w, int place, Bits16& words) {
  std::array<std::uint32_t, 16> each;
  unrolled<16>([&](auto k) __attribute__((always_inline)) { each[k] = load<std::uint32_t>(w.at(k) + place); });
  words = Bits16{each[0], each[1], each[2],  each[3],  each[4],  each[5],  each[6],  each[7],
                 each[8], each[9], each[10], each[11], each[12], each[13], each[14], each[15]};
}
/// The lower half of each word, a float16.
[[gnu::always_inline]] inline void widen_halves(const Bits16& words, Floats16& to) {
  to = _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)words));
}
/// Sixteen bytes that stand behind the beginning of a block of each row: the first four of each, and so on.
template <class Weights>
[[gnu::always_inline]] inline void load_sixteens(const Weights& w, int place, PartBytes (&fours)[4]) {
  __m512i rows[4], pairs[4];  // rows i, i + 4, i + 8, i + 12
  unrolled<4>([&](auto i) __attribute__((always_inline)) {
    const auto sixteen = [&](int k) __attribute__((always_inline)) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(w.at(k) + place));
    };
    rows[i] = _mm512_castsi128_si512(sixteen(i));
    rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x00F0, sixteen(i + 4));
    rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x0F00, sixteen(i + 8));
    rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0xF000, sixteen(i + 12));
  });
  unrolled<2>([&](auto i) __attribute__((always_inline)) {
    pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  });
  unrolled<2>([&](auto i) __attribute__((always_inline)) {
    fours[2 * i] = (PartBytes)_mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[2 * i + 1] = (PartBytes)_mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
  });
}
/// Adds 16 to each byte of a word whose bit from bit `first` on is 1 in another word, as the bytes come.
template <int first>
[[gnu::always_inline]] inline void add_sixteens(const Bits16& bits, PartBytes& bytes) {
  constexpr int byte = first / 8, low = 1 << first % 8;
  constexpr int lane = byte * 0x01010101;
  const __m512i from = _mm512_set4_epi32(lane + 0x0C0C0C0C, lane + 0x08080808, lane + 0x04040404, lane);
  const __m512i places = _mm512_set1_epi32(low | low << 9 | low << 18 | static_cast<int>(unsigned{low} << 27));
  const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8((__m512i)bits, from), places);
  bytes = (PartBytes)_mm512_mask_add_epi8((__m512i)bytes, set, (__m512i)bytes, _mm512_set1_epi8(16));
}

/// Sums of 16 rows of a weight by one of x, in parts as BlockSums has them in its lanes.
struct LaneSums {
  Floats16 totals[2], minima;
};

/// Adds products of blocks of a weight of Format and those of `rows` rows of x, of which x[b * stride] are the b-th.
template <class Format, int rows>
[[gnu::flatten, gnu::noinline]] inline void add_lanes(const LaneBlock* w, const LaneOperand* x, Index stride,
                                                      Index blocks, LaneSums* sums) {
  const auto everywhere = [](const std::int32_t& word) __attribute__((always_inline)) {
    return _mm512_set1_epi32(word);
  };
  Floats16 totals[std::size_t{rows}][2];
  unrolled<rows, 2>([&](auto r, auto h) __attribute__((always_inline)) { totals[r][h] = sums[r].totals[h]; });
  const LaneOperand* each = x;
  for (Index b = 0; b < blocks; ++b, each += stride) {
    PartBytes q[8];
    unrolled<8>([&](auto c) __attribute__((always_inline)) { q[c] = w[b].q[c]; });
    const Floats16 scales = w[b].scales;
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      Floats16 scale;
      fill_lanes(each[r].scale, scale);
      scale *= scales;
      unrolled<2>([&](auto h) __attribute__((always_inline)) {
        Sums16 products{};
        if constexpr (Format::center != 0) products = (Sums16)everywhere(each[r].negated_halves[h]) * Format::center;
          // Numbers i with i / 8 even, or odd: fours 0, 1, 4, 5, or 2, 3, 6, 7.
#  if defined(__AVX512VNNI__)
        unrolled<4>([&](auto i) __attribute__((always_inline)) {
          constexpr int c = i / 2 * 4 + h * 2 + i % 2;
          products = (Sums16)_mm512_dpbusd_epi32((__m512i)products, (__m512i)q[c], everywhere(each[r].fours[c]));
        });
#  else
        __m512i pairs = _mm512_setzero_si512();  // sums of eight products, which fit 16 bits as w ≤ 31
        unrolled<4>([&](auto i) __attribute__((always_inline)) {
          constexpr int c = i / 2 * 4 + h * 2 + i % 2;
          pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16((__m512i)q[c], everywhere(each[r].fours[c])));
        });
        products += (Sums16)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#  endif
        add_product(_mm512_cvtepi32_ps((__m512i)products), scale, totals[r][h]);
      });
    });
  }
  unrolled<rows, 2>([&](auto r, auto h) __attribute__((always_inline)) { sums[r].totals[h] = totals[r][h]; });
  if constexpr (Format::from_minimum) {  // behind the others, which take all registers
    Floats16 minima[std::size_t{rows}];
    unrolled<rows>([&](auto r) __attribute__((always_inline)) { minima[r] = sums[r].minima; });
    each = x;
    for (Index b = 0; b < blocks; ++b, each += stride)
      unrolled<rows>([&](auto r) __attribute__((always_inline)) {
        Floats16 sum;
        fill_lanes(each[r].sum, sum);
        add_product(w[b].minima, sum, minima[r]);
      });
    unrolled<rows>([&](auto r) __attribute__((always_inline)) { sums[r].minima = minima[r]; });
  }
}
#endif

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
