#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.hpp"
#include "lora/data/chat/chat_template.hpp"
#include "lora/data/chat/chat_template_table.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace fuzz_chat_template {

namespace {

using namespace lora::data;

/// A line of options (a date, the word plain) and then turns, each ended by a zero byte: a role's first letter (without
/// one it is a user's), the content and, after the byte 1, what the assistant thought.
struct Conversation {
  RenderOptions options{};
  std::vector<Message> messages{};

  explicit Conversation(std::string_view input) {
    const auto head = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(head.size() + 1, input.size()));
    options.enable_thinking = head.find("plain") == head.npos;
    options.date = head.starts_with("20") ? head.substr(0, 10) : "2024-07-26";
    while (!input.empty() && messages.size() < 64) {
      const auto turn = input.substr(0, input.find('\0'));
      input.remove_prefix(std::min(turn.size() + 1, input.size()));
      if (turn.empty()) continue;
      Message message{"user", std::string(turn)};
      for (const std::string_view role : {"system", "user", "assistant", "tool", "nobody"}) {
        if (turn[0] != role[0]) continue;
        const auto thought = turn.find('\1');
        message = {std::string(role), std::string(turn.substr(1, thought == turn.npos ? turn.npos : thought - 1))};
        if (thought != turn.npos) message.reasoning = turn.substr(thought + 1);
      }
      messages.push_back(std::move(message));
    }
  }
};

void check(const ChatTemplate& chat, const Conversation& conversation, bool valid) {
  RenderOptions options = conversation.options;
  const Rendering rendering = chat.render(conversation.messages, options);
  const std::string_view text = rendering.text;
  std::size_t end = 0;
  for (const AnswerSpan& answer : rendering.answers) {
    if (answer.begin < end || answer.end < answer.begin || answer.end > text.size()) __builtin_trap();
    end = answer.end;
    if (!text.substr(answer.begin, end - answer.begin).ends_with(chat.end_of_turn())) __builtin_trap();
  }
  const auto answers = std::count_if(conversation.messages.begin(), conversation.messages.end(),
                                     [](const Message& message) { return message.role == "assistant"; });
  if (static_cast<std::size_t>(answers) != rendering.answers.size()) __builtin_trap();
  if (valid && lora::tokenizer::unicode::find_invalid_utf8(text) != text.npos) __builtin_trap();
  options.add_generation_prompt = true;
  if (!chat.render(conversation.messages, options).text.starts_with(text)) __builtin_trap();
}

}  // namespace

/// A model's template text, and a conversation for every template.
LORA_FUZZ_TARGET(chat_template, data, size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    (void)ChatTemplate::find(input);
  } catch (const lora::Error&) {}
  const Conversation conversation(input);
  const bool valid = lora::tokenizer::unicode::find_invalid_utf8(input) == input.npos;
  for (const auto& entry : detail::template_entries) {
    try {
      check(ChatTemplate::named(entry.name, "<|end|>"), conversation, valid);
    } catch (const lora::Error&) {}
  }
}

}  // namespace fuzz_chat_template
