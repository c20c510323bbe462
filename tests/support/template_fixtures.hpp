#pragma once

#include <string>
#include <vector>

#include "lora/data/chat/chat_template.hpp"
#include "lora/io/formats/json.hpp"
#include "support/tokenizer_files.hpp"

namespace lora::test {

inline std::string template_data(const std::string& name) { return std::string(LORA_FIXTURES "/templates/") + name; }

/// The values of a packed file of JSON lines that tests/make/chat_templates.py wrote.
inline std::vector<io::Json> template_lines(const std::string& name) {
  const std::string text = unpacked(template_data(name + ".jsonl.z"));
  std::vector<io::Json> values;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    values.push_back(io::parse_json(std::string_view(text).substr(begin, end - begin), name));
  }
  return values;
}

/// The turns of a conversation as a template's fixtures have them: only Qwen3's know reasoning apart from the content.
inline std::vector<data::Message> template_messages(const io::Json& conversation, std::string_view template_name) {
  std::vector<data::Message> messages;
  const bool thinks = template_name == "qwen3" || template_name == "qwen3_thinking_2507";
  for (const auto& turn : conversation["messages"]) {
    messages.push_back({turn["role"], turn["content"]});
    if (thinks && turn.contains("reasoning_content")) messages.back().reasoning = turn["reasoning_content"];
  }
  return messages;
}

inline data::RenderOptions template_options(const io::Json& conversation) {
  data::RenderOptions options{conversation["add_generation_prompt"], conversation["enable_thinking"],
                              conversation["date"]};
  if (conversation.contains("tools")) options.tools = conversation["tools"].get_ref<const io::Json::array_t&>();
  return options;
}

}  // namespace lora::test
