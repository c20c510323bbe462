/// Random numbers. The documents do not say which, so that these are a function of seed and number alone.
#pragma once

#include <cstdint>

namespace stand_in {

/// In (0, 1): a hash of both (the finalizer of splitmix64, twice).
inline double uniform(std::uint64_t seed, std::uint64_t number) {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  };
  const std::uint64_t bits = mix(mix(seed + 0x9E3779B97F4A7C15u) ^ (number * 0xD1B54A32D192ED03u));
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

}  // namespace stand_in
