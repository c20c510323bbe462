#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/batches/shared_parts.hpp"

namespace lora::data {

/// Indices of the sequences of each micro-batch, ascending; the groups are sorted by their first index.
using Groups = std::vector<std::vector<Index>>;

namespace detail {

/// Groups under construction, with their tokens.
struct Filling {
  Groups groups{};
  std::vector<Index> tokens{};

  void open();
  void put(std::size_t group, Index sequence, Index length);
  /// Whether the sequence fits. One longer than the limit gets a group of its own.
  bool within(Index limit) const;
};

/// Fills one group after the other, in the order given.
Filling fill_in_order(std::span<const Index> lengths, Index limit);

}  // namespace detail

/// Splits sequences into few groups of at most `limit` tokens (a longer sequence gets its own group) and of similar
/// size if possible. A pure function of lengths and limit. Never   more groups than filling in the order given makes
/// Source  Johnson 1973 (first fit decreasing); Graham 1969 (longest first, into the emptiest)
Groups group_by_tokens(std::span<const Index> lengths, Index limit);

/// Groups of at most `limit` rows, where a group has each of the shared_parts of its sequences once (a longer sequence
/// gets its own group). Neighbors in the order of their tokens, in groups as few and as even as those allow, where that
/// takes fewer rows, or micro-batches, than group_by_tokens.
Groups group_by_rows(std::span<const Beginning> sequences, Index limit, Index least);

/// Rows of a group that has each of the shared_parts of its sequences once.
Index shared_rows(std::span<const Beginning> sequences, std::span<const Index> group, Index least);

/// Groups of sequences whose places, ascending, lie in the same span of `count`.
Groups group_by_places(std::span<const Index> places, Index count);

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/batches/grouping.ipp"
#endif
