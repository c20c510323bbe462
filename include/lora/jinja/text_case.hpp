#pragma once

#include <string_view>

#include "lora/jinja/value.hpp"

// Upper and lower case, of ASCII: of other letters it would take Unicode's tables, and a text that has some is refused.

namespace lora::jinja {

namespace detail {

inline bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
inline char to_upper(char c) { return is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace detail

/// Whether a text has, beside ASCII, only characters that are no letters with a case, nor digits: punctuation, and
/// those of Chinese, Japanese and Korean texts.
bool has_known_case(std::string_view text);

Value upper(Meter& meter, std::string_view text);
Value lower(Meter& meter, std::string_view text);
/// The first letter upper case, the others lower.
Value capitalized(Meter& meter, std::string_view text);
/// The same of each run of letters, as Python's str.title has it.
Value title(Meter& meter, std::string_view text);
/// The same of each word, as Jinja's filter title has it.
Value titled_words(Meter& meter, std::string_view text);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/text_case.ipp"
#endif
