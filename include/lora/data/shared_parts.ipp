#pragma once

#include "lora/core/config.hpp"
#include "lora/data/shared_parts.hpp"

namespace lora::data::detail {

class PartFinder {
 public:
  PartFinder(std::span<const Beginning> sequences, Index least)
      : sequences_(sequences), least_(std::max<Index>(least, 1)), sorted_(sequences.size()) {
    std::iota(sorted_.begin(), sorted_.end(), Index{0});
    // Those that begin alike lie side by side.
    std::stable_sort(sorted_.begin(), sorted_.end(), [&](Index a, Index b) {
      return std::lexicographical_compare(at(a).tokens.begin(), at(a).tokens.end(), at(b).tokens.begin(),
                                          at(b).tokens.end());
    });
    for (std::size_t i = 0; i + 1 < sorted_.size(); ++i) {
      const auto &a = at(sorted_[i]).tokens, &b = at(sorted_[i + 1]).tokens;
      common_.push_back(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    }
  }

  std::vector<Part> find() {
    if (!sorted_.empty()) place(0, sorted_.size(), 0, -1);
    return std::move(parts_);
  }

 private:
  /// Neighbors among the sorted, which go on alike for the first `common` tokens; a single one, or enough tokens.
  struct Group {
    std::size_t begin = 0, end = 0;
    Index common = 0;
    Index first = 0;  ///< of their numbers
  };

  const Beginning& at(Index sequence) const { return sequences_[static_cast<std::size_t>(sequence)]; }

  /// Places the parts behind token `from` of neighbors that have all before it in common.
  void place(std::size_t begin, std::size_t end, Index from, Index parent) {
    std::vector<Group> groups;
    split(begin, end, from, groups);
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.first < b.first; });
    for (const Group& group : groups) {
      if (from < group.common) parts_.push_back({group.first, from, group.common, parent});
      if (group.end - group.begin > 1) place(group.begin, group.end, group.common, std::ssize(parts_) - 1);
    }
  }

  void split(std::size_t begin, std::size_t end, Index from, std::vector<Group>& groups) const {
    const Index first = *std::min_element(sorted_.begin() + static_cast<std::ptrdiff_t>(begin),
                                          sorted_.begin() + static_cast<std::ptrdiff_t>(end));
    if (end - begin == 1) return groups.push_back({begin, end, at(first).length, first});
    const auto shared = std::span(common_).subspan(begin, end - begin - 1);
    const Index common = *std::min_element(shared.begin(), shared.end());
    if (common - from >= least_) return groups.push_back({begin, end, common, first});
    for (std::size_t i = begin, next = begin; i < end; i = next) {
      for (next = i + 1; next < end && common_[next - 1] > common;) ++next;
      split(i, next, from, groups);
    }
  }

  std::span<const Beginning> sequences_;
  Index least_;
  std::vector<Index> sorted_;
  std::vector<Index> common_;  // tokens that each of the sorted has in common with the next one
  std::vector<Part> parts_;
};

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE std::vector<Part> shared_parts(std::span<const Beginning> sequences, Index least) {
  return detail::PartFinder(sequences, least).find();
}

}  // namespace lora::data
