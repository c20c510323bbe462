#pragma once

#include "lora/core/config.hpp"
#include "lora/train/memory.hpp"

namespace lora::train {

LORA_INLINE Index largest_shares(const std::vector<nn::GroupSize>& sizes, int ranks) {
  Index elements = 0;  // of the last rank: where parts are not even, it has the most of each
  for (const nn::GroupSize& group : sizes) elements += nn::share_size(group, ranks - 1, ranks);
  return elements;
}

LORA_INLINE LargestBatch largest_batch(const data::EncodeSummary& records, const inputs::MicroBatchLimit& limit,
                                       Index at_once, const inputs::Sharing& shared) {
  const Index longest = std::min(records.length_at(1), limit.cutoff_len);
  const Index filled = limit.tokens > 0 ? std::max(limit.tokens, longest) : longest * limit.sequences;
  const Index sequences = limit.tokens > 0 ? at_once : std::min(at_once, limit.sequences);
  const auto left =
      static_cast<Index>(std::ceil(shared.rows * static_cast<double>(std::min(longest * sequences, records.tokens()))));
  const Index rows = std::min(filled, std::max(longest, left));
  if (records.tokens() == 0) return {};
  const double share =
      std::max(shared.labeled, static_cast<double>(records.labeled()) / static_cast<double>(records.tokens()));
  return {.rows = rows,
          .labeled = static_cast<Index>(std::ceil(share * static_cast<double>(rows))),
          .shares = limit.shares};
}

LORA_INLINE LargestBatch largest_evaluation(const data::EncodeSummary& records, Index sequences, Index window) {
  if (records.tokens() == 0) return {};
  const Index longest = std::min(records.length_at(1), window);
  // The stride is half a window, so a token is in at most two windows.
  const Index all = records.length_at(1) > window ? 2 * records.tokens() : records.tokens();
  const Index rows = std::min(longest * sequences, all);
  const double share = static_cast<double>(records.labeled()) / static_cast<double>(records.tokens());
  return {rows, static_cast<Index>(std::ceil(share * static_cast<double>(rows))), records.length_at(1)};
}

}  // namespace lora::train
