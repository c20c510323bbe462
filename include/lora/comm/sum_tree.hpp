#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/shape.hpp"

namespace lora::comm {

/// Some neighboring units of a step.
struct Units {
  Index begin = 0, end = 0;

  Index count() const { return end - begin; }
  friend bool operator==(const Units&, const Units&) = default;
};

/// The units of `rank`.
inline Units units_of(Index units, int rank, int ranks) { return {units * rank / ranks, units * (rank + 1) / ranks}; }

/// Units that a rank forms one after the other: begin, begin + stride, … below end.
struct OwnUnits {
  Index begin = 0, end = 0;
  Index stride = 1;

  OwnUnits(Units units) : begin(units.begin), end(units.end) {}
  OwnUnits(Index begin_, Index end_, Index stride_) : begin(begin_), end(end_), stride(stride_) {}

  Index count() const { return begin < end ? (end - begin + stride - 1) / stride : 0; }
  Index operator[](Index i) const { return begin + i * stride; }
  bool has(Index unit) const { return begin <= unit && unit < end && (unit - begin) % stride == 0; }
};

/// Those of `rank` where ranks take turns, so that the first units of all come first.
inline OwnUnits units_in_turn(Index units, int rank, int ranks) { return {rank, units, ranks}; }
/// Those of `rank`: neighbors, or in turn where gradients leave with each unit (zero_stage 2 and 3).
inline OwnUnits units_of_rank(Index units, Index zero_stage, int rank, int ranks) {
  return zero_stage > 1 && ranks > 1 ? units_in_turn(units, rank, ranks) : OwnUnits(units_of(units, rank, ranks));
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

/// Sums of whole gradients that a rank holds while a step of several units is added up, beside the gradient itself: its
/// nodes and what waits beside them, and of several ranks its part of all nodes. That of the rank which holds most.
double held_sums(Index units, int ranks);

/// The same where sums leave a unit as soon as it is formed, and the owner of a part adds up what units bring in their
/// order: how many sums of its part it holds.
Index held_in_turn(Index units);

/// Σ values in the order of the tree. Shapes   values (units), one at least
double tree_sum(std::span<const double> values, const Units& node);

}  // namespace lora::comm

#ifndef LORA_COMPILED
#  include "lora/comm/sum_tree.ipp"
#endif
