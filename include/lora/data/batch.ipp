#pragma once

#include "lora/core/config.hpp"
#include "lora/data/batch.hpp"

namespace lora::data {

LORA_INLINE void Batch::append(const Example& example, Index place) {
  const std::size_t length = example.tokens.size();
  if (example.labels.size() != length)
    fail<ShapeError>("[batch] ", length, " tokens but ", example.labels.size(), " labels");
  if (length == 0) return;
  const Index begin = rows();
  tokens.insert(tokens.end(), example.tokens.begin(), example.tokens.end());
  labels.insert(labels.end(), example.labels.begin() + 1, example.labels.end());
  labels.push_back(ignore_index);
  for (std::size_t i = 0; i < length; ++i) positions.push_back(static_cast<std::int32_t>(i));
  sequence_index.insert(sequence_index.end(), length, static_cast<std::int32_t>(place));
  segments.push_back({begin, rows()});
  records.push_back(example.record);
  labelled += example.labelled();
}

}  // namespace lora::data
