#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/jinja/builtins.hpp"

namespace lora::jinja {

/// The method of that name of a text, list or mapping, not yet called; nothing if the value has no attribute of that
/// name in Python. Throws   FormatError for one that it has, but which is not supported
std::optional<Value> method_of(Meter& meter, const Value& object, std::string_view name);

/// Whether anything has a method of that name that can be called, or that Jinja's sandbox keeps from being called.
bool is_method(std::string_view name);

/// Calls a method. `names`: those of the last arguments.
Value call_method(Meter& meter, const Function& method, std::vector<Value> arguments,
                  std::span<const std::string> names);

namespace detail {

/// Throws   FormatError for an argument that is no text
const std::string& text_argument(Meter& meter, const Value& value, std::string_view name);

/// Without characters at its ends that are among these; white space if they are absent or none.
std::string_view stripped(Meter& meter, std::string_view text, const Value& characters, bool left, bool right);

/// With at most `most` of the places replaced; below 0: all.
Value text_replace(Meter& meter, std::string_view text, const Value& from, const Value& to, std::int64_t most);

/// Lines, as str.splitlines has them.
std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends);

}  // namespace detail

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/methods.ipp"
#endif
