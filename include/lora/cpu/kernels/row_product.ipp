#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/scalar.hpp"
#include "lora/cpu/kernels/row_product.hpp"
#include "lora/cpu/vectors/lanes.hpp"
#include "lora/cpu/vectors/quanta.hpp"
#include "lora/cpu/vectors/row_lanes.hpp"
#include "lora/cpu/vectors/small_blocks.hpp"
#include "lora/cpu/vectors/stored_row.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // see lanes.hpp
namespace lora::cpu::detail {

/// 32 stored numbers as two vectors of float. `in_pairs`: those of even places, then those of odd ones.
template <class Stored>
struct FloatBlock {
  static constexpr bool in_pairs = false;
  static void load(const std::byte* from, Floats16& first, Floats16& second) {
    if constexpr (std::same_as<Stored, float>) {
      const auto* const values = static_cast<const float*>(static_cast<const void*>(from));
      load_floats(values, first);
      load_floats(values + 16, second);
    } else {
#if defined(__AVX512BW__)
      if constexpr (std::same_as<Stored, f16>) {
        first = (Floats16)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        second = (Floats16)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)));
        return;
      }
#elif defined(__F16C__)
      if constexpr (std::same_as<Stored, f16>) {
        const auto* const eights = reinterpret_cast<const __m128i*>(from);
        first = {_mm256_cvtph_ps(_mm_loadu_si128(eights)), _mm256_cvtph_ps(_mm_loadu_si128(eights + 1))};
        second = {_mm256_cvtph_ps(_mm_loadu_si128(eights + 2)), _mm256_cvtph_ps(_mm_loadu_si128(eights + 3))};
        return;
      }
#endif
      float values[32];
      decode_values<Stored>(from, 32, values);
      load_floats(values, first);
      load_floats(values + 16, second);
    }
  }
};
/// Pairs of bfloat16 in words: the second of each is a float but for bits below it, the first is one once shifted.
template <>
struct FloatBlock<bf16> {
  static constexpr bool in_pairs = true;
  static void load(const std::byte* from, Floats16& first, Floats16& second) {
#if defined(__AVX512BW__)
    Bits16 pairs;
    std::memcpy(&pairs, from, sizeof pairs);
    first = reinterpret_cast<Floats16>(pairs << 16);
    second = reinterpret_cast<Floats16>(pairs & 0xFFFF0000u);
#else
    Bits8 low, high;
    std::memcpy(&low, from, sizeof low);
    std::memcpy(&high, from + sizeof low, sizeof high);
    first = {reinterpret_cast<Floats8>(low << 16), reinterpret_cast<Floats8>(high << 16)};
    second = {reinterpret_cast<Floats8>(low & 0xFFFF0000u), reinterpret_cast<Floats8>(high & 0xFFFF0000u)};
#endif
  }
};

/// Whether rows of x are multiplied with a weight whose rows are put into lanes. That takes as long as three rows of x
/// do then, and one row alone as long as it does otherwise.
inline bool in_lanes(DType stored, Index rows) {
  return rows >= 2 && block_elements(stored) == 32 &&
         (stored == DType::q8_0 ? Eights::has_lanes : Nibbles<false, false>::has_lanes);
}

/// Rows of x as weights of the terms are multiplied with them: each form is made once, if one of the weights takes it.
class RowForms {
 public:
  /// In scratch of the enclosing scope.
  /// Throws   FormatError for a weight of integers without a scale
  RowForms(Device& dev, View<Device, const float> x, RowTerms terms) {
    for (const RowTerm& term : terms) {
      switch (term.w.dtype()) {
        case DType::f32:
        case DType::f16:
        case DType::f64:
          if (floats_.empty()) floats_ = widen(dev, x, false);
          break;
        case DType::bf16:
          if (pairs_.empty()) pairs_ = widen(dev, x, true);
          break;
        default:
          if (block_elements(term.w.dtype()) == 1)
            fail<FormatError>("[cpu] a weight stored as ", name_of(term.w.dtype()), " can't be read as numbers");
          if (quanta_.empty()) round(dev, x);
          if (in_lanes(term.w.dtype(), x.rows()) && operands_.empty()) lay_for_lanes(dev);
      }
    }
  }

  template <class Stored>
  const View<Device, float>& floats() const {
    return FloatBlock<Stored>::in_pairs ? pairs_ : floats_;
  }
  RoundedRow rounded(Index r) const {
    return {quanta_.row(r), fours_.row(r), halves_.row(r), scales_.row(r), sums_.row(r)};
  }
  /// Of all rows of x: row r's block b is element (b, r).
  const View<Device, LaneOperand>& operands() const { return operands_; }

