#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/jinja/python_text.hpp"

namespace lora::data {

/// A call of a function by an assistant.
struct ToolCall {
  std::string name;
  io::Json arguments;  ///< an object, or a text that holds one
};

/// JSON as Python's json.dumps(value, ensure_ascii=False) writes it, which is `tojson` in transformers' templates.
/// Throws   FormatError for numbers from 2⁶³ on that are no 64-bit integers: their digits are not known
std::string python_json(const io::Json& value);

/// The content of an assistant's turn and its calls, as Qwen's templates write them. `quotes_texts`: whether arguments
/// that are a text are written as a JSON string, rather than as they are.
std::string with_calls(std::string content, bool has_content, const std::vector<ToolCall>& calls, bool quotes_texts);

/// What Qwen's templates say of the tools that an assistant may call.
std::string tools_text(std::span<const io::Json> tools);

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/chat/tool_calls.ipp"
#endif
