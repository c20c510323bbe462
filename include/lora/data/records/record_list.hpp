#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lora/data/chat/chat_template.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::data {

/// Records that a program makes itself, instead of a file: what a JSON lines file would hold. All of one list are of
/// one kind, and they are checked when they are read, as a file's are.
class RecordList {
 public:
  /// A record as in a file.
  void add(const io::Json& record) { lines_ += io::to_text(record, -1) + "\n"; }

  /// A conversation; `tools`: that its assistant may call.
  void add(std::span<const Message> messages, std::span<const io::Json> tools = {}) {
    io::Json turns = io::Json::array();
    for (const Message& message : messages) {
      io::Json turn = {{"role", message.role}, {"content", message.content}};
      if (message.reasoning) turn["reasoning_content"] = *message.reasoning;
      if (!message.learned) turn["weight"] = 0;
      for (const ToolCall& call : message.tool_calls)
        turn["tool_calls"].push_back(io::Json{{"name", call.name}, {"arguments", call.arguments}});
      turns.push_back(std::move(turn));
    }
    io::Json record = io::json_object({{"messages", std::move(turns)}});
    for (const io::Json& tool : tools) record["tools"].push_back(tool);
    add(record);
  }

  /// A text.
  void add_text(std::string_view text) { add(io::Json{{"text", std::string(text)}}); }

  /// Tokens; `labels` are as long and not shifted, −100 where there is no loss. Without them, every token is learned.
  void add_tokens(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels = {}) {
    if (labels.empty()) labels = ids;
    add(io::Json{{"input_ids", io::Json::array_t(ids.begin(), ids.end())},
                 {"labels", io::Json::array_t(labels.begin(), labels.end())}});
  }

  bool empty() const { return lines_.empty(); }
  /// JSON lines.
  const std::string& text() const { return lines_; }

 private:
  std::string lines_;
};

/// Lists of records by the names that stand for them where a file's path would.
using RecordLists = std::map<std::string, RecordList, std::less<>>;

}  // namespace lora::data
