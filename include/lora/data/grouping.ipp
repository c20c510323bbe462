#pragma once

#include "lora/core/config.hpp"
#include "lora/data/grouping.hpp"

namespace lora::data::detail {

LORA_INLINE void Filling::open() {
  groups.emplace_back();
  tokens.push_back(0);
}

LORA_INLINE void Filling::put(std::size_t group, Index sequence, Index length) {
  groups[group].push_back(sequence);
  tokens[group] += length;
}

LORA_INLINE bool Filling::within(Index limit) const {
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (tokens[g] > limit && groups[g].size() > 1) return false;
  return true;
}

LORA_INLINE Filling fill_in_order(std::span<const Index> lengths, Index limit) {
  Filling filling;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (filling.groups.empty() || filling.tokens.back() + lengths[i] > limit) filling.open();
    filling.put(filling.groups.size() - 1, static_cast<Index>(i), lengths[i]);
  }
  return filling;
}

/// Longest first, each into the first group with room.
LORA_INLINE Filling fill_first(std::span<const Index> lengths, std::span<const Index> longest_first, Index limit) {
  Filling filling;
  for (const Index i : longest_first) {
    const Index length = lengths[static_cast<std::size_t>(i)];
    std::size_t group = 0;
    while (group < filling.groups.size() && filling.tokens[group] + length > limit) ++group;
    if (group == filling.groups.size()) filling.open();
    filling.put(group, i, length);
  }
  return filling;
}

/// Longest first, each into the emptiest of `count` groups.
LORA_INLINE Filling fill_emptiest(std::span<const Index> lengths, std::span<const Index> longest_first,
                                  std::size_t count) {
  Filling filling;
  for (std::size_t g = 0; g < count; ++g) filling.open();
  for (const Index i : longest_first) {
    const auto emptiest = std::min_element(filling.tokens.begin(), filling.tokens.end()) - filling.tokens.begin();
    filling.put(static_cast<std::size_t>(emptiest), i, lengths[static_cast<std::size_t>(i)]);
  }
  return filling;
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE Groups group_by_tokens(std::span<const Index> lengths, Index limit) {
  std::vector<Index> longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), Index{0});
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](Index a, Index b) {
    return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
  });
  detail::Filling best = detail::fill_first(lengths, longest_first, limit);
  // First fit decreasing needs at most 11/9 of the optimum, but can need more groups than another order.
  detail::Filling in_order = detail::fill_in_order(lengths, limit);
  if (in_order.groups.size() < best.groups.size()) best = std::move(in_order);
  detail::Filling even = detail::fill_emptiest(lengths, longest_first, best.groups.size());
  if (even.within(limit)) best = std::move(even);
  for (auto& group : best.groups) std::sort(group.begin(), group.end());
  std::sort(best.groups.begin(), best.groups.end());
  return std::move(best.groups);
}

LORA_INLINE Groups group_by_places(std::span<const Index> places, Index count) {
  Groups groups;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i == 0 || places[i] / count != places[i - 1] / count) groups.emplace_back();
    groups.back().push_back(static_cast<Index>(i));
  }
  return groups;
}

}  // namespace lora::data
