#pragma once

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

}  // namespace lora::train
