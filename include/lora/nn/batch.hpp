#pragma once

#include <cstdint>
#include <vector>

#include "lora/kernel/segment.hpp"

namespace lora::nn {

/// What one pass reads, on the host: sequences laid end to end, without padding. A part that several sequences have in
/// common may lie there once, in a segment that is the parent of those that go on from it; not with dropout or noise,
/// which are a sequence's.
struct Batch {
  std::vector<std::int32_t> tokens{};          ///< (N)
  std::vector<std::int32_t> positions{};       ///< (N) index in the sequence
  std::vector<std::int32_t> sequence_index{};  ///< (N) of the sequence in the whole step; for dropout and noise only
  std::vector<kernel::Segment> segments{};     ///< (B) rows of each sequence, or part of one
  std::vector<std::int32_t> labels{};          ///< (N) the token that follows, or ignore_index; none: no row has one
  std::vector<std::int32_t> cache_rows{};      ///< (N) where a row goes in a key/value cache; without one none

  Index rows() const { return static_cast<Index>(tokens.size()); }
};

}  // namespace lora::nn
