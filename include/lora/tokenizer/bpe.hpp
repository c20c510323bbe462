#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer {

/// The printable code points that byte-level vocabularies use for bytes: printable Latin-1 is itself, the rest starts
/// at U+0100.
class ByteAlphabet {
 public:
  static const ByteAlphabet& instance();

  /// The bytes of a token; nothing if it has a code point that stands for no byte.
  std::optional<std::string> to_bytes(std::string_view token) const;

  std::string to_token(std::string_view bytes) const;

 private:
  ByteAlphabet();

  std::array<char32_t, 256> points_{};
  std::array<std::int16_t, 0x144> bytes_{};
};

/// Maps ids to tokens and tokens to ids. A token is kept as the bytes that it stands for in a text.
class Vocabulary {
 public:
  static constexpr std::int32_t max_id = 1 << 20;

  /// How a file writes tokens: `bytes` in the byte alphabet, where one that isn't in it (it has a space, say) is
  /// literal: kept as written, and never matched in a text; `text` as they stand in a text.
  enum class Writing : std::uint8_t { bytes, text };

  explicit Vocabulary(Writing writing = Writing::bytes) : writing_(writing) {}

  bool is_text() const { return writing_ == Writing::text; }

  /// The same tokens, taken as text.
  Vocabulary as_text(const std::string& where) const;

  /// `token` as in the file, valid UTF-8.
  void add(std::string_view token, std::int64_t id, const std::string& where);

  /// One more than the highest id.
  std::int32_t end() const { return static_cast<std::int32_t>(spans_.size()); }
  std::size_t count() const { return count_; }
  bool has(std::int32_t id) const;
  bool is_literal(std::int32_t id) const { return spans_[static_cast<std::size_t>(id)].literal; }

  /// What the token stands for.
  std::string_view bytes(std::int32_t id) const;

  /// The token as in the file.
  std::string text(std::int32_t id) const;

  /// The id of the token with these bytes, or -1.
  std::int32_t find_bytes(std::string_view bytes) const;

  /// The id of a token as in the file, or -1.
  std::int32_t find(std::string_view token) const;

 private:
  static constexpr std::uint32_t hole = std::numeric_limits<std::uint32_t>::max();

  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t length = hole;
    bool literal = false;
  };
  struct Slot {
    std::uint32_t tag = 0;
    std::int32_t id = -1;
  };

  static std::uint32_t hash(std::string_view bytes);

  /// The existing id of these bytes, or the given one after inserting it.
  std::int32_t insert(std::int32_t id);
  std::size_t free_slot(std::uint32_t tag) const;

  Writing writing_;
  std::string arena_;
  std::vector<Span> spans_;
  std::vector<Slot> slots_;
  std::size_t filled_ = 0, count_ = 0;
  std::unordered_map<std::string, std::int32_t> literals_;
};

/// The token that stands for a byte in a vocabulary of text, <0x0A>.
std::string byte_token(unsigned char byte);

/// What becomes of a character that is no token, in a vocabulary of text.
struct CharacterRules {
  bool byte_tokens = false;   ///< its bytes, <0x00> to <0xFF>, if all of them are tokens; else it is unknown
  bool fuse_unknown = false;  ///< unknown ones side by side are one token
};

/// Byte-pair encoding: merges the bytes of a word, or its characters where the vocabulary is text, pair by pair, lowest
/// rank first, leftmost first among equals. A word of N symbols takes O(N log N).
/// Source   Sennrich et al. 2016, Radford et al. 2019
class Bpe {
 public:
  struct Merge {
    std::int32_t left, right, whole;
  };

  /// A token and where in the word it begins.
  struct Symbol {
    std::int32_t id;
    std::uint32_t begin;
  };

