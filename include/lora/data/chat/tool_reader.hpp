#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/chat/chat_text.hpp"
#include "lora/data/chat/tool_calls.hpp"
#include "lora/io/formats/json_view.hpp"

namespace lora::data::detail {

/// An array of objects, or a text that holds one.
std::vector<io::Json> read_tools(const io::JsonView& field);

/// Reads the calls of one field, and collects the names of their fields that are not used.
class CallReader {
 public:
  /// `path`: of the calls, in the names of unused fields.
  CallReader(std::string path, std::vector<std::string>& unused) : path_(std::move(path)), unused_(unused) {}

  std::vector<ToolCall> read_all(const io::JsonView& calls);

  /// {"name", "arguments"}, also as "function" of an object, as OpenAI writes them.
  ToolCall read(const io::JsonView& given);

 private:
  static bool is_used(std::string_view field) { return field == "name" || field == "arguments"; }

  static void expect_object(const io::Json& value, const io::JsonView& place);

  // It is written as it is, or quoted: nobody would find later that it is none.
  static void expect_object_text(const std::string& text, const io::JsonView& place);

  std::string path_;
  std::vector<std::string>& unused_;
};

/// What a turn of the role function_call says in LLaMA-Factory's files.
struct FunctionCall {
  std::string thoughts;  ///< what stands before the calls, from <think> to </think>
  std::vector<ToolCall> calls;
};

/// Its value: one call or an array of them as JSON, with thoughts before it at will.
FunctionCall read_function_call(const io::JsonView& value, CallReader reader);

}  // namespace lora::data::detail

#ifndef LORA_COMPILED
#  include "lora/data/chat/tool_reader.ipp"
#endif
