#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/core/scalar.hpp"

namespace lora::test {

/// All types that weights may be stored as.
inline constexpr DType weight_types[] = {DType::f32,  DType::bf16, DType::f16,  DType::f64,  DType::q8_0, DType::q4_0,
                                         DType::q4_1, DType::q5_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};

/// What a block of a type can say.
struct BlockRange {
  struct Whole {
    int least, top;
  };
  Index part;     ///< values that share a scale and a minimum
  Whole scale;    ///< of a part, in units of the block's
  Whole minimum;  ///< of a part, in units of the block's
  Whole quantum;  ///< of a value
};

inline BlockRange block_range(DType dtype) {
  switch (dtype) {
    case DType::q8_0:
      return {32, {1, 1}, {0, 0}, {-128, 127}};
    case DType::q4_0:
      return {32, {1, 1}, {0, 0}, {-8, 7}};
    case DType::q4_1:
      return {32, {1, 1}, {1, 1}, {0, 15}};
    case DType::q5_0:
      return {32, {1, 1}, {0, 0}, {-16, 15}};
    case DType::q5_1:
      return {32, {1, 1}, {1, 1}, {0, 31}};
    case DType::q4_k:
      return {32, {0, 63}, {0, 63}, {0, 15}};
    case DType::q5_k:
      return {32, {0, 63}, {0, 63}, {0, 31}};
    case DType::q6_k:
      return {16, {-128, 127}, {0, 0}, {-32, 31}};
    default:
      fail<Error>(name_of(dtype), " has no blocks");
  }
}

/// A block in first principles' terms: value i, of part p, is scale · scales[p] · quanta[i] − minimum · minima[p].
struct Block {
  DType dtype;
  BlockRange range;
  f16 scale{}, minimum{};
  std::vector<int> scales, minima, quanta;

  explicit Block(DType type)
      : dtype(type),
        range(block_range(type)),
        scales(static_cast<std::size_t>(block_elements(type) / range.part)),
        minima(scales.size()),
        quanta(static_cast<std::size_t>(block_elements(type))) {}

  std::size_t part_of(std::size_t i) const { return i / static_cast<std::size_t>(range.part); }
  double part_scale(std::size_t p) const { return static_cast<double>(static_cast<float>(scale)) * scales[p]; }
  double part_minimum(std::size_t p) const { return static_cast<double>(static_cast<float>(minimum)) * minima[p]; }
  double value(std::size_t i) const { return part_scale(part_of(i)) * quanta[i] - part_minimum(part_of(i)); }

  /// As GGUF lays it out.
  void append_to(std::vector<std::byte>& bytes) const {
    const auto put = [&](const auto& stored) {
      const auto raw = std::as_bytes(std::span(&stored, 1));
      bytes.insert(bytes.end(), raw.begin(), raw.end());
    };
    const auto put_signed = [&](const std::vector<int>& numbers) {
      for (const int number : numbers) put(static_cast<std::int8_t>(number));
    };
    const auto put_bytes = [&](const std::vector<unsigned>& numbers) {
      for (const unsigned number : numbers) put(static_cast<std::uint8_t>(number));
    };
    if (dtype != DType::q6_k) put(scale);
    switch (dtype) {
      case DType::q8_0:
        return put_signed(quanta);
      case DType::q4_0:
        return put_bytes(nibbles(16));
      case DType::q4_1:
        put(f16(-static_cast<float>(minimum)));  // which is added
        return put_bytes(nibbles(16));
      case DType::q5_0:
        put_bytes(upper_bits(1, [](std::size_t i) { return i; }));
        return put_bytes(nibbles(16));
      case DType::q5_1:
        put(f16(-static_cast<float>(minimum)));
        put_bytes(upper_bits(1, [](std::size_t i) { return i; }));
        return put_bytes(nibbles(16));
      case DType::q4_k:
        put(minimum);
        put_bytes(packed_parts());
        return put_bytes(nibbles(32));
      case DType::q5_k:
        put(minimum);
        put_bytes(packed_parts());
        put_bytes(upper_bits(1, [](std::size_t i) { return 8 * (i % 32) + i / 32; }));
        return put_bytes(nibbles(32));
      default:
        put_bytes(nibbles(64));
        put_bytes(upper_bits(2, [](std::size_t i) { return 8 * (i / 128 * 32 + i % 32) + 2 * (i / 32 % 4); }));
        put_signed(scales);
        put(scale);
    }
  }

