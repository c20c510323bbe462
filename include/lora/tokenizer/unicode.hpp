#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lora/core/printable.hpp"

namespace lora::tokenizer::unicode {

/// A code point and how many bytes of UTF-8 it takes.
struct CodePoint {
  char32_t value;
  std::uint32_t bytes;
};

/// The code point that begins at `at`. The text must be valid UTF-8 and longer than `at`.
CodePoint code_point_at(std::string_view text, std::size_t at);

/// The code point that ends before `end`, which is above 0.
CodePoint code_point_before(std::string_view text, std::size_t end);

void append_utf8(std::string& text, char32_t c);

using lora::utf8_step;
using lora::Utf8Step;

/// The first position that is not valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

/// Makes a text valid UTF-8: each maximal invalid prefix of a code point becomes one U+FFFD.
std::string replace_invalid_utf8(std::string text);

/// Classes of a code point, as a bit set.
enum Class : std::uint8_t { letter = 1, number = 2, space = 4, digit = 8, word = 16 };

/// The classes of every code point, in blocks of 256; equal blocks are stored once.
class Classes {
 public:
  static const Classes& instance();

  std::uint8_t operator()(char32_t c) const { return blocks_[block_of_[c >> 8] * std::size_t{256} + (c & 0xFF)]; }

 private:
  Classes();

  std::array<std::uint16_t, 0x1100> block_of_{};
  std::unique_ptr<std::uint8_t[]> blocks_;
};

}  // namespace lora::tokenizer::unicode

#ifndef LORA_COMPILED
#  include "lora/tokenizer/unicode.ipp"
#endif
