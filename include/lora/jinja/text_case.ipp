#pragma once

#include <string>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/jinja/python_text.hpp"
#include "lora/jinja/text_case.hpp"

namespace lora::jinja::detail {

/// `is_first(before)`: whether the letter behind this character becomes upper case; 0 is before the first.
template <class IsFirst>
Value in_case(Meter& meter, std::string_view text, IsFirst is_first) {
  if (!is_ascii(text)) meter.fail("upper and lower case of characters beyond ASCII are not supported");
  std::string out;
  char before = '\0';
  for (const char c : text) {
    out += is_first(before) ? to_upper(c) : ascii_lower(c);
    before = c;
  }
  return Value::of(&meter, std::move(out));
}

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE Value upper(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [](char) { return true; });
}

LORA_INLINE Value lower(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [](char) { return false; });
}

LORA_INLINE Value capitalized(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [first = true](char) mutable { return std::exchange(first, false); });
}

LORA_INLINE Value title(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text,
                         [](char before) { return !detail::is_upper(before) && !detail::is_lower(before); });
}

LORA_INLINE Value titled_words(Meter& meter, std::string_view text) {
  return detail::in_case(meter, text, [](char before) {
    return before == '\0' || std::string_view("-({[<").find(before) != std::string_view::npos ||
           white_space_at(std::string_view(&before, 1), 0) > 0;
  });
}

}  // namespace lora::jinja
