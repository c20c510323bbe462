#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"

namespace lora {

/// Turns a 128-bit counter (four words) into four random words, as a pure function of the counter and a 64-bit key.
/// Takes scalars, so that a loop over counters vectorizes.
/// Source   Salmon et al. 2011, Philox4x32-10
inline constexpr void philox(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2, std::uint32_t& c3,
                             std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/// The same, with the counter in an array.
inline constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto& [c0, c1, c2, c3] = counter;
  philox(c0, c1, c2, c3, key);
  return counter;
}

/// Derives a key from (seed, purpose, …); keys of similar inputs are unrelated.
/// Source   Steele et al. 2014, SplitMix64's finalizer
template <class... Words>
constexpr std::uint64_t mix_key(std::uint64_t seed, Words... words) {
  const auto finalize = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  };
  std::uint64_t state = finalize(seed + 0x9E3779B97F4A7C15u);
  ((state = finalize(state * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(words) + 0x632BE59BD9B4E019u)), ...);
  return state;
}

/// A random number generator whose only state is its key and the count of numbers drawn.
class Random {
 public:
  explicit constexpr Random(std::uint64_t key) : key_(key) {}

  constexpr std::uint32_t next() {
    const std::uint64_t block = drawn_ / 4;
    const std::size_t lane = drawn_ % 4;
    if (lane == 0)
      words_ = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key_);
    ++drawn_;
    return words_[lane];
  }

  /// Uniform in [0, 1), 24 bits: every value is exact in float32.
  constexpr float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }

  /// Uniform in [0, bound), bound > 0, without bias (Lemire 2019).
  constexpr std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{next()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = (0u - bound) % bound;
      while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{next()} * bound;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
  std::array<std::uint32_t, 4> words_{};
};

/// A permutation of the numbers below `count`, at most 2³², determined by the key.
/// Source   Fisher and Yates 1938, Durstenfeld 1964
inline std::vector<std::uint32_t> permutation(Index count, std::uint64_t key) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  Random random(key);
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[random.below(static_cast<std::uint32_t>(left))]);
  return order;
}

}  // namespace lora
