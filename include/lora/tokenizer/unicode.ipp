#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/unicode.hpp"
#include "lora/tokenizer/unicode_tables.hpp"

namespace lora::tokenizer::unicode {

LORA_INLINE CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

LORA_INLINE CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return code_point_at(text, at);
}

LORA_INLINE void append_utf8(std::string& text, char32_t c) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  if (c < 0x80) {
    text += byte(c);
  } else if (c < 0x800) {
    text += {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    text += {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  } else {
    text +=
        {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  }
}

LORA_INLINE std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text, at);
    if (step.whole == 0) return at;
    at += step.whole;
  }
  return std::string_view::npos;
}

LORA_INLINE std::string replace_invalid_utf8(std::string text) {
  std::size_t at = find_invalid_utf8(text);
  if (at == std::string::npos) return text;
  std::string valid = text.substr(0, at);
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (step.whole > 0) {
      valid.append(text, at, step.whole);
      at += step.whole;
    } else {
      append_utf8(valid, 0xFFFD);
      at += step.broken;
    }
  }
  return valid;
}

LORA_INLINE const Classes& Classes::instance() {
  static const Classes classes;
  return classes;
}

LORA_INLINE Classes::Classes() {
  std::string all(0x110000, '\0');
  const auto mark = [&](std::span<const CodePointRange> ranges, Class bit) {
    for (const auto& range : ranges)
      for (char32_t c = range.first; c <= range.last; ++c) all[c] = static_cast<char>(all[c] | bit);
  };
  mark(letters, letter);
  mark(numbers, number);
  mark(spaces, space);
  mark(digits, digit);
  mark(word_characters, word);
  std::size_t count = 0;
  std::string kept;
  for (std::size_t block = 0; block < block_of_.size(); ++block) {
    const auto bytes = std::string_view(all).substr(block * 256, 256);
    std::size_t same = 0;
    while (same < count && std::string_view(kept).substr(same * 256, 256) != bytes) ++same;
    if (same == count) {
      kept += bytes;
      ++count;
    }
    block_of_[block] = static_cast<std::uint16_t>(same);
  }
  blocks_ = std::make_unique<std::uint8_t[]>(kept.size());
  std::memcpy(blocks_.get(), kept.data(), kept.size());
}

}  // namespace lora::tokenizer::unicode
