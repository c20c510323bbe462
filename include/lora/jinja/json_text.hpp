#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lora/jinja/value.hpp"

namespace lora::jinja {

/// How Python's json.dumps writes.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent{};  ///< a line for each value, indented by this for each level
  std::string between = ", ";           ///< values
  std::string behind_key = ": ";
  bool sort_keys = false;
};

/// A value as JSON.
/// Throws   FormatError for what JSON has not
void write_json(Meter& meter, TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/json_text.ipp"
#endif