  /// Buffers for one word, for use by one thread at a time.
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<std::uint32_t> ranks;
    std::vector<std::int32_t> wholes;
    std::vector<std::uint32_t> next, previous;
  };

  /// `merges` by rank. With `ignore_merges` a word that is a token stays whole, whatever the merges give. `unknown` is
  /// used for what has no token; if it is -1 that is left out, like in the `tokenizers` library.
  Bpe(Vocabulary vocabulary, std::vector<Merge> merges, bool ignore_merges, std::int32_t unknown = -1,
      CharacterRules characters = {});

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<Merge>& merges() const { return merges_; }
  bool ignore_merges() const { return ignore_merges_; }
  std::int32_t unknown() const { return unknown_; }
  const CharacterRules& characters() const { return characters_; }
  /// Whether a merge joins two tokens.
  bool joins(std::int32_t left, std::int32_t right) const { return look_up(left, right).rank != never; }

  /// Calls `take(Symbol)` for each token of a word of bytes.
  template <class Take>
  void encode(std::string_view word, Scratch& scratch, Take&& take) const {
    if (word.size() == 1 && !ignore_merges_) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(word[0])];
      if (id >= 0) take(Symbol{id, 0});
      return;
    }
    encode_longer(word, scratch, take);
  }

  /// The same for a text of characters, of any length.
  template <class Take>
  void encode_text(std::string_view text, Scratch& scratch, Take&& take) const {
    for (std::size_t begin = 0, end; begin < text.size(); begin = end) {
      end = words_are_apart_ ? end_of_marked_word(text, begin) : text.size();
      encode_longer(text.substr(begin, end - begin), scratch, [&](Symbol symbol) {
        take(Symbol{symbol.id, symbol.begin + static_cast<std::uint32_t>(begin)});
      });
    }
  }

  /// U+2581, which stands for a space in vocabularies of text.
  static constexpr std::string_view space_mark = "\xE2\x96\x81";

 private:
  template <class Take>
  void encode_longer(std::string_view word, Scratch& scratch, Take&& take) const {
    // Most words are tokens that their bytes merge to. Whether one is, is computed once and cached: all threads compute
    // the same answer.
    const std::int32_t id = vocabulary_.find_bytes(word);
    if (id >= 0) {
      auto& known = whole_[static_cast<std::size_t>(id)];
      if (ignore_merges_ || known.load(std::memory_order_relaxed) == stays_whole) return take(Symbol{id, 0});
      merge(word, scratch);
      if (scratch.symbols.size() == 1 && scratch.symbols[0].id == id)
        known.store(stays_whole, std::memory_order_relaxed);
    } else {
      merge(word, scratch);
    }
    for (const Symbol& symbol : scratch.symbols) take(symbol);
  }

  static constexpr std::uint8_t stays_whole = 1;
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint64_t empty = std::numeric_limits<std::uint64_t>::max();
  /// Up to this many symbols, scanning for the lowest rank is faster than a heap.
  static constexpr std::size_t scan_limit = 128;

  struct Slot {
    std::uint64_t key = empty;
    std::uint32_t rank = never;
    std::int32_t whole = -1;
  };

  static std::uint64_t pair_key(std::int32_t left, std::int32_t right);
  std::size_t slot_of(std::uint64_t key) const;
  const Slot& look_up(std::int32_t left, std::int32_t right) const { return slots_[slot_of(pair_key(left, right))]; }

  /// Whether no merge crosses from what is no space mark to a space mark, so that what lies on both sides merges
  /// alone. So it is with vocabularies that were trained on words, and makes of a long text many short ones.
  bool merges_stay_in_words() const;
  static std::size_t end_of_marked_word(std::string_view text, std::size_t begin);

  void merge(std::string_view word, Scratch& s) const;

  void start_with_bytes(std::string_view word, Scratch& s) const;
  void start_with_characters(std::string_view word, Scratch& s) const;

  void rank_pair(Scratch& s, std::size_t left, std::size_t right) const;

  void merge_by_scan(Scratch& s) const;

  /// The symbols stay in place and are linked; a pair whose rank has changed since it was queued is stale.
  void merge_by_heap(Scratch& s) const;

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;
  bool ignore_merges_;
  std::int32_t unknown_;
  CharacterRules characters_;
  bool words_are_apart_ = false;
  std::array<std::int32_t, 256> byte_ids_{};  // of words of bytes; of text those of <0x00> to <0xFF>
  std::vector<Slot> slots_;
  int shift_ = 0;
  std::unique_ptr<std::atomic<std::uint8_t>[]> whole_;
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/bpe.ipp"
#endif
