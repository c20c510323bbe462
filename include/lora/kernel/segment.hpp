#pragma once

#include <cstddef>
#include <span>

#include "lora/core/scalar.hpp"

namespace lora::kernel {

/// Rows [begin, end) of one sequence, or of a part of it that several have in common.
struct Segment {
  Index begin = 0;
  Index end = 0;
  /// The number of the segment that comes before this one in its sequence; -1: this one begins it. Segments are then
  /// trees in preorder: each comes behind its parent, and all that descend from it follow it.
  Index parent = -1;
  Index size() const { return end - begin; }
};

/// Calls use(first, part) for the parts of the sequence that ends with segment b, from its beginning on; `first`: rows
/// of the parts before. Returns the rows of all.
template <class Use>
Index for_each_part(std::span<const Segment> segments, Index b, const Use& use) {
  if (b < 0) return 0;
  const Segment& part = segments[static_cast<std::size_t>(b)];
  const Index first = for_each_part(segments, part.parent, use);
  use(first, part);
  return first + part.size();
}

/// Rows of the sequence that ends with segment b.
inline Index sequence_rows(std::span<const Segment> segments, Index b) {
  return for_each_part(segments, b, [](Index, const Segment&) {});
}

/// The number behind the last segment that descends from segment b.
inline Index end_of_tree(std::span<const Segment> segments, Index b) {
  Index end = b + 1;
  while (end < std::ssize(segments) && segments[static_cast<std::size_t>(end)].parent >= b) ++end;
  return end;
}

}  // namespace lora::kernel
