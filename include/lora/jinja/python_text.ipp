#pragma once

#include "lora/core/config.hpp"
#include "lora/jinja/python_text.hpp"

namespace lora::jinja {

LORA_INLINE std::size_t white_space_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = byte(at);
  if ((a >= 9 && a <= 13) || (a >= 28 && a <= 32)) return 1;
  if (a == 0xC2) return byte(at + 1) == 0x85 || byte(at + 1) == 0xA0 ? 2 : 0;
  const unsigned b = byte(at + 1), c = byte(at + 2);
  if (a < 0xE1 || a > 0xE3 || (b & 0xC0u) != 0x80u || (c & 0xC0u) != 0x80u) return 0;
  const unsigned code = (a & 0xFu) << 12 | (b & 0x3Fu) << 6 | (c & 0x3Fu);
  const bool white = code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
                     code == 0x202F || code == 0x205F || code == 0x3000;
  return white ? 3 : 0;
}

LORA_INLINE std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0u) == 0x80u) --last;
    if (white_space_at(text, last) != text.size() - last) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

LORA_INLINE std::string_view strip_left(std::string_view text) {
  while (const std::size_t width = white_space_at(text, 0)) text.remove_prefix(width);
  return text;
}

LORA_INLINE std::string python_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[400];
  const auto written = [&](std::chars_format format) {
    return std::string(digits, std::to_chars(digits, digits + sizeof digits, value, format).ptr);
  };
  const std::string scientific = written(std::chars_format::scientific);
  const std::size_t mark = scientific.find('e');
  int exponent = 0;
  const std::size_t sign = scientific[mark + 1] == '+' ? 1 : 0;
  std::from_chars(scientific.data() + mark + 1 + sign, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed = written(std::chars_format::fixed);
  return fixed.find('.') == fixed.npos ? fixed + ".0" : fixed;
}

LORA_INLINE char32_t code_point(std::string_view text, std::size_t at, std::size_t bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (bytes) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

LORA_INLINE void add_code_point(std::string& out, char32_t code) {
  const auto add = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
  }
  add(0x80 | (code & 0x3F));
}

}  // namespace lora::jinja

namespace lora::jinja::detail {

/// `digits` hexadecimal digits, the highest first.
LORA_INLINE void add_hex(std::string& out, std::string_view mark, char32_t code, int digits) {
  out += mark;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[code >> shift & 0xF];
}

struct Range {
  char32_t first, last;
};

/// Whether Python calls a character beyond ASCII printable.
LORA_INLINE bool is_printable(char32_t code) {
  // Blocks without a gap that is free for characters to come; what a version of Unicode adds elsewhere is not known.
  constexpr Range printable[] = {
      {0xA1, 0xAC},       {0xAE, 0x377},      {0x37A, 0x37F},     {0x384, 0x38A},     {0x38E, 0x3A1},
      {0x3A3, 0x52F},     {0x5D0, 0x5EA},     {0x620, 0x6DC},     {0x904, 0x939},     {0xE01, 0xE3A},
      {0x10D0, 0x10FF},   {0x1E00, 0x1F15},   {0x2010, 0x2027},   {0x2030, 0x205E},   {0x2070, 0x2071},
      {0x2074, 0x208E},   {0x20A0, 0x20BF},   {0x2100, 0x218B},   {0x2190, 0x2426},   {0x2460, 0x2B73},
      {0x3001, 0x303F},   {0x3041, 0x3096},   {0x3099, 0x30FF},   {0x3105, 0x312F},   {0x3131, 0x318E},
      {0x3220, 0x4DBF},   {0x4E00, 0x9FFC},   {0xAC00, 0xD7A3},   {0xFF01, 0xFFBE},   {0x1F300, 0x1F5FF},
      {0x1F600, 0x1F64F}, {0x1F680, 0x1F6C5}, {0x1F900, 0x1F9FF}, {0x20000, 0x2A6DD}, {0xE0100, 0xE01EF}};
  constexpr Range others[] = {{0x80, 0xA0},       {0xAD, 0xAD},       {0x2000, 0x200F}, {0x2028, 0x202F},
                              {0x205F, 0x206F},   {0x3000, 0x3000},   {0xD800, 0xF8FF}, {0xFEFF, 0xFEFF},
                              {0xE0000, 0xE00FF}, {0xE01F0, 0x10FFFF}};
  for (const Range& range : printable)
    if (code >= range.first && code <= range.last) return true;
  for (const Range& range : others)
    if (code >= range.first && code <= range.last) return false;
  std::string name;
  add_hex(name, "U+", code, 6);
  fail<FormatError>("a text with ", name, " in a list or mapping that is written as Python writes it: whether it ",
                    "escapes the character is not known");
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE void add_json_text(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    constexpr std::string_view plain = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
    if (const auto place = plain.find(c); place != plain.npos) {
      out += {'\\', letters[place]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      detail::add_hex(out, "\\u", static_cast<unsigned char>(c), 4);
    } else if (ascii && static_cast<unsigned char>(c) >= 0x7F) {
      const std::size_t bytes = bytes_at(text, at);
      const char32_t code = code_point(text, at, bytes);
      if (code < 0x10000) {
        detail::add_hex(out, "\\u", code, 4);
      } else {
        detail::add_hex(out, "\\u", 0xD800 + ((code - 0x10000) >> 10), 4);
        detail::add_hex(out, "\\u", 0xDC00 + ((code - 0x10000) & 0x3FF), 4);
      }
      at += bytes;
      continue;
    } else {
      out += c;
    }
    ++at;
  }
  out += '"';
}

LORA_INLINE void add_python_text(std::string& out, std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = bytes_at(text, at);
    const char32_t code = code_point(text, at, bytes);
    if (code == '\\' || code == static_cast<unsigned char>(quote)) {
      out += {'\\', text[at]};
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (code < 0x20 || code == 0x7F) {
      detail::add_hex(out, "\\x", code, 2);
    } else if (code < 0x7F || detail::is_printable(code)) {
      out += text.substr(at, bytes);
    } else if (code < 0x100) {
      detail::add_hex(out, "\\x", code, 2);
    } else if (code < 0x10000) {
      detail::add_hex(out, "\\u", code, 4);
    } else {
      detail::add_hex(out, "\\U", code, 8);
    }
    at += bytes;
  }
  out += quote;
}

LORA_INLINE bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

LORA_INLINE std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += bytes_at(text, at)) ++count;
  return count;
}

LORA_INLINE std::size_t place_of(std::string_view text, std::size_t character) {
  std::size_t at = 0;
  while (character > 0 && at < text.size()) {
    at += bytes_at(text, at);
    --character;
  }
  return at;
}

LORA_INLINE std::string with_newlines(std::string_view text) {
  std::string lines;
  lines.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r')
      lines += text[i];
    else if (!text.substr(i + 1).starts_with('\n'))
      lines += '\n';
  return lines;
}

}  // namespace lora::jinja
