#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/chat/chat_template.hpp"
#include "lora/data/chat/tool_calls.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::data {

/// One record of a data file: a conversation, a text, or tokens.
struct Sample {
  enum class Kind { messages, text, tokens };

  Kind kind = Kind::messages;
  std::vector<Message> messages{};
  std::vector<io::Json> tools{};  ///< that the assistant may call
  std::string text{};
  std::vector<std::int32_t> tokens{};
  std::vector<std::int32_t> labels{};  ///< of tokens: same length, ignore_index without loss, not shifted
  std::string where{};                 ///< file:line, for errors
  std::optional<std::string> label{};  ///< of its class, where a field was asked for
  bool learned = true;                 ///< false for a record that is marked so, such as by weight 0
  bool unanswered = false;             ///< left out because its answer or text is empty
  Index record = 0;                    ///< index in the data set

  /// The turns before the last answer.
  std::vector<Message> question() const {
    std::vector<Message> turns = messages;
    while (!turns.empty() && turns.back().role == "assistant") turns.pop_back();
    return turns;
  }
  /// The content of the turn that the last answer answers; empty of a record without turns.
  std::string prompt() const {
    const std::vector<Message> turns = question();
    return turns.empty() ? "" : turns.back().content;
  }
  /// The content of the last turn, with its tool calls, if it is an assistant's, else empty. `quotes_texts`: as
  /// ChatTemplate's of that name.
  std::string answer(bool quotes_texts = false) const {
    if (messages.empty() || messages.back().role != "assistant") return {};
    const Message& last = messages.back();
    return with_calls(last.content, !last.content.empty(), last.tool_calls, quotes_texts);
  }
};

}  // namespace lora::data
