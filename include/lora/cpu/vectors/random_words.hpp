#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lora/core/random.hpp"
#include "lora/core/scalar.hpp"
#include "lora/cpu/runtime/device.hpp"

namespace lora::cpu::detail {

/// The random words of the columns [4 · block, 4 · (block + count)) of the row at (place, position), in their order.
inline void random_words(std::uint32_t place, std::uint32_t position, std::uint64_t key, Index block, Index count,
                         std::uint32_t* words) {
  LORA_SIMD
  for (Index i = 0; i < count; ++i) {
    auto c0 = static_cast<std::uint32_t>(block + i);
    std::uint32_t c1 = position, c2 = place, c3 = 0;
    philox(c0, c1, c2, c3, key);
    words[4 * i] = c0;
    words[4 * i + 1] = c1;
    words[4 * i + 2] = c2;
    words[4 * i + 3] = c3;
  }
}

/// Calls body(at, count, words) for pieces [at, at + count) of the columns [begin, end), begin a multiple of 4, of the
/// row at (place, position).
template <class Body>
void with_random_words(std::int32_t place, std::int32_t position, std::uint64_t key, Index begin, Index end,
                       const Body& body) {
  constexpr Index blocks = 64;
  std::array<std::uint32_t, static_cast<std::size_t>(4 * blocks)> words;
  for (Index at = begin; at < end; at += 4 * blocks) {
    const Index count = std::min(4 * blocks, end - at);
    random_words(static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(position), key, at / 4, (count + 3) / 4,
                 words.data());
    body(at, count, static_cast<const std::uint32_t*>(words.data()));
  }
}

}  // namespace lora::cpu::detail
