#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/random.hpp"
#include "lora/core/scalar.hpp"

namespace lora::data {

/// Deals `total` out in these shares, each rounded down and the rest to the largest remainders, the first of equal ones
/// first. Shares need not add up to 1; one at least is above 0.
/// Source   Hamilton's method (largest remainder)
std::vector<Index> apportion(Index total, std::span<const double> shares);

/// Sequences of a class, which come in an order drawn by the seed, each once before any comes again in another.
struct SequenceClass {
  std::string label;
  std::vector<std::uint32_t> sequences;  ///< one at least
};

/// Draws of so many of each class, mixed by `key`. `before`: how many of each were drawn earlier, from where its order
/// goes on.
std::vector<std::uint32_t> draw_classes(std::span<const SequenceClass> classes, std::span<const Index> counts,
                                        std::span<const Index> before, std::uint64_t seed, std::uint64_t key);

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/sampling/class_draws.ipp"
#endif
