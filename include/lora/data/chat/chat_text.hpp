#pragma once

#include <ctime>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/jinja/python_text.hpp"

namespace lora::data {

namespace detail {

using jinja::strip_left;
using jinja::strip_right;

}  // namespace detail

using jinja::strip;

namespace detail {

std::string_view strip_newlines(std::string_view text, bool left, bool right);

std::string without(std::string text, std::string_view part);

/// A template's text with no white space but what it writes: between tags what Jinja leaves of it with trim_blocks and
/// lstrip_blocks, as transformers has them, in tags one space for any but that of texts, and no comments. Empty if a
/// tag has no end.
std::string significant_text(std::string_view text);

std::string today();

}  // namespace detail

/// Whether a text is a valid date, YYYY-MM-DD.
bool is_date(std::string_view iso);

namespace detail {

/// "2024-07-26" as "26 Jul 2024" or "26 July 2024".
std::string written_date(std::string_view iso, bool whole_month);

}  // namespace detail
}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/chat/chat_text.ipp"
#endif
