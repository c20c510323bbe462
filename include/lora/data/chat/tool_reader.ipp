#pragma once

#include "lora/core/config.hpp"
#include "lora/data/chat/tool_reader.hpp"

namespace lora::data::detail {

/// JSON that a field of a record holds as a text; of the text, only the part from byte `begin` on.
LORA_INLINE io::Json json_of_text(const io::JsonView& field, std::size_t begin = 0) {
  try {
    return io::parse_json(std::string_view(field.json().get_ref<const std::string&>()).substr(begin), field.name());
  } catch (const FormatError& error) {
    fail<FormatError>(field.where(), ": \"", field.name(),
                      "\" is a text that is no JSON: ", std::string_view(error.what()));
  }
}

/// Finds here, where its place is known, what can't be written later.
LORA_INLINE void expect_writable(const io::Json& value, const io::JsonView& place) {
  try {
    static_cast<void>(python_json(value));
  } catch (const FormatError& error) {
    place.fail(std::string_view(error.what()));
  }
}

LORA_INLINE std::vector<io::Json> read_tools(const io::JsonView& field) {
  const bool is_text = field.json().is_string();
  const io::Json parsed = is_text ? json_of_text(field) : io::Json();
  const io::JsonView tools(is_text ? parsed : field.json(), field.where(), field.name());
  if (!tools.json().is_array())
    fail<FormatError>(field.where(), ": \"", field.name(), "\" must be an array, or a text that holds one");
  std::vector<io::Json> read;
  for (std::size_t i = 0; i < tools.json().size(); ++i) {
    const io::JsonView tool = tools.element(i);
    if (!tool.json().is_object())
      tool.fail("a tool is ", std::string_view(tool.json().type_name()), "; expected an object");
    expect_writable(tool.json(), tool);
    read.push_back(tool.json());
  }
  return read;
}

LORA_INLINE std::vector<ToolCall> CallReader::read_all(const io::JsonView& calls) {
  std::vector<ToolCall> read;
  for (std::size_t i = 0; i < calls.json().size(); ++i) read.push_back(this->read(calls.element(i)));
  return read;
}

LORA_INLINE ToolCall CallReader::read(const io::JsonView& given) {
  expect_object(given.json(), given);
  const io::Json* function = io::json_find(given.json(), "function");
  const io::Json& call = function != nullptr ? *function : given.json();
  expect_object(call, given);
  if (const io::Json* type = io::json_find(given.json(), "type"); type != nullptr && !io::json_is(*type, "function"))
    given.fail("a tool call's type is ", io::shown(*type), "; expected \"function\"");
  for (const auto& [field, value] : io::json_fields(given.json()))
    if (field != "type" && field != "function" && (function != nullptr || !is_used(field)))
      unused_.push_back(path_ + field);
  if (function != nullptr)
    for (const auto& [field, value] : io::json_fields(call))
      if (!is_used(field)) unused_.push_back(path_ + field);
  const io::Json* name = io::json_find(call, "name");
  const io::Json* arguments = io::json_find(call, "arguments");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty())
    given.fail("a tool call has no name");
  if (arguments == nullptr || !(arguments->is_object() || arguments->is_string()))
    given.fail("the call of ", name->get_ref<const std::string&>(),
               " has no arguments; expected an object, or a text that holds one");
  if (arguments->is_string()) expect_object_text(arguments->get_ref<const std::string&>(), given);
  expect_writable(*arguments, given);
  return {name->get<std::string>(), *arguments};
}

LORA_INLINE void CallReader::expect_object(const io::Json& value, const io::JsonView& place) {
  if (!value.is_object())
    place.fail("a tool call is ", std::string_view(value.type_name()), "; expected an object with name and arguments");
}

LORA_INLINE void CallReader::expect_object_text(const std::string& text, const io::JsonView& place) {
  try {
    if (io::parse_json(text, "arguments").is_object()) return;
  } catch (const FormatError& error) {
    place.fail("arguments are a text that is no JSON: ", std::string_view(error.what()));
  }
  place.fail("arguments are a text that holds no object");
}

LORA_INLINE FunctionCall read_function_call(const io::JsonView& value, CallReader reader) {
  constexpr std::string_view open = "<think>", close = "</think>";
  const std::string text = value.as<std::string>();
  const std::size_t first = text.size() - strip_left(text).size();
  const std::size_t end = std::string_view(text).substr(first).starts_with(open) ? text.find(close) : text.npos;
  const std::size_t begin = end == text.npos ? 0 : end + close.size();
  const io::Json parsed = json_of_text(value, begin);
  const io::JsonView calls(parsed, value.where(), value.name());
  FunctionCall read{begin == 0 ? std::string() : text.substr(first, begin - first), {}};
  if (parsed.is_array()) {
    read.calls = reader.read_all(calls);
  } else {
    read.calls.push_back(reader.read(calls));
  }
  if (read.calls.empty()) calls.fail("a turn of function_call without a call");
  return read;
}

}  // namespace lora::data::detail
