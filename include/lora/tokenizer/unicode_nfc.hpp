#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer::unicode {

/// A normalized text and, for each byte of it, the offset of the corresponding code point in the original.
struct Normalized {
  std::string text;
  std::vector<std::size_t> begins;
};

namespace detail {

/// A code point on its way, and how many more (above 0: it is new) or fewer (it swallowed some) there are after it.
struct Unit {
  char32_t value;
  int change;
  std::uint8_t combining_class;
};

std::uint8_t combining_class(char32_t c);

// Hangul: syllable = (leading · 21 + vowel) · 28 + trailing, from U+AC00.
inline constexpr char32_t syllable_base = 0xAC00, leading_base = 0x1100, vowel_base = 0x1161, trailing_base = 0x11A7;
inline constexpr char32_t leading_count = 19, vowel_count = 21, trailing_count = 28;

}  // namespace detail

/// Whether the text is certainly in NFC: nothing below U+0300 changes.
bool is_plainly_nfc(std::string_view text);

/// Normalizes to NFC, with the tables of the `tokenizers` library. The text must be valid UTF-8.
/// Offsets: a composed code point has the offset of its first part, an inserted one that of the code point before it;
/// reordered marks count in their new order.
Normalized to_nfc(std::string_view text);

}  // namespace lora::tokenizer::unicode

#ifndef LORA_COMPILED
#  include "lora/tokenizer/unicode_nfc.ipp"
#endif
