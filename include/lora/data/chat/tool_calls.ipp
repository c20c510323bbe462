#pragma once

#include "lora/core/config.hpp"
#include "lora/data/chat/tool_calls.hpp"

namespace lora::data::detail {

LORA_INLINE void add_python_json(std::string& out, const io::Json& value) {
  if (value.is_object()) {
    out += '{';
    bool first = true;
    for (const auto& [name, field] : io::json_fields(value)) {
      if (!first) out += ", ";
      first = false;
      jinja::add_json_text(out, name);
      out += ": ";
      add_python_json(out, field);
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += ", ";
      add_python_json(out, value[i]);
    }
    out += ']';
  } else if (value.is_string()) {
    jinja::add_json_text(out, value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    // The parser reads integers past 64 bits as such numbers; Python would keep their digits.
    const double number = value.get<double>();
    if (number >= 0x1p64 || number <= -0x1p63)
      fail<FormatError>("the number ", jinja::python_number(number), "; expected one above -2^63 and below 2^64");
    out += jinja::python_number(number);
  } else {
    out += io::to_text(value, -1);
  }
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE std::string python_json(const io::Json& value) {
  std::string text;
  detail::add_python_json(text, value);
  return text;
}

LORA_INLINE std::string with_calls(std::string content, bool has_content, const std::vector<ToolCall>& calls,
                                   bool quotes_texts) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const io::Json& arguments = calls[i].arguments;
    const bool as_it_is = arguments.is_string() && !quotes_texts;
    content += concat(i > 0 || has_content ? "\n" : "", "<tool_call>\n{\"name\": \"", calls[i].name,
                      "\", \"arguments\": ", as_it_is ? arguments.get<std::string>() : python_json(arguments),
                      "}\n</tool_call>");
  }
  return content;
}

LORA_INLINE std::string tools_text(std::span<const io::Json> tools) {
  std::string text =
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
      "signatures within <tools></tools> XML tags:\n<tools>";
  for (const io::Json& tool : tools) text += "\n" + python_json(tool);
  return text +
         "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
         "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
         "<args-json-object>}\n</tool_call>";
}

}  // namespace lora::data
