#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/ignore_index.hpp"
#include "lora/core/scalar.hpp"
#include "lora/data/batches/shared_parts.hpp"
#include "lora/nn/batch.hpp"

namespace lora::data {

/// A record as a model sees it.
struct Example {
  std::vector<std::int32_t> tokens{};  ///< (S)
  std::vector<std::int32_t> labels{};  ///< (S) the token, or ignore_index; not shifted
  Index record = 0;
  bool truncated = false;   ///< cutoff_len took tokens away
  bool unanswered = false;  ///< left out because its answer is empty
  bool lost = false;        ///< cutoff_len took all labels away

  /// Number of labels with a loss: the first token of a sequence has nothing to be predicted from.
  Index labeled() const {
    if (labels.empty()) return 0;
    return static_cast<Index>(labels.size()) - 1 - std::count(labels.begin() + 1, labels.end(), ignore_index);
  }
};

/// The shortest beginning that is worth a part of its own in a batch: attention takes keys in tiles, and a shorter part
/// takes as long as a whole one.
constexpr Index least_shared = 16;

/// Of each example the rows before the first that has a label; all where none has.
std::vector<Beginning> beginnings_of(std::span<const Example> examples);

/// What a model reads, and whose it is.
struct Batch : nn::Batch {
  std::vector<Index> records{};  ///< of each sequence
  Index labeled = 0;             ///< rows with a label
  Index sequence_tokens = 0;     ///< of all sequences: more than rows where these have rows in common

  Index sequences() const { return static_cast<Index>(records.size()); }

  /// Appends a sequence. `place` is its index in the whole step, over all micro-batches and processes, so that dropout,
  /// which depends on it, is the same however the step is split.
  void append(const Example& example, Index place);

  /// Appends several. If `shares`, beginnings of `least_shared` rows or more that are the same, before all labels, lie
  /// there once. The place of such a row is that of its first sequence, so dropout and noise must be off.
  void append(std::span<const Example> examples, std::span<const Index> places, bool shares);

 private:
  void count(const Example& example);
  void append_part(const Example& example, Index place, const kernel::Segment& part);
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/batches/batch.ipp"
#endif