 private:
  // Blocks of 32 that a thread is woken for.
  static constexpr Index grain = 512;

  static View<Device, float> widen(Device& dev, View<Device, const float> x, bool in_pairs) {
    const Index blocks = (x.cols() + 31) / 32;
    const View<Device, float> wide = scratch<float>(dev, x.rows(), blocks * 32);
    for_blocks(dev, x.rows(), blocks, [=](Index r, Index b) {
      float values[32] = {};
      std::copy_n(x.row(r) + b * 32, std::min<Index>(32, x.cols() - b * 32), values);
      float* const to = wide.row(r) + b * 32;
      for (int i = 0; i < 32; ++i) to[in_pairs ? i % 2 * 16 + i / 2 : i] = values[i];
    });
    return wide;
  }

  void round(Device& dev, View<Device, const float> x) {
    const Index groups = x.cols() / 32;
    quanta_ = scratch<Bytes32>(dev, x.rows(), groups);
    fours_ = scratch<Sums8>(dev, x.rows(), groups);
    halves_ = scratch<Sums4>(dev, x.rows(), groups);
    scales_ = scratch<float>(dev, x.rows(), groups);
    sums_ = scratch<float>(dev, x.rows(), groups);
    for_blocks(dev, x.rows(), groups, [&](Index r, Index g) {
      round_block(x.row(r) + g * 32, quanta_.row(r)[g], fours_.row(r)[g], halves_.row(r)[g], scales_.row(r)[g],
                  sums_.row(r)[g]);
    });
  }

  void lay_for_lanes(Device& dev) {
    operands_ = scratch<LaneOperand>(dev, quanta_.cols(), quanta_.rows());
    for_blocks(dev, quanta_.rows(), quanta_.cols(),
               [&](Index r, Index b) { operands_.row(b)[r] = LaneOperand(rounded(r), b); });
  }

  template <class Body>
  static void for_blocks(Device& dev, Index rows, Index blocks, const Body& body) {
    dev.parallel_for(rows * blocks, grain, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) body(i / blocks, i % blocks);
    });
  }

  View<Device, float> floats_, pairs_;  // with zeros behind a row's end up to a whole block
  View<Device, Bytes32> quanta_;        // see RoundedRow
  View<Device, Sums8> fours_;
  View<Device, Sums4> halves_;
  View<Device, float> scales_, sums_;
  View<Device, LaneOperand> operands_;
};

/// Rows of a weight that are multiplied together, so that what is read serves several sums and no sum waits for the one
/// before it: `group` of them by one row of x, else half of them at a time, or as many as there are lanes.
inline constexpr int group = 4;

/// Rows of a weight on the way through their columns, of which so many bytes are read at a time.
///
/// What comes 16 KiB later is asked for, as processors see no end of a short row. It is brought as far as the second
/// cache: to the first one only a dozen lines are on their way at a time, which halves what one thread gets.
template <int together, Index bytes>
struct WeightRows {
  const std::byte* from[std::size_t{together}];
  Index place;  // in each row: a pointer into each would be kept in memory

  WeightRows(const StoredView<Device>& w, Index first) {
    for (int k = 0; k < together; ++k)
      from[k] = w.data() + static_cast<std::size_t>(std::min(first + k, w.rows() - 1)) * w.row_bytes();
    place = 0;
  }
  [[gnu::always_inline]] const std::byte* at(int k) const { return from[k] + place; }
  [[gnu::always_inline]] void ask() const {
    constexpr Index all = together * bytes;
    LORA_UNROLL
    for (Index line = 0; line < all; line += 64) __builtin_prefetch(from[0] + together * place + 16384 + line, 0, 2);
  }
};

