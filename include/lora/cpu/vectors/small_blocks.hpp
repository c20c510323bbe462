#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lora/cpu/vectors/eigen.hpp"
#include "lora/cpu/vectors/lanes.hpp"
#include "lora/cpu/vectors/quanta.hpp"
#include "lora/cpu/vectors/row_lanes.hpp"
#include "lora/cpu/vectors/stored_row.hpp"

/// Products of weights in GGUF's blocks of 32 numbers. Unpacking these and scaling each sum takes more instructions
/// than their products: sums of four products are put into one before they are scaled, and of numbers of four or five
/// bits blocks of two rows of a weight fill a vector.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
namespace lora::cpu::detail {

using Bytes16 = std::uint8_t __attribute__((vector_size(16)));

/// Blocks of two rows of a weight, the first row's in lower halves of vectors: numbers 0 to 15 of both, and 16 to 31.
struct BlockPair {
  Bytes32 low, high;
};

/// Sixteen bits of each half of a vector, from bit 16 · `upper` of a word on that is all over that half: as bytes that
/// are 16 where the bit is 1.
template <int upper>
[[gnu::always_inline]] inline void bits_as_sixteens(const Bytes32& words, Bytes32& to) {
  constexpr Bytes32 places{1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                           1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  constexpr int a = 2 * upper, b = a + 1, c = a + 16, d = a + 17;
  const Bytes32 spread = __builtin_shufflevector(words, words, a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b, c, c, c,
                                                 c, c, c, c, c, d, d, d, d, d, d, d, d);
  to = reinterpret_cast<Bytes32>((spread & places) == places) & 16;
}

/// Two vectors of sums, as one of sums of two adjacent lanes each: of either lower half, and of either upper half.
[[gnu::always_inline]] inline void join(const Sums8& first, const Sums8& second, Sums8& sums) {
  sums = __builtin_shufflevector(first, second, 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(first, second, 1, 3, 9, 11, 5, 7, 13, 15);
}
#if defined(__AVX2__) && !(defined(__AVX512VNNI__) && defined(__AVX512VL__))
/// Two sums each of eight adjacent lanes, of products w x with w ≤ 31, of which sums of eight fit 16 bits.
using PairSums = Shorts16;
[[gnu::always_inline]] inline void multiply(const BlockPair& w, const Bytes32& low, const Bytes32& high,
                                            PairSums& sums) {
  sums = (Shorts16)_mm256_maddubs_epi16((__m256i)w.low, (__m256i)low) +
         (Shorts16)_mm256_maddubs_epi16((__m256i)w.high, (__m256i)high);
}
[[gnu::always_inline]] inline void join(const PairSums& first, const PairSums& second, Sums8& sums) {
  sums = (Sums8)_mm256_madd_epi16(_mm256_hadd_epi16((__m256i)first, (__m256i)second), _mm256_set1_epi16(1));
}
#else
/// Sums of eight products each.
using PairSums = Sums8;
[[gnu::always_inline]] inline void multiply(const BlockPair& w, const Bytes32& low, const Bytes32& high,
                                            PairSums& sums) {
  sums = PairSums{};
  add_fours(w.low, low, sums);
  add_fours(w.high, high, sums);
}
#endif

/// Q8_0
struct Eights {
  static constexpr int columns = 32, bytes = 34;
  static constexpr bool from_minimum = false;
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  static constexpr int center = 128;  // of q + 128, which has no sign
#else
  static constexpr int center = 0;
#endif

  /// Blocks of `together` rows of a weight.
  template <int together>
  struct Blocks {
    Bytes32 q[std::size_t{together}];

    template <class Weights>
    [[gnu::always_inline]] explicit Blocks(const Weights& w) {
      unrolled<together>([&](auto k) __attribute__((always_inline)) {
        load_bytes(w.at(k) + 2, q[k]);
        if constexpr (center != 0) q[k] ^= 128;
      });
    }
    /// See BlockSums::add.
    [[gnu::always_inline]] void multiply(const RoundedRow& first, const RoundedRow& second, Index b,
                                         Sums8& products) const {
      Sums8 sums[4], halves[2];
      unrolled<4>([&](auto i) __attribute__((always_inline)) {
        const Bytes32& w = q[together == 4 ? i : i / 2];
        const Bytes32& x = (together == 4 || i % 2 == 0 ? first : second).q[b];
        sums[i] = Sums8{};
#if defined(__AVX2__) && !(defined(__AVX512VNNI__) && defined(__AVX512VL__))
        // The instructions take their first operand without a sign.
        add_fours((Bytes32)_mm256_abs_epi8((__m256i)w), (Bytes32)_mm256_sign_epi8((__m256i)x, (__m256i)w), sums[i]);
#else
        add_fours(w, x, sums[i]);
#endif
      });
      join(sums[0], sums[1], halves[0]);
      join(sums[2], sums[3], halves[1]);
      products = __builtin_shufflevector(halves[0], halves[1], 0, 1, 2, 3, 8, 9, 10, 11) +
                 __builtin_shufflevector(halves[0], halves[1], 4, 5, 6, 7, 12, 13, 14, 15);
    }
  };

  /// Whether there is load_lanes, which puts blocks of 16 rows into lanes.
#if defined(__AVX512BW__) && defined(__AVX512VNNI__) && defined(__AVX512VL__)
  static constexpr bool has_lanes = true;
  template <class Weights>
  [[gnu::always_inline]] static void load_lanes(const Weights& w, LaneBlock& block) {
    Bits16 heads;
    load_words(w, 0, heads);
    widen_halves(heads, block.scales);
    unrolled<2>([&](auto i) __attribute__((always_inline)) {
      PartBytes fours[4];
      load_sixteens(w, 2 + 16 * i, fours);
      unrolled<4>([&](auto c) __attribute__((always_inline)) { block.q[4 * i + c] = fours[c] ^ 128; });
    });
  }
#else
  static constexpr bool has_lanes = false;
#endif
};

/// Q4_0, Q4_1, and Q5_0, Q5_1 with a fifth bit.
template <bool fifth, bool minimum>
struct Nibbles {
  static constexpr bool from_minimum = minimum;
  static constexpr int head = 2 + (from_minimum ? 2 : 0) + (fifth ? 4 : 0);
  static constexpr int columns = 32, bytes = head + 16;
  static constexpr int center = from_minimum ? 0 : fifth ? 16 : 8;

  [[gnu::always_inline]] static void load_pair(const std::byte* first, const std::byte* second, BlockPair& pair) {
    Bytes16 halves[2];
    std::memcpy(&halves[0], first + head, 16);
    std::memcpy(&halves[1], second + head, 16);
    const Bytes32 both = __builtin_shufflevector(halves[0], halves[1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                                 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
    shift_bytes(both, 4, pair.high);
    pair.low = both & 15;
    pair.high &= 15;
    if constexpr (fifth) {
      const auto a = load<std::uint32_t>(first + head - 4), b = load<std::uint32_t>(second + head - 4);
      const Bits8 words{a, a, a, a, b, b, b, b};
      Bytes32 fifths;
      bits_as_sixteens<0>(reinterpret_cast<Bytes32>(words), fifths);
      pair.low |= fifths;
      bits_as_sixteens<1>(reinterpret_cast<Bytes32>(words), fifths);
      pair.high |= fifths;
    }
  }

  /// Blocks of `together` rows of a weight.
  template <int together>
  struct Blocks {
    BlockPair pairs[std::size_t{together} / 2];

    template <class Weights>
    [[gnu::always_inline]] explicit Blocks(const Weights& w) {
      unrolled<together / 2>([&](auto i) __attribute__((always_inline)) {
        load_pair(w.at(i), w.at(i + together / 2), pairs[i]);
      });
    }
    /// See BlockSums::add.
    [[gnu::always_inline]] void multiply(const RoundedRow& first, const RoundedRow& second, Index b,
                                         Sums8& products) const {
      PairSums sums[2];
      multiply(pairs[0], first, b, sums[0]);
      multiply(pairs[together / 2 - 1], second, b, sums[1]);
      join(sums[0], sums[1], products);
    }

   private:
    [[gnu::always_inline]] static void multiply(const BlockPair& w, const RoundedRow& x, Index b, PairSums& sums) {
      Bytes32 low, high;
      load_twice(reinterpret_cast<const std::byte*>(x.q + b), low);
      load_twice(reinterpret_cast<const std::byte*>(x.q + b) + 16, high);
      detail::multiply(w, low, high, sums);
    }
  };

  /// See Eights.
#if defined(__AVX512BW__)
  static constexpr bool has_lanes = true;
  template <class Weights>
  [[gnu::always_inline]] static void load_lanes(const Weights& w, LaneBlock& block) {
    Bits16 heads;
    load_words(w, 0, heads);
    widen_halves(heads, block.scales);
    if constexpr (from_minimum) widen_halves(heads >> 16, block.minima);
    PartBytes fours[4];
    load_sixteens(w, head, fours);
    unrolled<4>([&](auto c) __attribute__((always_inline)) {
      shift_parts<4, 4>(fours[c], block.q[4 + c]);
      block.q[4 + c] &= 15;
      block.q[c] = fours[c] & 15;
    });
    if constexpr (fifth) {
      load_words(w, head - 4, heads);
      unrolled<8>([&](auto c) __attribute__((always_inline)) { add_sixteens<4 * c>(heads, block.q[c]); });
    }
  }
#else
  static constexpr bool has_lanes = false;
#endif
};

/// Of four blocks the scales in even lanes, and in odd ones minima or whatever stands there.
[[gnu::always_inline]] inline void load_heads(const std::byte* a, const std::byte* b, const std::byte* c,
                                              const std::byte* d, Floats8& heads) {
  const Sums4 words{load<std::int32_t>(a), load<std::int32_t>(b), load<std::int32_t>(c), load<std::int32_t>(d)};
#if defined(__F16C__)
  heads = _mm256_cvtph_ps((__m128i)words);
#else
  f16 halves[8];
  std::memcpy(halves, &words, sizeof halves);
  for (int i = 0; i < 8; ++i) heads[i] = widened(halves[i]);
#endif
}

/// Sums of `together` rows of a weight by `rows` rows of x: of four by one, or of two by an even number.
///   lane 2i + h of a vector of four   Σ_b scale x_scale Σ_j (w_j − center) x_j,   h = j / 8 mod 2,   of product i
template <class Format, int together, int rows>
class BlockSums {
 public:
  /// Adds products of blocks b of x and those at w.at(k) of weights' rows k.
  template <class Weights>
  [[gnu::always_inline]] void add(const Weights& w, const RoundedRow (&x)[std::size_t{rows}], Index b) {
    const typename Format::template Blocks<together> blocks(w);
    Floats8 heads;
    if constexpr (together == 4) {
      load_heads(w.at(0), w.at(1), w.at(2), w.at(3), heads);
    } else {
      load_heads(w.at(0), w.at(0), w.at(1), w.at(1), heads);
    }
    const Floats8 scales = __builtin_shufflevector(heads, heads, 0, 0, 2, 2, 4, 4, 6, 6);
    unrolled<vectors>([&](auto v) {
      const RoundedRow &first = x[v * along], &second = x[v * along + along - 1];
      Sums8 products;
      blocks.multiply(first, second, b, products);
      if constexpr (Format::center > 0) {
        const Sums8 halves =
            __builtin_shufflevector(first.negated_halves[b], second.negated_halves[b], 0, 1, 6, 7, 0, 1, 6, 7);
        products += halves * Format::center;
      }
      const float s = first.scales[b], t = second.scales[b];
      add_product(__builtin_convertvector(products, Floats8), scales * Floats8{s, s, t, t, s, s, t, t}, totals_[v]);
      if constexpr (Format::from_minimum) {
        const float m = first.sums[b], n = second.sums[b];
        add_product(heads, Floats8{m, m, n, n, m, m, n, n}, minima_[v]);
      }
    });
  }
  float of(int k, int s) const {
    const int v = s / along, i = 2 * (together == 4 ? k : 2 * k + s % 2);
    return (totals_[v][i] + totals_[v][i + 1]) + minima_[v][i + 1];
  }

 private:
  static constexpr int along = 4 / together;  // rows of x of a vector
  static constexpr int vectors = rows / along;

  Floats8 totals_[std::size_t{vectors}] = {}, minima_[std::size_t{vectors}] = {};
};

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
