#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
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

/// Rows of a batch that has each of these once.
Index rows_of(std::span<const Part> parts);

/// What a sequence can have in common with others.
struct Beginning {
  std::span<const std::int32_t> tokens{};  ///< those that may be shared, from its first on
  Index length = 0;                        ///< of the whole sequence
};

/// Cuts sequences into the parts that are the same from their first token on, each once, and the rest of each. A common
/// part has at least `least` tokens. Trees in preorder; trees, and what goes on from a part, are in the order of their
/// first sequences, so that sequences with nothing in common keep theirs. A sequence that consists of common parts has
/// none of its own. What more sequences have in common is cut off first, though a longer beginning of fewer might save
/// more where the rest of it is too short.
std::vector<Part> shared_parts(std::span<const Beginning> sequences, Index least);

/// Of each sequence the tokens that it has in common with the one with which it has most; 0 where these are fewer than
/// `least`.
std::vector<Index> common_beginnings(std::span<const Beginning> sequences, Index least);

/// Sequences in the order of their tokens, where those that begin alike lie side by side, and the parts of neighbors.
/// What it is made of outlives it.
class SortedSequences {
 public:
  explicit SortedSequences(std::span<const Beginning> sequences);

  Index size() const { return std::ssize(order_); }
  /// The number of the sequence that is at `place`.
  Index operator[](Index place) const { return order_[static_cast<std::size_t>(place)]; }
  const Beginning& at(Index place) const { return sequences_[static_cast<std::size_t>((*this)[place])]; }
  /// Tokens that the sequence at `place` and the next one have in common.
  Index common(Index place) const { return common_[static_cast<std::size_t>(place)]; }

  /// The parts of the sequences at [begin, end).
  std::vector<Part> parts(Index begin, Index end, Index least) const;

 private:
  std::span<const Beginning> sequences_;
  std::vector<Index> order_;
  std::vector<Index> common_;
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/batches/shared_parts.ipp"
#endif