/// Calls tile(first, r, sums) with `together` and `rows` as its arguments for rows of w from `first` on, within
/// [begin, end), and rows of x from r on, up to `most` of these at a time, and stores sums[w][x] in y.
template <int most, class Tile>
void for_row_tiles(const RowTerm& term, bool accumulate, Index begin, Index end, const Tile& tile) {
  const View<Device, float>& y = term.y;
  const auto part = [&]<int together, int rows>(Index i, Index r) {
    float sums[std::size_t{together}][std::size_t{rows}];
    tile.template operator()<together, rows>(i, r, sums);
    const int count = static_cast<int>(std::min<Index>(together, y.cols() - i));
    for (int x = 0; x < rows; ++x)
      for (int k = 0; k < count; ++k) y.row(r + x)[i + k] = (accumulate ? y.row(r + x)[i + k] : 0) + sums[k][x];
  };
  for (Index i = begin; i < end; i += group) {
    Index r = 0;
    const auto halves = [&]<int rows>() {
      part.template operator()<group / 2, rows>(i, r);
      if (i + group / 2 < y.cols()) part.template operator()<group / 2, rows>(i + group / 2, r);
      r += rows;
    };
    while (r + most <= y.rows()) halves.template operator()<most>();
    if constexpr (most > 4)
      if (r + 4 <= y.rows()) halves.template operator()<4>();
    if (r + 2 <= y.rows()) halves.template operator()<2>();
    if (r < y.rows()) part.template operator()<group, 1>(i, r);
  }
}

/// Rows of a weight stored as floating point numbers: products in float.
template <class Stored>
void float_rows(const RowForms& x, const RowTerm& term, bool accumulate, Index begin, Index end) {
  using Block = FloatBlock<Stored>;
  constexpr Index bytes = 32 * static_cast<Index>(sizeof(Stored));
  const Index cols = term.w.cols(), blocks = cols / 32, rest = cols % 32;
  const View<Device, float>& wide = x.floats<Stored>();
  for_row_tiles<8>(term, accumulate, begin, end,
                   [&]<int together, int rows>(Index first, Index r, float(*sums)[std::size_t{rows}]) {
                     Floats16 totals[std::size_t{together}][std::size_t{rows}] = {};
                     WeightRows<together, bytes> weights(term.w, first);
                     const auto add = [&](Index j) __attribute__((always_inline, flatten)) {
                       Floats16 left[std::size_t{rows}], right[std::size_t{rows}];
                       unrolled<rows>([&](auto s) {
                         load_floats(wide.row(r + s) + j, left[s]);
                         load_floats(wide.row(r + s) + j + 16, right[s]);
                       });
                       unrolled<together>([&](auto k) {
                         Floats16 low, high;
                         Block::load(weights.at(k), low, high);
                         unrolled<rows>([&](auto s) { add_product(low, left[s], totals[k][s]); });
                         unrolled<rows>([&](auto s) { add_product(high, right[s], totals[k][s]); });
                       });
                     };
                     for (Index b = 0; b < blocks; ++b) {
                       weights.ask();
                       add(b * 32);
                       weights.place += bytes;
                     }
                     if (rest > 0) {
                       std::byte last[std::size_t{together}][std::size_t{bytes}] = {};
                       for (int k = 0; k < together; ++k)
                         weights.from[k] = static_cast<const std::byte*>(
                             std::memcpy(last[k], weights.at(k), static_cast<std::size_t>(rest) * sizeof(Stored)));
                       weights.place = 0;
                       add(blocks * 32);
                     }
                     for (int k = 0; k < together; ++k)
                       for (int s = 0; s < rows; ++s) sums[k][s] = total(totals[k][s]);
                   });
}

/// Rows of a weight in blocks of 256 integers: products of integers, of x rounded to 8 bits.
template <class Format>
void large_block_rows(const RowForms& x, const RowTerm& term, bool accumulate, Index begin, Index end) {
  const Index blocks = term.w.cols() / Format::columns;
  // Flattened, since at a call what is added up would leave the registers.
  const auto tile = [&]<int together, int rows>(Index first, Index r, float(*sums)[std::size_t{rows}])
      __attribute__((flatten)) {
    typename Format::Sums totals[std::size_t{together}][std::size_t{rows}] = {};
    RoundedRow read[std::size_t{rows}];
    for (int s = 0; s < rows; ++s) read[s] = x.rounded(r + s);
    WeightRows<together, Format::bytes> weights(term.w, first);
    for (Index b = 0; b < blocks; ++b) {
      weights.ask();
      unrolled<together>([&](auto k) {
        const Format block(weights.at(k));
        unrolled<rows>([&](auto s) { block.add(read[s], b, totals[k][s]); });
      });
      weights.place += Format::bytes;
    }
    unrolled<together, rows>([&](auto k, auto s) { sums[k][s] = total(totals[k][s]); });
  };
  for_row_tiles<wide_sums>(term, accumulate, begin, end, tile);
}

