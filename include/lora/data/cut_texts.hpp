#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/order.hpp"
#include "lora/data/token_store.hpp"

namespace lora::data {

/// Which sequences the records of a data set make, where some of them are long texts that were cut into blocks: a
/// block is a sequence, and so is any other record. Keeps the tokens of those texts.
class CutTexts {
 public:
  /// A sequence: a whole record or, of a cut text, one of its blocks.
  struct Part {
    Index record;
    Index block = 0;
    std::span<const std::int32_t> text{};  ///< the tokens of the cut text, of which the block is read; empty: a whole
                                           ///< record
  };

  CutTexts() = default;
  /// `tokens`: an empty store.
  explicit CutTexts(TokenStore tokens) : tokens_(std::move(tokens)) {}

  /// Adds a text; those that come later stand in later records.
  void add(Index record, std::span<const std::int32_t> tokens, Index blocks) {
    texts_.push_back({record, sequence_of(record), blocks, tokens_.size(), tokens.size()});
    tokens_.append(tokens);
  }
  /// Ends the adding.
  void finish() { tokens_.finish(); }

  bool empty() const { return texts_.empty(); }

  /// The first sequence of a record, or for the number of records that of sequences.
  Index sequence_of(Index record) const {
    const auto after = std::lower_bound(texts_.begin(), texts_.end(), record,
                                        [](const Text& text, Index number) { return text.record < number; });
    if (after == texts_.begin()) return record;
    const Text& before = *(after - 1);
    return before.end() + (record - before.record - 1);
  }

  /// The sequences of these records, in their order.
  /// Throws   ConfigError if there are too many
  Sequences sequences_of(const Sequences& records) const {
    if (empty()) return records;
    if (!records.lists()) return Sequences::below(sequence_of(records.size()));
    std::vector<std::uint32_t> sequences;
    for (Index i = 0; i < records.size(); ++i)
      for (Index at = sequence_of(records[i]); at < sequence_of(records[i] + 1); ++at)
        sequences.push_back(Sequences::as_number(at));
    return Sequences(std::move(sequences));
  }

  Index record_of(Index sequence) const {
    const Text* const text = last_at_or_before(sequence);
    if (text == nullptr) return sequence;
    return sequence < text->end() ? text->record : text->record + 1 + (sequence - text->end());
  }

  /// Whether a sequence is a block. Reads no tokens.
  bool is_block(Index sequence) const {
    const Text* const text = last_at_or_before(sequence);
    return text != nullptr && sequence < text->end();
  }

  Part operator[](Index sequence) const {
    const Text* const text = last_at_or_before(sequence);
    if (text == nullptr || sequence >= text->end()) return {record_of(sequence)};
    // Of a mapped file's pages only the block's are touched.
    const std::size_t each = text->length / static_cast<std::size_t>(text->blocks) + 1;
    return {text->record, sequence - text->first, tokens_.read(text->token, text->length, each)};
  }

 private:
  struct Text {
    Index record;
    Index first;  // sequence
    Index blocks;
    std::size_t token;  // its first one in the store
    std::size_t length;

    Index end() const { return first + blocks; }
  };

  const Text* last_at_or_before(Index sequence) const {
    const auto after = std::upper_bound(texts_.begin(), texts_.end(), sequence,
                                        [](Index number, const Text& text) { return number < text.first; });
    return after == texts_.begin() ? nullptr : &*(after - 1);
  }

  std::vector<Text> texts_;  // in order
  TokenStore tokens_;
};

}  // namespace lora::data
