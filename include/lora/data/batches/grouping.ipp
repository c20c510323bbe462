#pragma once

#include "lora/core/config.hpp"
#include "lora/data/batches/grouping.hpp"

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

/// Ends of groups of neighbors of at most `limit` rows, filled one after the other.
LORA_INLINE std::vector<Index> fill_with_neighbors(const SortedSequences& sorted, Index limit, Index least) {
  std::vector<Index> ends;
  for (Index begin = 0; begin < sorted.size(); begin = ends.back()) {
    // Rows only grow with the end: the last one that fits is found by steps that double, then by halves.
    const auto fits = [&](Index end) { return rows_of(sorted.parts(begin, end, least)) <= limit; };
    Index end = begin + 1, step = 1;
    for (; end + step <= sorted.size() && fits(end + step); step *= 2) end += step;
    for (; step > 0; step /= 2)
      if (end + step <= sorted.size() && fits(end + step)) end += step;
    ends.push_back(end);
  }
  return ends;
}

/// The same, as few, with the lowest limit.
LORA_INLINE Groups group_neighbors(const SortedSequences& sorted, Index limit, Index least) {
  std::vector<Index> ends = fill_with_neighbors(sorted, limit, least);
  for (Index low = 0, high = ends.size() > 1 ? limit : 0; high - low > 1;) {
    const Index middle = low + (high - low) / 2;
    auto more_even = fill_with_neighbors(sorted, middle, least);
    const bool fits = more_even.size() == ends.size();
    (fits ? high : low) = middle;
    if (fits) ends = std::move(more_even);
  }
  Groups groups;
  Index begin = 0;
  for (const Index end : ends) {
    auto& group = groups.emplace_back();
    for (; begin < end; ++begin) group.push_back(sorted[begin]);
    std::sort(group.begin(), group.end());
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE Index shared_rows(std::span<const Beginning> sequences, std::span<const Index> group, Index least) {
  std::vector<Beginning> own;
  for (const Index i : group) own.push_back(sequences[static_cast<std::size_t>(i)]);
  return rows_of(shared_parts(own, least));
}

LORA_INLINE Groups group_by_rows(std::span<const Beginning> sequences, Index limit, Index least) {
  std::vector<Index> lengths;
  for (const Beginning& sequence : sequences) lengths.push_back(sequence.length);
  Groups any = group_by_tokens(lengths, limit);
  const SortedSequences sorted(sequences);
  Index common = 0;
  for (Index place = 0; place + 1 < sorted.size(); ++place) common = std::max(common, sorted.common(place));
  if (common < least) return any;
  Groups alike = detail::group_neighbors(sorted, limit, least);
  const auto rows = [&](const Groups& groups) {
    Index sum = 0;
    for (const auto& group : groups) sum += shared_rows(sequences, group, least);
    return sum;
  };
  // Each micro-batch reads all weights, which takes about as long as to compute so many rows.
  constexpr Index rows_of_reading = 128;
  const auto cost = [&](const Groups& groups) { return rows(groups) + rows_of_reading * std::ssize(groups); };
  return cost(alike) < cost(any) ? alike : any;
}

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
