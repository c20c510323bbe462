#pragma once

#include "lora/core/config.hpp"
#include "lora/data/chat/chat_text.hpp"
#include "lora/jinja/day.hpp"

namespace lora::data::detail {

LORA_INLINE std::string_view strip_newlines(std::string_view text, bool left, bool right) {
  while (left && text.starts_with('\n')) text.remove_prefix(1);
  while (right && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

LORA_INLINE std::string without(std::string text, std::string_view part) {
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at)) text.erase(at, part.size());
  return text;
}

/// The inside of a tag, which ends with `closing`, with one space for any white space but that of texts; `rest` goes on
/// behind the tag. Nothing if it has no end. `dash`: whether it ends with one.
LORA_INLINE std::optional<std::string> inside_of_tag(std::string_view& rest, std::string_view closing, bool& dash) {
  std::string inside;
  for (std::size_t at = 0; at < rest.size(); ++at) {
    const std::string_view here = rest.substr(at);
    dash = here.starts_with('-') && here.substr(1).starts_with(closing);
    if (dash || here.starts_with(closing)) {
      rest.remove_prefix(at + closing.size() + (dash ? 1 : 0));
      if (inside.ends_with(' ')) inside.pop_back();
      return inside;
    }
    if (here[0] == ' ' || (here[0] >= '\t' && here[0] <= '\r')) {
      if (!inside.empty() && inside.back() != ' ') inside += ' ';
      continue;
    }
    const std::size_t begin = at;
    if (here[0] == '\'' || here[0] == '"')
      for (++at; at < rest.size() && rest[at] != here[0]; ++at)
        if (rest[at] == '\\') ++at;
    inside += rest.substr(begin, at - begin + 1);
  }
  return std::nullopt;
}

LORA_INLINE std::string significant_text(std::string_view text) {
  std::string lines = jinja::with_newlines(text);
  if (lines.ends_with('\n')) lines.pop_back();
  std::string result;
  std::string_view rest = lines;
  char behind = 0;  // what the tag before was: %, { or #, or - if it ended with one
  for (bool first = true;; first = false) {
    std::size_t tag = 0;
    while (tag < rest.size() && !(rest[tag] == '{' && tag + 1 < rest.size() &&
                                  (rest[tag + 1] == '%' || rest[tag + 1] == '{' || rest[tag + 1] == '#')))
      ++tag;
    std::string_view between = rest.substr(0, tag);
    bool begins_line = first;
    if (behind == '-') between = strip_left(between);
    if ((behind == '%' || behind == '#') && between.starts_with('\n')) {
      between.remove_prefix(1);
      begins_line = true;
    }
    if (tag == rest.size()) return result += between;
    const char kind = rest[tag + 1];
    rest.remove_prefix(tag + 2);
    const char sign = rest.starts_with('-') || rest.starts_with('+') ? rest[0] : '\0';
    if (sign != '\0') rest.remove_prefix(1);
    if (sign == '-') {
      between = strip_right(between);
    } else if (sign == '\0' && kind != '{') {
      const std::size_t line = between.rfind('\n') + 1;
      if ((line > 0 || begins_line) && strip_left(between.substr(line)).empty()) between = between.substr(0, line);
    }
    result += between;
    const std::string closing{kind == '{' ? '}' : kind, '}'};
    bool dash = false;
    if (kind == '#') {
      const std::size_t end = rest.find(closing);
      if (end == rest.npos) return {};
      dash = rest.substr(0, end).ends_with('-');
      rest.remove_prefix(end + closing.size());
    } else {
      const auto inside = inside_of_tag(rest, closing, dash);
      if (!inside) return {};
      result += concat("{", kind, " ", *inside, " ", closing);
    }
    behind = dash ? '-' : kind;
  }
}

LORA_INLINE std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &local)};
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE bool is_date(std::string_view iso) {
  if (iso.size() != 10 || iso[4] != '-' || iso[7] != '-') return false;
  int numbers[3] = {};  // year, month, day
  std::size_t at = 0;
  for (const char c : iso) {
    if (c == '-') {
      ++at;
    } else if (c >= '0' && c <= '9' && at < 3) {
      numbers[at] = numbers[at] * 10 + (c - '0');
    } else {
      return false;
    }
  }
  const auto [year, month, day] = numbers;
  if (month < 1 || month > 12 || day < 1) return false;
  if (month != 2) return day <= (month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31);
  return day <= ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28);
}

}  // namespace lora::data

namespace lora::data::detail {

LORA_INLINE std::string written_date(std::string_view iso, bool whole_month) {
  if (!is_date(iso)) fail<ConfigError>("date is ", iso, "; expected a day of the calendar as YYYY-MM-DD");
  std::string problem;  // that of formats with the time of day
  const std::string month = *jinja::format_day(iso, whole_month ? "%B" : "%b", problem);
  return concat(iso.substr(8, 2), " ", std::string_view(month), " ", iso.substr(0, 4));
}

}  // namespace lora::data::detail
