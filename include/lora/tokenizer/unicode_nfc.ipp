#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/unicode_nfc.hpp"
#include "lora/tokenizer/unicode_tables.hpp"

namespace lora::tokenizer::unicode::detail {

LORA_INLINE std::uint8_t combining_class(char32_t c) {
  if (c < 0x300) return 0;
  static const std::vector<CombiningClass> sorted = [] {
    std::vector<CombiningClass> all(std::begin(combining_classes), std::end(combining_classes));
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return all;
  }();
  const auto after =
      std::upper_bound(sorted.begin(), sorted.end(), c, [](char32_t x, const auto& r) { return x < r.first; });
  return after != sorted.begin() && c <= std::prev(after)->last ? std::prev(after)->value : std::uint8_t{0};
}

inline constexpr char32_t syllable_count = leading_count * vowel_count * trailing_count;

/// Calls `take` for each code point of the full canonical decomposition.
template <class Take>
void decompose(char32_t c, Take&& take) {
  if (c - syllable_base < syllable_count) {
    const char32_t index = c - syllable_base;
    take(leading_base + index / (vowel_count * trailing_count));
    take(vowel_base + index / trailing_count % vowel_count);
    if (index % trailing_count != 0) take(trailing_base + index % trailing_count);
    return;
  }
  const auto found = c < 0xC0 ? std::end(decompositions)
                              : std::lower_bound(std::begin(decompositions), std::end(decompositions), c,
                                                 [](const auto& row, char32_t x) { return row.whole < x; });
  if (found == std::end(decompositions) || found->whole != c) return take(c);
  for (const char32_t part : found->parts)
    if (part != 0) take(part);
}

/// The composition of two code points, or 0.
LORA_INLINE char32_t compose(char32_t a, char32_t b) {
  if (a - leading_base < leading_count && b - vowel_base < vowel_count)
    return syllable_base + ((a - leading_base) * vowel_count + (b - vowel_base)) * trailing_count;
  if (a - syllable_base < syllable_count && (a - syllable_base) % trailing_count == 0 && b > trailing_base &&
      b < trailing_base + trailing_count)
    return a + (b - trailing_base);
  if (b < 0x300) return 0;
  const auto key = std::pair(a, b);
  const auto found =
      std::lower_bound(std::begin(compositions), std::end(compositions), key,
                       [](const auto& row, const auto& k) { return std::pair(row.first, row.second) < k; });
  return found != std::end(compositions) && found->first == a && found->second == b ? found->whole : 0;
}

/// Decomposes into canonical order: marks sorted stably by class.
LORA_INLINE std::vector<Unit> decomposed(std::string_view text) {
  std::vector<Unit> units;
  units.reserve(text.size());
  std::size_t marks = 0;  // where the run of marks at the end begins
  const auto sort_marks = [&] {
    std::stable_sort(units.begin() + static_cast<std::ptrdiff_t>(marks), units.end(),
                     [](const Unit& a, const Unit& b) { return a.combining_class < b.combining_class; });
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.bytes;
    int change = 0;
    decompose(c.value, [&](char32_t part) {
      const std::uint8_t value = combining_class(part);
      if (value == 0) {
        if (units.size() - marks > 1) sort_marks();
        marks = units.size() + 1;
      }
      units.push_back({part, change, value});
      change = 1;
    });
  }
  if (marks < units.size()) sort_marks();
  return units;
}

/// In place: a mark joins the last starter unless one of its class or above stands between.
LORA_INLINE void recompose(std::vector<Unit>& units) {
  const std::size_t none = units.size();
  std::size_t starter = none, kept = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Unit unit = units[i];
    if (starter != none) {
      const bool adjacent = starter + 1 == kept;
      const bool blocked = !adjacent && units[kept - 1].combining_class >= unit.combining_class;
      const char32_t whole = blocked ? 0 : compose(units[starter].value, unit.value);
      if (whole != 0) {
        units[starter].value = whole;
        units[starter].change += unit.change - 1;
        continue;
      }
    }
    if (unit.combining_class == 0) starter = kept;
    units[kept++] = unit;
  }
  units.resize(kept);
}

}  // namespace lora::tokenizer::unicode::detail

namespace lora::tokenizer::unicode {

LORA_INLINE bool is_plainly_nfc(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0xCC) return false;
  return true;
}

LORA_INLINE Normalized to_nfc(std::string_view text) {
  std::vector<detail::Unit> units = detail::decomposed(text);
  detail::recompose(units);
  Normalized result;
  result.text.reserve(text.size());
  result.begins.reserve(text.size());
  std::size_t at = 0, begin = 0;
  const auto step = [&] { at += at < text.size() ? code_point_at(text, at).bytes : 0; };
  for (const auto& unit : units) {
    if (unit.change <= 0) {
      begin = at;
      for (int i = unit.change; i <= 0; ++i) step();
    }
    append_utf8(result.text, unit.value);
    result.begins.resize(result.text.size(), begin);
  }
  return result;
}

}  // namespace lora::tokenizer::unicode
