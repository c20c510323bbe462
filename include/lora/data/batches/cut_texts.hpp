#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/batches/token_store.hpp"
#include "lora/data/sampling/order.hpp"

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
  void add(Index record, std::span<const std::int32_t> tokens, Index blocks);
  /// Ends the adding.
  void finish() { tokens_.finish(); }

  bool empty() const { return texts_.empty(); }

  /// The first sequence of a record, or for the number of records that of sequences.
  Index sequence_of(Index record) const;

  /// The sequences of these records, in their order.
  /// Throws   ConfigError if there are too many
  Sequences sequences_of(const Sequences& records) const;

  Index record_of(Index sequence) const;

  /// Whether a sequence is a block. Reads no tokens.
  bool is_block(Index sequence) const;

  Part operator[](Index sequence) const;

 private:
  struct Text {
    Index record;
    Index first;  // sequence
    Index blocks;
    std::size_t token;  // its first one in the store
    std::size_t length;

    Index end() const { return first + blocks; }
  };

  const Text* last_at_or_before(Index sequence) const;

  std::vector<Text> texts_;  // in order
  TokenStore tokens_;
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/batches/cut_texts.ipp"
#endif
