#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"

// Texts as Python sees them: their white space, and what it writes of numbers and of texts themselves.

namespace lora::jinja {

/// Bytes of the white space, as Python's str.strip sees it, that starts at `text[at]`; 0 if there is none.
std::size_t white_space_at(std::string_view text, std::size_t at);

/// The text without white space at its end, or at its beginning.
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

/// A number with the fewest digits that read back as it, as Python's repr writes it: 1.0, 1e-05, 1e+16, inf.
std::string python_number(double value);

/// A text as Python's json.dumps writes it. `ascii`: what is none of ASCII as \u00e9.
void add_json_text(std::string& out, std::string_view text, bool ascii = false);

/// A text as Python's repr writes it.
/// Throws   FormatError for a character of which it is not known whether Python calls it printable
void add_python_text(std::string& out, std::string_view text);

/// Bytes of the character at `at`, which is below the text's size; a byte that is not part of one counts as one.
inline std::size_t bytes_at(std::string_view text, std::size_t at) {
  const std::uint32_t whole = utf8_step(text, at).whole;
  return whole == 0 ? 1 : whole;
}

/// The number of the character at `at`, which is `bytes` long.
char32_t code_point(std::string_view text, std::size_t at, std::size_t bytes);
void add_code_point(std::string& out, char32_t code);

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii(std::string_view text);
/// Characters of a text.
std::size_t characters(std::string_view text);
/// Where the character of this number begins; the text's size if it has fewer.
std::size_t place_of(std::string_view text, std::size_t character);

/// Text with \r\n and \r as \n.
std::string with_newlines(std::string_view text);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/python_text.ipp"
#endif