#if defined(__AVX512BW__)
/// Rows of a weight in blocks of 32 integers, in lanes: the same sums as small_block_rows.
template <class Format>
void rows_in_lanes(const View<Device, LaneOperand>& x, const RowTerm& term, bool accumulate, Index begin, Index end) {
  // Blocks stay in the first cache until all rows of x are multiplied with them; what comes next is asked for
  // meanwhile.
  constexpr Index most_blocks = 16, most_rows = 32;
  const Index blocks = x.rows(), parts = (blocks + most_blocks - 1) / most_blocks;
  LaneBlock laid[std::size_t{most_blocks}];
  for (Index i = begin; i < end; i += lane_rows) {
    const auto stored = static_cast<__mmask16>((1u << std::min<Index>(lane_rows, end - i)) - 1);
    for (Index first = 0; first < x.cols(); first += most_rows) {
      const Index rows = std::min(most_rows, x.cols() - first);
      LaneSums sums[std::size_t{most_rows}];
      std::fill_n(sums, rows, LaneSums{});
      WeightRows<lane_rows, Format::bytes> weights(term.w, i);
      for (Index part = 0; part < parts; ++part) {
        const Index from = part * blocks / parts, count = (part + 1) * blocks / parts - from;
        for (Index b = 0; b < count; ++b) {
          weights.ask();
          Format::load_lanes(weights, laid[b]);
          weights.place += Format::bytes;
        }
        const auto add = [&]<int together>(Index r) {
          add_lanes<Format, together>(laid, x.row(from) + first + r, x.cols(), count, sums + r);
        };
        Index r = 0;
        for (; r + 8 <= rows; r += 8) add.template operator()<8>(r);
        if (r + 4 <= rows) add.template operator()<4>(std::exchange(r, r + 4));
        if (r + 2 <= rows) add.template operator()<2>(std::exchange(r, r + 2));
        if (r < rows) add.template operator()<1>(r);
      }
      for (Index r = 0; r < rows; ++r) {
        float* const to = term.y.row(first + r) + i;
        const auto& [totals, minima] = sums[r];
        const Floats16 before = _mm512_maskz_loadu_ps(accumulate ? stored : __mmask16{0}, to);
        _mm512_mask_storeu_ps(to, stored, before + ((totals[0] + totals[1]) + minima));
      }
    }
  }
}
#endif

/// Rows of a weight in blocks of 32 integers.
template <class Format>
void small_block_rows(const RowForms& x, const RowTerm& term, bool accumulate, Index begin, Index end) {
#if defined(__AVX512BW__)
  if constexpr (Format::has_lanes)
    if (in_lanes(term.w.dtype(), term.y.rows()))
      return rows_in_lanes<Format>(x.operands(), term, accumulate, begin, end);
#endif
  const Index blocks = term.w.cols() / Format::columns;
  const auto tile = [&]<int together, int rows>(Index first, Index r, float(*sums)[std::size_t{rows}])
      __attribute__((flatten)) {
    BlockSums<Format, together, rows> totals;
    RoundedRow read[std::size_t{rows}];
    for (int s = 0; s < rows; ++s) read[s] = x.rounded(r + s);
    WeightRows<together, Format::bytes> weights(term.w, first);
    for (Index b = 0; b < blocks; ++b) {
      weights.ask();
      totals.add(weights, read, b);
      weights.place += Format::bytes;
    }
    unrolled<together, rows>([&](auto k, auto s) { sums[k][s] = totals.of(k, s); });
  };
  for_row_tiles<wide_sums>(term, accumulate, begin, end, tile);
}

inline void rows_of_term(const RowForms& x, const RowTerm& term, bool accumulate, Index begin, Index end) {
  switch (term.w.dtype()) {
    case DType::q8_0:
      return small_block_rows<Eights>(x, term, accumulate, begin, end);
    case DType::q4_0:
      return small_block_rows<Nibbles<false, false>>(x, term, accumulate, begin, end);
    case DType::q4_1:
      return small_block_rows<Nibbles<false, true>>(x, term, accumulate, begin, end);
    case DType::q5_0:
      return small_block_rows<Nibbles<true, false>>(x, term, accumulate, begin, end);
    case DType::q5_1:
      return small_block_rows<Nibbles<true, true>>(x, term, accumulate, begin, end);
    case DType::q4_k:
      return large_block_rows<Eighths<false>>(x, term, accumulate, begin, end);
    case DType::q5_k:
      return large_block_rows<Eighths<true>>(x, term, accumulate, begin, end);
    case DType::q6_k:
      return large_block_rows<Sixes>(x, term, accumulate, begin, end);
    case DType::f32:
      return float_rows<float>(x, term, accumulate, begin, end);
    case DType::bf16:
      return float_rows<bf16>(x, term, accumulate, begin, end);
    case DType::f16:
      return float_rows<f16>(x, term, accumulate, begin, end);
    case DType::f64:
      return float_rows<double>(x, term, accumulate, begin, end);
    default:;  // refused by RowForms
  }
}

