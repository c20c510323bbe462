#pragma once

#include <array>
#include <charconv>
#include <chrono>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/jinja/day.hpp"

namespace lora::jinja {

LORA_INLINE std::optional<std::string> format_day(std::string_view day, std::string_view format, std::string& problem) {
  constexpr std::array<std::string_view, 12> months = {"January",   "February", "March",    "April",
                                                       "May",       "June",     "July",     "August",
                                                       "September", "October",  "November", "December"};
  constexpr std::array<std::string_view, 7> days = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                    "Thursday", "Friday", "Saturday"};
  const auto number = [&](std::size_t at, std::size_t size) {
    int read = 0;
    std::from_chars(day.data() + at, day.data() + at + size, read);
    return read;
  };
  const int year = number(0, 4), month = number(5, 2), of_month = number(8, 2);
  const std::chrono::year in_year(year);
  const std::chrono::sys_days date = in_year / month / of_month, first = in_year / 1 / 1;
  const unsigned week_day = std::chrono::weekday(date).c_encoding();
  const auto of_year = static_cast<int>((date - first).count() + 1);
  const auto digits = [](int value, int width, bool padded) {
    std::string text = concat(value);
    while (padded && static_cast<int>(text.size()) < width) text.insert(0, 1, '0');
    return text;
  };
  std::string text;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      text += format[at];
      continue;
    }
    const bool bare = at + 1 < format.size() && format[at + 1] == '-';
    if (bare) ++at;
    const char letter = ++at < format.size() ? format[at] : '\0';
    const std::string_view month_name = months[static_cast<std::size_t>(month - 1)];
    const std::string_view day_name = days[week_day];
    if (letter == 'Y' && !bare)
      text += digits(year, 4, false);
    else if (letter == 'y')
      text += digits(year % 100, 2, !bare);
    else if (letter == 'm')
      text += digits(month, 2, !bare);
    else if (letter == 'd')
      text += digits(of_month, 2, !bare);
    else if (letter == 'j')
      text += digits(of_year, 3, !bare);
    else if (letter == 'B' && !bare)
      text += month_name;
    else if (letter == 'b' && !bare)
      text += month_name.substr(0, 3);
    else if (letter == 'A' && !bare)
      text += day_name;
    else if (letter == 'a' && !bare)
      text += day_name.substr(0, 3);
    else if (letter == '%' && !bare)
      text += '%';
    else {
      problem = concat("strftime_now with ", bare ? "%-" : "%", letter == '\0' ? ' ' : letter,
                       "; supported are Y y m d j B b A a of a day: a time of day would differ from run to run");
      return std::nullopt;
    }
  }
  return text;
}

}  // namespace lora::jinja
