#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lora {

/// The UTF-8 sequence at `at`: the length of a valid code point in `whole` (0 if invalid), else the length of the
/// invalid prefix in `broken`, at least 1.
struct Utf8Step {
  std::uint32_t whole;
  std::uint32_t broken;
};

Utf8Step utf8_step(std::string_view text, std::size_t at);

namespace detail {

/// Two hexadecimal digits for each byte of `value`, the highest first.
inline void append_hex(std::string& text, std::string_view mark, unsigned value, int digits) {
  text += mark;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789ABCDEF"[value >> shift & 0xF];
}

/// Control characters, and invisible characters that a terminal acts on: direction marks, joiners, line separators.
inline bool is_invisible(unsigned c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2060 && c <= 0x2069) || c == 0xFEFF;
}

}  // namespace detail

/// The text, safe to print on a terminal: control and other invisible characters and invalid UTF-8 are escaped as \x1B
/// or \u202E. `lines`: newlines and tabs are kept.
std::string printable(std::string_view text, bool lines = false);

/// The text limited to about `most` bytes: the middle of a longer one is left out.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace lora

#ifndef LORA_COMPILED
#  include "lora/core/printable.ipp"
#endif
