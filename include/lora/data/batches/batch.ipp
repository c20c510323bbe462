#pragma once

#include "lora/core/config.hpp"
#include "lora/data/batches/batch.hpp"

namespace lora::data::detail {

LORA_INLINE void check_labels(const Example& example) {
  if (example.labels.size() != example.tokens.size())
    fail<ShapeError>("[batch] ", example.tokens.size(), " tokens but ", example.labels.size(), " labels");
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE std::vector<Beginning> beginnings_of(std::span<const Example> examples) {
  std::vector<Beginning> beginnings;
  for (const Example& example : examples) {
    const Index length = std::ssize(example.tokens);
    const auto first = std::find_if(example.labels.begin() + (length > 0), example.labels.end(),
                                    [](std::int32_t label) { return label != ignore_index; });
    const Index rows = first == example.labels.end() ? length : first - example.labels.begin() - 1;
    beginnings.push_back({std::span(example.tokens).first(static_cast<std::size_t>(rows)), length});
  }
  return beginnings;
}

LORA_INLINE void Batch::append(const Example& example, Index place) {
  detail::check_labels(example);
  if (example.tokens.empty()) return;
  append_part(example, place, {0, std::ssize(example.tokens)});
  count(example);
}

LORA_INLINE void Batch::append(std::span<const Example> examples, std::span<const Index> places, bool shares) {
  if (examples.size() != places.size())
    fail<ShapeError>("[batch] ", examples.size(), " sequences but ", places.size(), " places");
  if (!shares) {
    for (std::size_t i = 0; i < examples.size(); ++i) append(examples[i], places[i]);
    return;
  }
  for (const Example& example : examples) detail::check_labels(example);
  const Index before = std::ssize(segments);
  for (const Part& part : shared_parts(beginnings_of(examples), least_shared)) {
    const auto i = static_cast<std::size_t>(part.sequence);
    append_part(examples[i], places[i], {part.begin, part.end, part.parent < 0 ? -1 : before + part.parent});
  }
  for (const Example& example : examples) count(example);
}

LORA_INLINE void Batch::count(const Example& example) {
  if (example.tokens.empty()) return;
  records.push_back(example.record);
  labeled += example.labeled();
  sequence_tokens += std::ssize(example.tokens);
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