/// Calls part(term, begin, end) for parts of all terms, where of each there are count_of(term), on all threads.
template <class Terms, class Count, class Part>
void for_parts(Device& dev, Terms terms, Index grain, const Count& count_of, const Part& part) {
  Index all = 0;
  for (const auto& term : terms) all += count_of(term);
  dev.parallel_for(all, grain, [&](Index begin, Index end) {
    for (const auto& term : terms) {
      const Index own = count_of(term);
      if (begin < own && end > 0) part(term, std::max<Index>(begin, 0), std::min(end, own));
      begin -= own;
      end -= own;
    }
  });
}

LORA_INLINE void row_products(Device& dev, View<Device, const float> x, RowTerms terms, bool accumulate) {
  const Arena::Scope scope(dev.arena());
  const RowForms forms(dev, x, terms);
  const Index part = forms.operands().empty() ? group : lane_rows;
  const auto parts_of = [=](const RowTerm& term) { return (term.w.rows() + part - 1) / part; };
  for_parts(dev, terms, 16384 / (x.size() * part + 1) + 1, parts_of, [&](const RowTerm& term, Index begin, Index end) {
    rows_of_term(forms, term, accumulate, begin * part, std::min(end * part, term.w.rows()));
  });
}

/// Columns that an update adds to while its sums stay in registers.
inline constexpr Index update_columns = 16 * wide_sums;

/// Adds to blocks of columns of y. Each sum is in the order of the factor's rows.
template <class Stored>
void add_update(const RowUpdate& term, Index begin, Index end) {
  const std::size_t row_bytes = term.b.row_bytes();
  for (Index c = begin * update_columns; c < std::min(end * update_columns, term.b.cols()); c += update_columns) {
    const Index count = std::min(update_columns, term.b.cols() - c);
    const bool whole = count == update_columns;
    for (Index n = 0; n < term.h.rows(); ++n) {
      float values[update_columns] = {}, rest[update_columns] = {};
      float* to = term.y.row(n) + c;
      if (!whole) {
        std::copy_n(to, count, rest);
        to = rest;
      }
      Floats16 sums[std::size_t{wide_sums}];
      unrolled<wide_sums>([&](auto i) { load_floats(to + 16 * i, sums[i]); });
      const std::byte* from = term.b.data() + c * static_cast<Index>(sizeof(Stored));
      for (Index r = 0; r < term.h.cols(); ++r, from += row_bytes) {
        const float* b = values;
        if (std::same_as<Stored, float> && whole) {
          b = static_cast<const float*>(static_cast<const void*>(from));
        } else {
          decode_values<Stored>(from, count, values);
        }
        Floats16 h;
        fill_lanes(term.scale * term.h.row(n)[r], h);
        unrolled<wide_sums>([&](auto i) {
          Floats16 x;
          load_floats(b + 16 * i, x);
          add_product(h, x, sums[i]);
        });
      }
      unrolled<wide_sums>([&](auto i) { store_floats(sums[i], to + 16 * i); });
      if (!whole) std::copy_n(rest, count, term.y.row(n) + c);
    }
  }
}

LORA_INLINE void row_updates(Device& dev, RowUpdates terms) {
  Index most = 1;
  for (const RowUpdate& term : terms) {
    most = std::max(most, term.h.size() * update_columns);
    if (const DType stored = term.b.dtype(); stored != DType::f32 && stored != DType::bf16 && stored != DType::f16)
      fail<FormatError>("[cpu] a factor stored as ", name_of(stored), " is not one that rows are updated by");
  }
  const auto blocks_of = [](const RowUpdate& term) { return (term.b.cols() + update_columns - 1) / update_columns; };
  // Waking a thread takes as long as some hundred thousand of these products.
  for_parts(dev, terms, 131072 / most + 1, blocks_of, [](const RowUpdate& term, Index begin, Index end) {
    switch (term.b.dtype()) {
      case DType::bf16:
        return add_update<bf16>(term, begin, end);
      case DType::f16:
        return add_update<f16>(term, begin, end);
      default:
        return add_update<float>(term, begin, end);
    }
  });
}

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
