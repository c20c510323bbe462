#pragma once

#include <algorithm>
#include <cstddef>
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
  static std::optional<WordPattern> from_regex(std::string_view regex) {
    for (const Known& known : table)
      if (known.regex == regex) return WordPattern(known);
    return std::nullopt;
  }

  static WordPattern gpt2() { return WordPattern(table[0]); }

  /// The first of the regular expressions that mean this.
  std::string_view regex() const {
    std::size_t first = 0;
    while (table[first].family != family_ || table[first].digits != digits_) ++first;
    return table[first].regex;
  }

  static constexpr std::string_view qwen2_regex =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view llama3_regex =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

  /// Where the word that begins at `at` ends.
  std::size_t end_of_word(std::string_view text, std::size_t at) const {
    const auto c = unicode::code_point_at(text, at);
    if (c.value == '\'')
      if (const std::size_t end = end_of_contraction(text, at); end > at) return end;
    return family_ == Family::gpt2 ? end_gpt2(text, at, c) : end_cl100k(text, at, c);
  }

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
  std::size_t end_of_run(std::string_view text, std::size_t at, int of) const {
    while (at < text.size()) {
      const auto c = unicode::code_point_at(text, at);
      if (kind(c.value) != of) break;
      at += c.bytes;
    }
    return at;
  }

  /// 's 't 're 've 'm 'll 'd, in cl100k in any case; there the long s counts as an s.
  std::size_t end_of_contraction(std::string_view text, std::size_t at) const {
    const bool any_case = family_ == Family::cl100k;
    const auto letter = [&](std::size_t i) {
      const char c = i < text.size() ? text[i] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(at + 1), second = letter(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'l' && second == 'l') || ((first == 'r' || first == 'v') && second == 'e')) return at + 3;
    if (any_case && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
    return at;
  }

  /// \s+(?!\S)|\s+ : white space but for its last code point, which goes with the word after it.
  std::size_t end_of_white(std::string_view text, std::size_t at) const {
    const std::size_t end = end_of_run(text, at, white);
    if (end == text.size()) return end;
    const std::size_t last = end - unicode::code_point_before(text, end).bytes;
    return last > at ? last : end;
  }

  std::size_t end_gpt2(std::string_view text, std::size_t at, unicode::CodePoint c) const {
    std::size_t start = at;
    int of = kind(c.value);
    if (c.value == ' ' && at + 1 < text.size()) {
      of = kind(unicode::code_point_at(text, at + 1).value);
      start = at + 1;
    }
    return of == white ? end_of_white(text, at) : end_of_run(text, start, of);
  }

  std::size_t end_cl100k(std::string_view text, std::size_t at, unicode::CodePoint c) const {
    const auto is_line_end = [](char x) { return x == '\r' || x == '\n'; };
    const int of = kind(c.value);
    if (of == unicode::letter) return end_of_run(text, at + c.bytes, unicode::letter);
    if (of == unicode::number) {
      std::size_t end = at + c.bytes;
      for (std::size_t count = 1; count < digits_ && end < text.size(); ++count) {
        const auto digit = unicode::code_point_at(text, end);
        if (kind(digit.value) != unicode::number) break;
        end += digit.bytes;
      }
      return end;
    }
    if (const std::size_t next = at + c.bytes; next < text.size() && !is_line_end(text[at])) {
      const int following = kind(unicode::code_point_at(text, next).value);
      if (following == unicode::letter) return end_of_run(text, next, unicode::letter);
      if (c.value == ' ' && following == other) return end_of_others(text, next);
    }
    if (of == other) return end_of_others(text, at);
    // \s*[\r\n]+ : up to the last line end within the white space.
    std::size_t end = end_of_run(text, at, white);
    while (end > at && !is_line_end(text[end - 1])) --end;
    return end > at ? end : end_of_white(text, at);
  }

  /// [^\s\p{L}\p{N}]+[\r\n]*
  std::size_t end_of_others(std::string_view text, std::size_t at) const {
    std::size_t end = end_of_run(text, at, other);
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
    return end;
  }

  Family family_;
  std::size_t digits_;
  const unicode::Classes* classes_ = &unicode::Classes::instance();
};

/// Splits a text into words in stages, each splitting the pieces of the previous one.
class PreTokenizer {
 public:
  /// What happens to a match: a piece of its own, removed, merged with a neighbour, or with adjacent matches.
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

  void add(Stage stage) { stages_.push_back(std::move(stage)); }

  std::uint64_t fingerprint() const {
    detail::FingerprintSum sum;
    for (const Stage& stage : stages_) {
      sum.add_number(static_cast<int>(stage.kind));
      sum.add_number(static_cast<int>(stage.behavior));
      sum.add_number(stage.invert);
      sum.add(stage.literal);
      sum.add(stage.pattern ? stage.pattern->regex() : "");
    }
    return sum.value();
  }

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

  static std::vector<Piece> matches(const Stage& stage, std::string_view text) {
    std::vector<Piece> pieces;
    std::size_t gap = 0;
    const auto add = [&](std::size_t begin, std::size_t end) {
      if (gap < begin) pieces.push_back({gap, begin, false});
      pieces.push_back({begin, end, true});
      gap = end;
    };
    if (stage.kind == Stage::Kind::literal) {
      for (std::size_t at = text.find(stage.literal); at != text.npos; at = text.find(stage.literal, gap))
        add(at, at + stage.literal.size());
    } else if (stage.kind == Stage::Kind::words) {
      while (gap < text.size()) add(gap, stage.pattern->end_of_word(text, gap));
    } else {
      const auto& classes = unicode::Classes::instance();
      for (std::size_t at = 0; at < text.size();) {
        const auto c = unicode::code_point_at(text, at);
        if (classes(c.value) & unicode::digit) add(at, at + c.bytes);
        at += c.bytes;
      }
    }
    if (gap < text.size()) pieces.push_back({gap, text.size(), false});
    if (stage.invert)
      for (Piece& piece : pieces) piece.match = !piece.match;
    return pieces;
  }

  static void join(std::vector<Piece>& pieces, const Stage& stage) {
    if (stage.behavior == Behavior::isolated) return;
    if (stage.behavior == Behavior::removed) {
      std::erase_if(pieces, [](const Piece& piece) { return piece.match; });
      return;
    }
    const bool backwards = stage.behavior == Behavior::merged_with_next;
    if (backwards) std::reverse(pieces.begin(), pieces.end());
    std::vector<Piece> joined;
    bool last_match = false;
    for (const Piece& piece : pieces) {
      const bool joins =
          stage.behavior == Behavior::contiguous ? piece.match == last_match : piece.match && !last_match;
      last_match = piece.match;
      if (!joins || joined.empty()) {
        joined.push_back(piece);
      } else if (backwards) {
        joined.back().begin = piece.begin;
      } else {
        joined.back().end = piece.end;
      }
    }
    if (backwards) std::reverse(joined.begin(), joined.end());
    pieces = std::move(joined);
  }

  std::vector<Stage> stages_;
};

}  // namespace lora::tokenizer
