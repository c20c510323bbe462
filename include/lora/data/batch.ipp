#pragma once

#include "lora/core/config.hpp"
#include "lora/data/batch.hpp"
#include "lora/data/shared_parts.hpp"

namespace lora::data::detail {

LORA_INLINE void check_labels(const Example& example) {
  if (example.labels.size() != example.tokens.size())
    fail<ShapeError>("[batch] ", example.tokens.size(), " tokens but ", example.labels.size(), " labels");
}

/// The rows before the first that has a label; all where none has.
LORA_INLINE Beginning beginning_of(const Example& example) {
  const Index length = std::ssize(example.tokens);
  Index rows = 0;
  while (rows + 1 < length && example.labels[static_cast<std::size_t>(rows) + 1] == ignore_index) ++rows;
  return {std::span(example.tokens).first(static_cast<std::size_t>(rows + 1 < length ? rows : length)), length};
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE void Batch::append(const Example& example, Index place) {
  detail::check_labels(example);
  if (example.tokens.empty()) return;
  append_part(example, place, {0, std::ssize(example.tokens)});
  records.push_back(example.record);
  labelled += example.labelled();
}

LORA_INLINE void Batch::append_shared(std::span<const Example> examples, std::span<const Index> places, Index least) {
  if (examples.size() != places.size())
    fail<ShapeError>("[batch] ", examples.size(), " sequences but ", places.size(), " places");
  std::vector<Beginning> beginnings;
  for (const Example& example : examples) {
    detail::check_labels(example);
    beginnings.push_back(detail::beginning_of(example));
  }
  const Index before = std::ssize(segments);
  for (const Part& part : shared_parts(beginnings, least)) {
    const auto i = static_cast<std::size_t>(part.sequence);
    append_part(examples[i], places[i], {part.begin, part.end, part.parent < 0 ? -1 : before + part.parent});
  }
  for (const Example& example : examples) {
    if (example.tokens.empty()) continue;
    records.push_back(example.record);
    labelled += example.labelled();
  }
}

LORA_INLINE void Batch::append_part(const Example& example, Index place, const kernel::Segment& part) {
  const Index first = rows();
  for (Index i = part.begin; i < part.end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    tokens.push_back(example.tokens[at]);
    labels.push_back(at + 1 < example.labels.size() ? example.labels[at + 1] : ignore_index);
    positions.push_back(static_cast<std::int32_t>(i));
  }
  sequence_index.insert(sequence_index.end(), static_cast<std::size_t>(part.size()), static_cast<std::int32_t>(place));
  segments.push_back({first, rows(), part.parent});
}

}  // namespace lora::data
