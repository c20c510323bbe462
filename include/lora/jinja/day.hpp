#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lora::jinja {

/// A day, YYYY-MM-DD, as Python's strftime writes it in English. Nothing if the format has the time of day, or what is
/// not supported; `problem` then says so.
std::optional<std::string> format_day(std::string_view day, std::string_view format, std::string& problem);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/day.ipp"
#endif
