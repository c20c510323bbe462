#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/shape.hpp"

namespace lora::comm {

/// Some neighbouring units of a step.
struct Units {
  Index begin = 0, end = 0;

  Index count() const { return end - begin; }
  friend bool operator==(const Units&, const Units&) = default;
};

/// The units of `rank`.
inline Units units_of(Index units, int rank, int ranks) { return {units * rank / ranks, units * (rank + 1) / ranks}; }

/// Where the units of each rank begin, and where the last ends.
inline std::vector<Index> unit_begins(Index units, int ranks) {
  std::vector<Index> begins{0};
  for (int rank = 0; rank < ranks; ++rank) begins.push_back(units_of(units, rank, ranks).end);
  return begins;
}

/// The two halves of a node with several units, of which the first is a power of two: what a step sums up, it sums up
/// in this tree, so that its bits are the same on any number of ranks.
inline std::pair<Units, Units> halves(const Units& node) {
  const auto first = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(node.count() - 1)));
  return {{node.begin, node.begin + first}, {node.begin + first, node.end}};
}

/// The largest nodes below `node` of which a rank has all units, in order: what it can sum up alone.
void add_nodes(const Units& node, const Units& own, std::vector<Units>& nodes);

/// The nodes of a step's tree that ranks form alone, in order, and the rank of each.
struct RankNodes {
  std::vector<Units> nodes{};
  std::vector<int> owners{};

  RankNodes(Index units, int ranks);
};

/// How many sums wait at most while `units` units are summed up one after the other, beside the whole's.
Index waiting_sums(Index units);

/// Sums of whole gradients that a rank holds while a step of several units is added up: its nodes and what waits beside
/// them, and of several ranks its part of all nodes. That of the rank which holds most.
double held_sums(Index units, int ranks);

/// Σ values in the order of the tree. Shapes   values (units), one at least
double tree_sum(std::span<const double> values, const Units& node);

}  // namespace lora::comm

#ifndef LORA_COMPILED
#  include "lora/comm/sum_tree.ipp"
#endif
