#pragma once

#include "lora/core/config.hpp"
#include "lora/data/batches/cut_texts.hpp"

namespace lora::data {

LORA_INLINE void CutTexts::add(Index record, std::span<const std::int32_t> tokens, Index blocks) {
  texts_.push_back({record, sequence_of(record), blocks, tokens_.size(), tokens.size()});
  tokens_.append(tokens);
}

LORA_INLINE Index CutTexts::sequence_of(Index record) const {
  const auto after = std::lower_bound(texts_.begin(), texts_.end(), record,
                                      [](const Text& text, Index number) { return text.record < number; });
  if (after == texts_.begin()) return record;
  const Text& before = *(after - 1);
  return before.end() + (record - before.record - 1);
}

LORA_INLINE Sequences CutTexts::sequences_of(const Sequences& records) const {
  if (empty()) return records;
  if (!records.lists()) return Sequences::below(sequence_of(records.size()));
  std::vector<std::uint32_t> sequences;
  for (Index i = 0; i < records.size(); ++i)
    for (Index at = sequence_of(records[i]); at < sequence_of(records[i] + 1); ++at)
      sequences.push_back(Sequences::as_number(at));
  return Sequences(std::move(sequences));
}

LORA_INLINE Index CutTexts::record_of(Index sequence) const {
  const Text* const text = last_at_or_before(sequence);
  if (text == nullptr) return sequence;
  return sequence < text->end() ? text->record : text->record + 1 + (sequence - text->end());
}

LORA_INLINE bool CutTexts::is_block(Index sequence) const {
  const Text* const text = last_at_or_before(sequence);
  return text != nullptr && sequence < text->end();
}

LORA_INLINE CutTexts::Part CutTexts::operator[](Index sequence) const {
  const Text* const text = last_at_or_before(sequence);
  if (text == nullptr || sequence >= text->end()) return {record_of(sequence)};
  // Of a mapped file's pages only the block's are touched.
  const std::size_t each = text->length / static_cast<std::size_t>(text->blocks) + 1;
  return {text->record, sequence - text->first, tokens_.read(text->token, text->length, each)};
}

LORA_INLINE const CutTexts::Text* CutTexts::last_at_or_before(Index sequence) const {
  const auto after = std::upper_bound(texts_.begin(), texts_.end(), sequence,
                                      [](Index number, const Text& text) { return number < text.first; });
  return after == texts_.begin() ? nullptr : &*(after - 1);
}

}  // namespace lora::data
