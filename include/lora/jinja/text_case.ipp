#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/jinja/python_text.hpp"
#include "lora/jinja/text_case.hpp"

namespace lora::jinja::detail {

/// `is_first(before)`: whether the letter behind this character becomes upper case; 0 is before the first, and DEL
/// stands for one without case beyond ASCII.
template <class IsFirst>
Value in_case(Meter& meter, std::string_view text, IsFirst is_first) {
  if (!has_known_case(text)) meter.fail("upper and lower case of letters beyond ASCII are not supported");
  std::string out;
  char before = '\0';
  for (std::size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = bytes_at(text, at);
    const bool first = is_first(before);
    if (is_ascii(text.substr(at, bytes))) {
      const char c = text[at];
      out += first ? to_upper(c) : ascii_lower(c);
      before = c;
    } else {
      out += text.substr(at, bytes);
      before = white_space_at(text, at) > 0 ? ' ' : '\x7F';
    }
  }
  return Value::of(&meter, std::move(out));
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE bool has_known_case(std::string_view text) {
  constexpr std::pair<char32_t, char32_t> others[] = {
      {0x2000, 0x206F},    // punctuation
      {0x3000, 0x31FF},    // of Chinese and Japanese texts, and kana
      {0x3400, 0x9FFF},    // Chinese characters
      {0xAC00, 0xD7A3},    // Hangul
      {0xE000, 0xF8FF},    // for private use
      {0xFF01, 0xFF0F},    // wide punctuation
      {0xFF1A, 0xFF20},    //
      {0x20000, 0x3FFFF},  // more Chinese characters
  };
  for (std::size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = bytes_at(text, at);
    if (is_ascii(text.substr(at, bytes))) continue;
    const char32_t c = code_point(text, at, bytes);
    if (std::none_of(std::begin(others), std::end(others),
                     [c](const auto& range) { return c >= range.first && c <= range.second; }))
      return false;
  }
  return true;
}

LORA_INLINE Value upper(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [](char) { return true; });
}

LORA_INLINE Value lower(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [](char) { return false; });
}

LORA_INLINE Value capitalized(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [first = true](char) mutable { return std::exchange(first, false); });
}

LORA_INLINE Value title(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text,
                         [](char before) { return !detail::is_upper(before) && !detail::is_lower(before); });
}

LORA_INLINE Value titled_words(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [](char before) {
    return before == '\0' || std::string_view("-({[<").find(before) != std::string_view::npos ||
           white_space_at(std::string_view(&before, 1), 0) > 0;
  });
}

}  // namespace lora::jinja
