#pragma once

#include <algorithm>
#include <cstddef>

#include "lora/core/config.hpp"
#include "lora/train/evaluate.hpp"

namespace lora::train {

LORA_INLINE std::vector<data::Example> windows_of(const data::Example& example, Index window) {
  const auto length = static_cast<Index>(example.tokens.size());
  if (length <= window) return {example};
  std::vector<data::Example> windows;
  const Index stride = std::max<Index>(1, window / 2);
  for (Index begin = 0, scored = 0; scored < length; begin += stride) {
    const Index end = std::min(begin + window, length);
    data::Example part;
    part.record = example.record;
    part.tokens.assign(example.tokens.begin() + begin, example.tokens.begin() + end);
    part.labels.assign(example.labels.begin() + begin, example.labels.begin() + end);
    std::fill_n(part.labels.begin(), scored - begin, ignore_index);
    windows.push_back(std::move(part));
    scored = end;
  }
  return windows;
}

LORA_INLINE void BatchSums::add(const model::Evaluation& batch) {
  sums_.push_back(batch.loss_sum);
  sums_.push_back(static_cast<double>(batch.labeled));
  sums_.push_back(static_cast<double>(batch.correct));
  sums_.push_back(static_cast<double>(batch.computed_tokens));
}

LORA_INLINE void BatchSums::add_to(model::Evaluation& totals) const {
  constexpr Index numbers = 4;
  const Index size = ranks_.size();
  totals.stopped = ranks_.agree(totals.stopped ? 1u : 0u) != 0;
  if (totals.stopped) return;
  std::vector<Index> begins{0};
  for (Index rank = 0; rank < size; ++rank)
    begins.push_back(begins.back() + numbers * ((batches_ + size - 1 - rank) / size));
  const std::vector<double> all = ranks_.all_gather(sums_, begins);
  for (Index batch = 0; batch < batches_; ++batch) {
    const auto at = all.begin() + begins[static_cast<std::size_t>(batch % size)] + batch / size * numbers;
    totals.loss_sum += at[0];
    totals.labeled += static_cast<Index>(at[1]);
    totals.correct += static_cast<Index>(at[2]);
    totals.computed_tokens += static_cast<Index>(at[3]);
  }
}

}  // namespace lora::train
