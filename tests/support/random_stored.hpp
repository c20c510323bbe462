#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lora/core/random.hpp"
#include "support/blocks.hpp"
#include "support/matrix.hpp"

namespace lora::test {

inline void put(std::vector<std::byte>& bytes, const auto& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

/// Stored bytes and the exact numbers that they stand for.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<double> values;
};

inline Stored random_blocks(DType dtype, Index count, std::uint64_t key) {
  Stored stored;
  Random random(key);
  for (Index i = 0; i < count; i += block_elements(dtype)) {
    const Block block = random_block(dtype, random);
    block.append_to(stored.bytes);
    for (std::size_t j = 0; j < block.quanta.size(); ++j) stored.values.push_back(block.value(j));
  }
  return stored;
}

template <class S>
Stored random_stored(Index count, std::uint64_t key) {
  Stored stored;
  for (const S& value : random_values<S>(count, key, -3, 3)) {
    put(stored.bytes, value);
    stored.values.push_back(real(value));
  }
  return stored;
}

template <>
inline Stored random_stored<f16>(Index count, std::uint64_t key) {
  Stored stored;
  for (const float value : random_values<float>(count, key, -3, 3)) {
    put(stored.bytes, f16(value));
    stored.values.push_back(static_cast<double>(static_cast<float>(f16(value))));
  }
  return stored;
}

/// `count` random numbers as a weight may be stored.
inline Stored random_matrix(DType dtype, Index count) {
  switch (dtype) {
    case DType::f32:
      return random_stored<float>(count, 1);
    case DType::bf16:
      return random_stored<bf16>(count, 2);
    case DType::f16:
      return random_stored<f16>(count, 3);
    case DType::f64:
      return random_stored<double>(count, 4);
    default:
      return random_blocks(dtype, count, 5);
  }
}

}  // namespace lora::test
