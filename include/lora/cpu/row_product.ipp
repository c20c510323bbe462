#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/scalar.hpp"
#include "lora/cpu/lanes.hpp"
#include "lora/cpu/quanta.hpp"
#include "lora/cpu/row_product.hpp"
#include "lora/cpu/stored_row.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // see lanes.hpp
namespace lora::cpu::detail {

/// 32 stored numbers as two vectors of float. `place(i)`: where value i of the 32 comes to lie.
template <class Stored>
struct FloatBlock {
  static constexpr Index place(Index i) { return i; }
  static void load(const std::byte* from, Floats16& first, Floats16& second) {
    if constexpr (std::same_as<Stored, float>) {
      std::memcpy(&first, from, sizeof first);
      std::memcpy(&second, from + sizeof first, sizeof second);
    } else {
#if defined(__AVX512F__)
      if constexpr (std::same_as<Stored, f16>) {
        first = (Floats16)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        second = (Floats16)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)));
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
  static constexpr Index place(Index i) { return i % 2 * 16 + i / 2; }
  static void load(const std::byte* from, Floats16& first, Floats16& second) {
    using Words16 = std::uint32_t __attribute__((vector_size(64)));
    Words16 pairs;
    std::memcpy(&pairs, from, sizeof pairs);
    first = reinterpret_cast<Floats16>(pairs << 16);
    second = reinterpret_cast<Floats16>(pairs & 0xFFFF0000u);
  }
};

/// How far ahead of its use a weight is asked for, in bytes: rows are short, and processors don't see one coming.
inline constexpr std::ptrdiff_t weight_ahead = 8192;

/// Calls tile(i, count, r, sums) with `rows` as its argument, for `together` rows of w and up to `most` of x at a time,
/// so that what is read serves several sums and no sum waits for the one before it; and stores sums[w][x] in y. Threads
/// have rows of w of their own.
template <int together, int most, class Tile>
void for_row_tiles(Device& dev, View<Device, float> y, Index cols, bool accumulate, const Tile& tile) {
  const Index groups = (y.cols() + together - 1) / together;
  const auto part = [&]<int rows>(Index i, Index r) {
    const int count = static_cast<int>(std::min<Index>(together, y.cols() - i));
    float sums[std::size_t{together}][std::size_t{rows}];
    tile.template operator()<rows>(i, count, r, sums);
    for (int x = 0; x < rows; ++x)
      for (int w = 0; w < count; ++w) y.row(r + x)[i + w] = (accumulate ? y.row(r + x)[i + w] : 0) + sums[w][x];
  };
  dev.parallel_for(groups, 16384 / (cols * y.rows() * together + 1) + 1, [&](Index begin, Index end) {
    for (Index i = begin * together; i < std::min(end * together, y.cols()); i += together) {
      Index r = 0;
      for (; r + most <= y.rows(); r += most) part.template operator()<most>(i, r);
      if constexpr (most > 4)
        if (r + 4 <= y.rows()) part.template operator()<4>(i, std::exchange(r, r + 4));
      if (r + 2 <= y.rows()) part.template operator()<2>(i, std::exchange(r, r + 2));
      if (r < y.rows()) part.template operator()<1>(i, r);
    }
  });
}

/// Weights stored as floating point numbers: products in float.
template <class Stored>
void float_rows(Device& dev, View<Device, const float> x, const StoredView<Device>& w, View<Device, float> y,
                bool accumulate) {
  using Block = FloatBlock<Stored>;
  constexpr int together = 2;
  constexpr Index bytes = 32 * static_cast<Index>(sizeof(Stored));
  const Index cols = w.cols(), blocks = cols / 32, rest = cols % 32;
  const Arena::Scope scope(dev.arena());
  const View<Device, float> wide = scratch<float>(dev, x.rows(), (blocks + 1) * 32);
  for (Index r = 0; r < x.rows(); ++r) {
    std::fill_n(wide.row(r) + blocks * 32, 32, 0.0f);
    for (Index j = 0; j < cols; ++j) wide.row(r)[j / 32 * 32 + Block::place(j % 32)] = x.row(r)[j];
  }
  for_row_tiles<together, 8>(
      dev, y, cols, accumulate, [&]<int rows>(Index i, int count, Index r, float(*sums)[std::size_t{rows}]) {
        Floats16 totals[std::size_t{together}][std::size_t{rows}] = {};
        const auto add = [&](const std::byte* const* from, Index j) __attribute__((flatten)) {
          Floats16 first[std::size_t{rows}], second[std::size_t{rows}];
          unrolled<rows>([&](auto s) {
            load_floats(wide.row(r + s) + j, first[s]);
            load_floats(wide.row(r + s) + j + 16, second[s]);
          });
          unrolled<together>([&](auto k) {
            Floats16 low, high;
            Block::load(from[k], low, high);
            unrolled<rows>([&](auto s) { totals[k][s] += low * first[s]; });
            unrolled<rows>([&](auto s) { totals[k][s] += high * second[s]; });
          });
        };
        const std::byte* from[std::size_t{together}];
        for (int k = 0; k < together; ++k)
          from[k] = w.data() + static_cast<std::size_t>(i + std::min(k, count - 1)) * w.row_bytes();
        for (Index b = 0; b < blocks; ++b) {
          add(from, b * 32);
          for (const std::byte*& place : from) {
            LORA_UNROLL
            for (Index line = 0; line < bytes; line += 64) __builtin_prefetch(place + weight_ahead + line);
            place += bytes;
          }
        }
        if (rest > 0) {
          std::byte last[std::size_t{together}][std::size_t{bytes}] = {};
          for (int k = 0; k < together; ++k)
            from[k] = static_cast<const std::byte*>(
                std::memcpy(last[k], from[k], static_cast<std::size_t>(rest) * sizeof(Stored)));
          add(from, blocks * 32);
        }
        for (int k = 0; k < together; ++k)
          for (int s = 0; s < rows; ++s) sums[k][s] = total(totals[k][s]);
      });
}

/// Weights in blocks of integers: products of integers, of x rounded to 8 bits.
template <class Format>
void quanta_rows(Device& dev, View<Device, const float> x, const StoredView<Device>& w, View<Device, float> y,
                 bool accumulate) {
  constexpr int together = 2;
  const Index blocks = w.cols() / Format::columns, groups = w.cols() / 32;
  const Arena::Scope scope(dev.arena());
  const auto q = scratch<Bytes32>(dev, x.rows(), groups);
  const auto numbers = scratch<float>(dev, x.rows(), 6 * groups);
  const auto row = [&](Index r) {
    const float* const of = numbers.row(r);
    return RoundedRow{q.row(r), of, of + groups, of + 2 * groups, of + 4 * groups};
  };
  for (Index r = 0; r < x.rows(); ++r) {
    float* const to = numbers.row(r);
    for (Index g = 0; g < groups; ++g)
      round_block(x.row(r) + g * 32, q.row(r)[g], to[g], to[groups + g], to + 2 * groups + 2 * g,
                  to + 4 * groups + 2 * g);
  }
  // Flattened, since at a call what is added up would leave the registers.
  const auto tile = [&]<int rows>(Index i, int count, Index r, float(*sums)[std::size_t{rows}])
      __attribute__((flatten)) {
    Floats8 totals[std::size_t{together}][std::size_t{rows}] = {};
    Minima<Format> minima[std::size_t{together}][std::size_t{rows}] = {};
    RoundedRow read[std::size_t{rows}];
    for (int s = 0; s < rows; ++s) read[s] = row(r + s);
    const std::byte* from[std::size_t{together}];
    for (int k = 0; k < together; ++k)
      from[k] = w.data() + static_cast<std::size_t>(i + std::min(k, count - 1)) * w.row_bytes();
    for (Index b = 0; b < blocks; ++b) {
      unrolled<together>([&](auto k) {
        LORA_UNROLL
        for (Index line = 0; line < Format::bytes; line += 64) __builtin_prefetch(from[k] + weight_ahead + line);
        Quanta<Format::columns, Format::width> block;
        Format::unpack(from[k], block);
        unrolled<rows>([&](auto s) { add_block<Format>(block, read[s], b, totals[k][s], minima[k][s]); });
        from[k] += Format::bytes;
      });
    }
    unrolled<together, rows>([&](auto k, auto s) { sums[k][s] = total(totals[k][s]) - total(minima[k][s]); });
  };
  for_row_tiles<together, 4>(dev, y, w.cols(), accumulate, tile);
}

LORA_INLINE void row_product(Device& dev, View<Device, const float> x, const StoredView<Device>& w,
                             View<Device, float> y, bool accumulate) {
  const auto in_blocks = [&]<class Format>(Format) { quanta_rows<Format>(dev, x, w, y, accumulate); };
  if (with_blocks(w.dtype(), in_blocks)) return;
  switch (w.dtype()) {
    case DType::f32:
      return float_rows<float>(dev, x, w, y, accumulate);
    case DType::bf16:
      return float_rows<bf16>(dev, x, w, y, accumulate);
    case DType::f16:
      return float_rows<f16>(dev, x, w, y, accumulate);
    case DType::f64:
      return float_rows<double>(dev, x, w, y, accumulate);
    default:
      fail<FormatError>("[cpu] a weight stored as ", name_of(w.dtype()), " can't be read as numbers");
  }
}

}  // namespace lora::cpu::detail
#pragma GCC diagnostic pop
