#pragma once

#include <algorithm>

#include "lora/comm/sum_tree.hpp"
#include "lora/core/config.hpp"

namespace lora::comm {

LORA_INLINE void add_nodes(const Units& node, const Units& own, std::vector<Units>& nodes) {
  if (node.end <= own.begin || own.end <= node.begin) return;
  if (own.begin <= node.begin && node.end <= own.end) {
    nodes.push_back(node);
    return;
  }
  const auto [first, second] = halves(node);
  add_nodes(first, own, nodes);
  add_nodes(second, own, nodes);
}

LORA_INLINE Index waiting_sums(Index units) {
  Index depth = 0;
  for (; units > 1; units = (units + 1) / 2) ++depth;
  return depth;
}

LORA_INLINE RankNodes::RankNodes(Index units, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    add_nodes({0, units}, units_of(units, rank, ranks), nodes);
    owners.resize(nodes.size(), rank);
  }
}

LORA_INLINE double held_sums(Index units, int ranks) {
  if (units == 1) return 0;
  const RankNodes all(units, ranks);
  Index most = 0;
  for (int rank = 0; rank < ranks; ++rank)
    if (const Index own = units_of(units, rank, ranks).count(); own > 1)  // a single one lies where it is formed
      most = std::max(most, std::count(all.owners.begin(), all.owners.end(), rank) + waiting_sums(own));
  return static_cast<double>(most) + (ranks > 1 ? static_cast<double>(all.nodes.size()) / ranks : 0);
}

LORA_INLINE Index held_in_turn(Index units) {
  Index most = 0;
  for (Index done = 1; done <= units; done = 2 * done + 1) ++most;  // 1, 3, 7, …: a sum for each bit
  return most;
}

LORA_INLINE double tree_sum(std::span<const double> values, const Units& node) {
  if (node.count() == 1) return values[static_cast<std::size_t>(node.begin)];
  const auto [first, second] = halves(node);
  return tree_sum(values, first) + tree_sum(values, second);
}

}  // namespace lora::comm
