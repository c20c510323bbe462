#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/fingerprints.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer {

/// The regular expressions of byte-level pre-tokenizers, each as equivalent code. They cover every text: a match begins
/// where the previous one ended.
class WordPattern {
 public:
  /// The pattern for a regular expression; nothing if it is unknown.
  static std::optional<WordPattern> from_regex(std::string_view regex);

  static WordPattern gpt2() { return WordPattern(table[0]); }

  /// The first of the regular expressions that mean this.
  std::string_view regex() const;

  static constexpr std::string_view qwen2_regex =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view llama3_regex =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

  /// Where the word that begins at `at` ends.
  std::size_t end_of_word(std::string_view text, std::size_t at) const;

 private:
  enum class Family { gpt2, cl100k };
  struct Known {
    std::string_view regex;
    Family family;
    std::size_t digits;  // how many make a word
  };
  static constexpr Known table[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Family::gpt2, 0},
      {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Family::gpt2, 0},
      {qwen2_regex, Family::cl100k, 1},
      {llama3_regex, Family::cl100k, 3},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       Family::cl100k, 3},
      {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       Family::cl100k, 3},
  };

  explicit WordPattern(const Known& known) : family_(known.family), digits_(known.digits) {}

  // Letters, numbers and white space never overlap; all else is `other`.
  static constexpr int other = 0, white = unicode::space, kinds = unicode::letter | unicode::number | unicode::space;
  int kind(char32_t c) const { return (*classes_)(c)&kinds; }

  /// Behind the run of code points of one kind that begins at `at`, or `at`.
  std::size_t end_of_run(std::string_view text, std::size_t at, int of) const;

  /// 's 't 're 've 'm 'll 'd, in cl100k in any case; there the long s counts as an s.
  std::size_t end_of_contraction(std::string_view text, std::size_t at) const;

  /// \s+(?!\S)|\s+ : white space but for its last code point, which goes with the word after it.
  std::size_t end_of_white(std::string_view text, std::size_t at) const;

  std::size_t end_gpt2(std::string_view text, std::size_t at, unicode::CodePoint c) const;

  std::size_t end_cl100k(std::string_view text, std::size_t at, unicode::CodePoint c) const;

  /// [^\s\p{L}\p{N}]+[\r\n]*
  std::size_t end_of_others(std::string_view text, std::size_t at) const;

  Family family_;
  std::size_t digits_;
  const unicode::Classes* classes_ = &unicode::Classes::instance();
};

/// Splits a text into words in stages, each splitting the pieces of the previous one.
class PreTokenizer {
 public:
  /// What happens to a match: a piece of its own, removed, merged with a neighbor, or with adjacent matches.
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

  struct Stage {
    /// `prefix` comes last: it adds a space before a text without one, and splits it into words if it has a pattern.
    enum class Kind { words, literal, digits, prefix };
    Kind kind = Kind::words;
    std::optional<WordPattern> pattern;  ///< of words and prefix
    std::string literal;                 ///< of literal: the text to find
    Behavior behavior = Behavior::isolated;
    bool invert = false;  ///< swaps matches and the rest
  };

  bool empty() const { return stages_.empty(); }
  void add(Stage stage) { stages_.push_back(std::move(stage)); }

  std::uint64_t fingerprint() const;

  /// Calls `take(word, place, added)` for each word: `place` is its byte offset in `text`, `added` the number of bytes
  /// at its beginning that are not in the text.
  template <class Take>
  void split(std::string_view text, Take&& take) const {
    if (!text.empty()) run(0, text, 0, take);
  }

 private:
  struct Piece {
    std::size_t begin, end;
    bool match;
  };

  template <class Take>
  void run(std::size_t index, std::string_view text, std::size_t place, Take& take) const {
    if (index == stages_.size()) return take(text, place, std::size_t{0});
    const Stage& stage = stages_[index];
    const auto pass_on = [&](std::size_t begin, std::size_t end) {
      run(index + 1, text.substr(begin, end - begin), place + begin, take);
    };
    if (stage.kind == Stage::Kind::prefix) return run_prefix(stage, text, place, take);
    const bool keeps_all = stage.behavior == Behavior::isolated;
    const bool keeps_matches = stage.behavior == Behavior::removed && stage.invert;
    if (stage.kind == Stage::Kind::words && (keeps_all || keeps_matches)) {
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = stage.pattern->end_of_word(text, at);
        pass_on(at, end);
        at = end;
      }
      return;
    }
    std::vector<Piece> pieces = matches(stage, text);
    join(pieces, stage);
    for (const Piece& piece : pieces) pass_on(piece.begin, piece.end);
  }

  template <class Take>
  static void run_prefix(const Stage& stage, std::string_view text, std::size_t place, Take& take) {
    const std::size_t added = text[0] == ' ' ? 0 : 1;
    const std::string prefixed = std::string(added, ' ') + std::string(text);
    for (std::size_t at = 0; at < prefixed.size();) {
      const std::size_t end = stage.pattern ? stage.pattern->end_of_word(prefixed, at) : prefixed.size();
      take(std::string_view(prefixed).substr(at, end - at), at > 0 ? place + at - added : place, at > 0 ? 0 : added);
      at = end;
    }
  }

  static std::vector<Piece> matches(const Stage& stage, std::string_view text);

  static void join(std::vector<Piece>& pieces, const Stage& stage);

  std::vector<Stage> stages_;
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/split.ipp"
#endif
