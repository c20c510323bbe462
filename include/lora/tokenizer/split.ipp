#pragma once

#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/tokenizer/split.hpp"

namespace lora::tokenizer {

LORA_INLINE std::optional<WordPattern> WordPattern::from_regex(std::string_view regex) {
  for (const Known& known : table)
    if (known.regex == regex) return WordPattern(known);
  return std::nullopt;
}

LORA_INLINE std::string_view WordPattern::regex() const {
  std::size_t first = 0;
  while (table[first].family != family_ || table[first].digits != digits_) ++first;
  return table[first].regex;
}

LORA_INLINE std::size_t WordPattern::end_of_word(std::string_view text, std::size_t at) const {
  const auto c = unicode::code_point_at(text, at);
  if (c.value == '\'')
    if (const std::size_t end = end_of_contraction(text, at); end > at) return end;
  return family_ == Family::gpt2 ? end_gpt2(text, at, c) : end_cl100k(text, at, c);
}

LORA_INLINE std::size_t WordPattern::end_of_run(std::string_view text, std::size_t at, int of) const {
  while (at < text.size()) {
    const auto c = unicode::code_point_at(text, at);
    if (kind(c.value) != of) break;
    at += c.bytes;
  }
  return at;
}

LORA_INLINE std::size_t WordPattern::end_of_contraction(std::string_view text, std::size_t at) const {
  const bool any_case = family_ == Family::cl100k;
  const auto letter = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case ? ascii_lower(c) : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'l' && second == 'l') || ((first == 'r' || first == 'v') && second == 'e')) return at + 3;
  if (any_case && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
  return at;
}

LORA_INLINE std::size_t WordPattern::end_of_white(std::string_view text, std::size_t at) const {
  const std::size_t end = end_of_run(text, at, white);
  if (end == text.size()) return end;
  const std::size_t last = end - unicode::code_point_before(text, end).bytes;
  return last > at ? last : end;
}

LORA_INLINE std::size_t WordPattern::end_gpt2(std::string_view text, std::size_t at, unicode::CodePoint c) const {
  std::size_t start = at;
  int of = kind(c.value);
  if (c.value == ' ' && at + 1 < text.size()) {
    of = kind(unicode::code_point_at(text, at + 1).value);
    start = at + 1;
  }
  return of == white ? end_of_white(text, at) : end_of_run(text, start, of);
}

LORA_INLINE std::size_t WordPattern::end_cl100k(std::string_view text, std::size_t at, unicode::CodePoint c) const {
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

LORA_INLINE std::size_t WordPattern::end_of_others(std::string_view text, std::size_t at) const {
  std::size_t end = end_of_run(text, at, other);
  while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
  return end;
}

LORA_INLINE std::uint64_t PreTokenizer::fingerprint() const {
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

LORA_INLINE std::vector<PreTokenizer::Piece> PreTokenizer::matches(const Stage& stage, std::string_view text) {
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

LORA_INLINE void PreTokenizer::join(std::vector<Piece>& pieces, const Stage& stage) {
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
    const bool joins = stage.behavior == Behavior::contiguous ? piece.match == last_match : piece.match && !last_match;
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

}  // namespace lora::tokenizer
