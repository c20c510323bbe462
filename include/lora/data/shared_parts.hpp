#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "lora/core/scalar.hpp"

namespace lora::data {

/// Tokens [begin, end) of a sequence: those that it has in common with others, or those that are its alone.
struct Part {
  Index sequence = 0;  ///< of several the first
  Index begin = 0, end = 0;
  Index parent = -1;  ///< the part before it; -1: none
  Index size() const { return end - begin; }
};

/// What a sequence can have in common with others.
struct Beginning {
  std::span<const std::int32_t> tokens{};  ///< those that may be shared, from its first on
  Index length = 0;                        ///< of the whole sequence
};

/// Cuts sequences into the parts that are the same from their first token on, each once, and the rest of each. A common
/// part has at least `least` tokens. Trees in preorder; trees, and what goes on from a part, are in the order of their
/// first sequences, so that sequences with nothing in common keep theirs. A sequence that is whole in common parts has
/// no part of its own.
std::vector<Part> shared_parts(std::span<const Beginning> sequences, Index least);

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/shared_parts.ipp"
#endif
