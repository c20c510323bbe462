#pragma once

#include "lora/core/config.hpp"
#include "lora/core/printable.hpp"

namespace lora {

LORA_INLINE Utf8Step utf8_step(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[at + i])) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, 0};
  const std::uint32_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  // The second byte's range keeps out overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (length == 0 || byte(1) < low || byte(1) > high) return {0, 1};
  for (std::uint32_t i = 2; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return {0, i};
  return {length, 0};
}

LORA_INLINE std::string printable(std::string_view text, bool lines) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[at + i])); };
    const Utf8Step step = utf8_step(text, at);
    if (step.whole == 0) {
      for (std::uint32_t i = 0; i < step.broken; ++i) detail::append_hex(result, "\\x", byte(i), 2);
      at += step.broken;
      continue;
    }
    const unsigned c = step.whole == 1   ? byte(0)
                       : step.whole == 2 ? (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F)
                       : step.whole == 3 ? (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)
                                         : 0x10000;
    if (!detail::is_invisible(c) || (lines && (c == '\n' || c == '\t'))) {
      result.append(text, at, step.whole);
    } else if (c == '\n' || c == '\t' || c == '\r') {
      result += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else if (c < 0x80) {
      detail::append_hex(result, "\\x", c, 2);
    } else {
      detail::append_hex(result, "\\u", c, 4);
    }
    at += step.whole;
  }
  return result;
}

LORA_INLINE std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t head = most * 3 / 4, tail = text.size() - most / 4;
  const auto within = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  while (head > 0 && within(head)) --head;
  while (tail < text.size() && within(tail)) ++tail;
  return std::string(text.substr(0, head)) + " ... " + std::string(text.substr(tail));
}

}  // namespace lora
