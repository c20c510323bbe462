#pragma once

#include "lora/core/config.hpp"
#include "lora/data/batches/shared_parts.hpp"

namespace lora::data::detail {

class PartFinder {
 public:
  PartFinder(const SortedSequences& sorted, Index least) : sorted_(sorted), least_(std::max<Index>(least, 1)) {}

  /// Places the parts behind token `from` of neighbors that have all before it in common.
  void place(Index begin, Index end, Index from, Index parent) {
    std::vector<Group> groups;
    split(begin, end, from, groups);
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.first < b.first; });
    for (const Group& group : groups) {
      if (from < group.common) parts_.push_back({group.first, from, group.common, parent});
      if (group.end - group.begin > 1) place(group.begin, group.end, group.common, std::ssize(parts_) - 1);
    }
  }

  std::vector<Part> take() { return std::move(parts_); }

 private:
  /// Neighbors that go on alike for the first `common` tokens; a single one, or enough tokens.
  struct Group {
    Index begin = 0, end = 0;
    Index common = 0;
    Index first = 0;  ///< of their numbers
  };

  void split(Index begin, Index end, Index from, std::vector<Group>& groups) const {
    Index first = sorted_[begin], common = sorted_.at(begin).length;
    for (Index i = begin + 1; i < end; ++i) {
      first = std::min(first, sorted_[i]);
      common = std::min(common, sorted_.common(i - 1));
    }
    if (end - begin == 1 || common - from >= least_) return groups.push_back({begin, end, common, first});
    for (Index i = begin, next = begin; i < end; i = next) {
      for (next = i + 1; next < end && sorted_.common(next - 1) > common;) ++next;
      split(i, next, from, groups);
    }
  }

  const SortedSequences& sorted_;
  Index least_;
  std::vector<Part> parts_;
};

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE Index rows_of(std::span<const Part> parts) {
  Index rows = 0;
  for (const Part& part : parts) rows += part.size();
  return rows;
}

LORA_INLINE SortedSequences::SortedSequences(std::span<const Beginning> sequences)
    : sequences_(sequences), order_(sequences.size()) {
  std::iota(order_.begin(), order_.end(), Index{0});
  std::stable_sort(order_.begin(), order_.end(), [&](Index a, Index b) {
    const auto &one = sequences[static_cast<std::size_t>(a)].tokens,
               &other = sequences[static_cast<std::size_t>(b)].tokens;
    return std::lexicographical_compare(one.begin(), one.end(), other.begin(), other.end());
  });
  for (Index place = 0; place + 1 < size(); ++place) {
    const auto &one = at(place).tokens, &next = at(place + 1).tokens;
    common_.push_back(std::mismatch(one.begin(), one.end(), next.begin(), next.end()).first - one.begin());
  }
}

LORA_INLINE std::vector<Part> SortedSequences::parts(Index begin, Index end, Index least) const {
  detail::PartFinder finder(*this, least);
  if (begin < end) finder.place(begin, end, 0, -1);
  return finder.take();
}

LORA_INLINE std::vector<Index> common_beginnings(std::span<const Beginning> sequences, Index least) {
  const SortedSequences sorted(sequences);
  std::vector<Index> beginnings(sequences.size());
  for (Index place = 0; place < sorted.size(); ++place) {
    const Index before = place > 0 ? sorted.common(place - 1) : 0,
                after = place + 1 < sorted.size() ? sorted.common(place) : 0;
    if (const Index common = std::max(before, after); common >= least)
      beginnings[static_cast<std::size_t>(sorted[place])] = common;
  }
  return beginnings;
}

LORA_INLINE std::vector<Part> shared_parts(std::span<const Beginning> sequences, Index least) {
  return SortedSequences(sequences).parts(0, std::ssize(sequences), least);
}

}  // namespace lora::data