 private:
  unsigned code(std::size_t i) const { return static_cast<unsigned>(quanta[i] - range.quantum.least); }

  /// The lowest four bits: `width` values in the low halves of as many bytes, the next `width` in the high halves.
  std::vector<unsigned> nibbles(std::size_t width) const {
    std::vector<unsigned> bytes(quanta.size() / 2);
    for (std::size_t i = 0; i < quanta.size(); ++i)
      bytes[i / (2 * width) * width + i % width] |= (code(i) & 15) << i / width % 2 * 4;
    return bytes;
  }

  /// What is above, `count` bits a value, from bit place(i) on.
  template <class Place>
  std::vector<unsigned> upper_bits(std::size_t count, const Place& place) const {
    std::vector<unsigned> bytes(quanta.size() * count / 8);
    for (std::size_t i = 0; i < quanta.size(); ++i) bytes[place(i) / 8] |= code(i) >> 4 << place(i) % 8;
    return bytes;
  }

  /// Eight scales and minima of 6 bits: the first four of each whole, of the others the upper two bits above those.
  std::vector<unsigned> packed_parts() const {
    std::vector<unsigned> bytes(12);
    for (std::size_t p = 0; p < 8; ++p) {
      const auto s = static_cast<unsigned>(scales[p]), m = static_cast<unsigned>(minima[p]);
      if (p < 4) {
        bytes[p] |= s;
        bytes[p + 4] |= m;
      } else {
        bytes[p + 4] |= s % 16 + 16 * (m % 16);
        bytes[p - 4] |= s / 16 * 64;
        bytes[p] |= m / 16 * 64;
      }
    }
    return bytes;
  }
};

/// Anything that the type can say, the block's scale and minimum within ±0.5.
inline Block random_block(DType dtype, Random& random) {
  Block block(dtype);
  const auto draw = [&](std::vector<int>& numbers, const BlockRange::Whole& range) {
    for (int& number : numbers)
      number = range.least + static_cast<int>(random.below(static_cast<std::uint32_t>(range.top - range.least + 1)));
  };
  block.scale = f16(random.uniform() - 0.5f);
  block.minimum = f16(random.uniform() - 0.5f);
  draw(block.scales, block.range.scale);
  draw(block.minima, block.range.minimum);
  draw(block.quanta, block.range.quantum);
  return block;
}

/// Close to `values`.
inline Block nearest_block(DType dtype, std::span<const double> values) {
  Block block(dtype);
  const auto& [part, scale, minimum, quantum] = block.range;
  const auto nearest = [](double value, double unit, const BlockRange::Whole& range) {
    return unit == 0 ? range.least : std::clamp(static_cast<int>(std::lround(value / unit)), range.least, range.top);
  };
  std::vector<double> steps, depths;
  for (std::size_t p = 0; p < block.scales.size(); ++p) {
    const auto own = values.subspan(p * static_cast<std::size_t>(part), static_cast<std::size_t>(part));
    const auto [low, high] = std::minmax_element(own.begin(), own.end());
    const double lowest = minimum.least == 0 ? std::min(*low, 0.0) : *low;
    const double reach = quantum.least < 0 ? std::max(std::fabs(*low), std::fabs(*high)) : *high - lowest;
    steps.push_back(reach / quantum.top);
    depths.push_back(-lowest);
  }
  block.scale = f16(static_cast<float>(*std::max_element(steps.begin(), steps.end()) / scale.top));
  if (minimum.top > 0)
    block.minimum = f16(static_cast<float>(*std::max_element(depths.begin(), depths.end()) / minimum.top));
  for (std::size_t p = 0; p < steps.size(); ++p) {
    block.scales[p] = nearest(steps[p], static_cast<double>(static_cast<float>(block.scale)), scale);
    block.minima[p] = nearest(depths[p], static_cast<double>(static_cast<float>(block.minimum)), minimum);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t p = block.part_of(i);
    block.quanta[i] = nearest(values[i] + block.part_minimum(p), block.part_scale(p), quantum);
  }
  return block;
}

}  // namespace lora::test
