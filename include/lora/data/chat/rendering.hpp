#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lora/data/chat/tool_calls.hpp"
#include "lora/io/formats/json.hpp"

// What templates render, and what they make of it.

namespace lora::data {

/// One turn of a conversation. Roles: system, user, assistant, tool.
struct Message {
  std::string role;
  std::string content;
  std::optional<std::string> reasoning{};  ///< the assistant's reasoning, if the record has it as a separate field
  bool learned = true;                     ///< false for a turn that is marked so, such as by weight 0
  std::vector<ToolCall> tool_calls{};      ///< of an assistant
};

struct RenderOptions {
  bool add_generation_prompt = false;
  bool enable_thinking = true;  ///< false: a generation prompt closes an empty think block
  std::string date{};           ///< YYYY-MM-DD, for templates that print one; empty: the template's own or today's
  std::span<const io::Json> tools{};  ///< that the assistant may call: objects, as the model is to see them
  bool thinking_is_default = false;   ///< a model's own template is not told of enable_thinking
};

/// An assistant's turn in a rendering, in bytes: from where the prompt before it ends to past its end-of-turn token.
struct AnswerSpan {
  std::size_t begin;
  std::size_t end;
};

struct Rendering {
  std::string text;
  std::vector<AnswerSpan> answers{};
};

/// Special tokens of a tokenizer, as texts, which a model's own template may write.
struct SpecialTexts {
  std::string bos{}, eos{}, pad{};  ///< empty: none
  std::vector<std::string> all{};
};

}  // namespace lora::data
