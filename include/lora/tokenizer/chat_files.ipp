#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/chat_files.hpp"

namespace lora::tokenizer {

LORA_INLINE ChatFiles read_chat_files(const io::Path& folder) {
  const auto file = folder / "tokenizer_config.json";
  const io::Json content = io::is_there(file) ? io::read_json(file) : io::Json::object();
  const auto config = io::JsonView::of_object(content, file.native());
  const auto eos = config.find("eos_token");
  return {detail::read_chat_templates(folder, config).plain,
          eos && !eos->json().is_null() ? detail::named_token(*eos).content : std::string()};
}

LORA_INLINE void write_chat_files(const io::Path& folder, const ChatFiles& chat) {
  const ChatFiles now = read_chat_files(folder);
  const auto set = [&](const char* name, const char* key, const std::string& value, bool adds) {
    const auto file = folder / name;
    io::Json content = io::is_there(file) ? io::read_json(file) : io::Json::object();
    if (!adds && !content.contains(key)) return;
    content[key] = value;
    io::write_changed_json(file, content, file);
  };
  if (!chat.chat_template.empty() && chat.chat_template != now.chat_template) {
    io::write_file(folder / "chat_template.jinja", std::string_view(chat.chat_template));
    io::remove_file(folder / "chat_template.json");
    set("tokenizer_config.json", "chat_template", chat.chat_template, false);
  }
  if (!chat.eos_token.empty() && chat.eos_token != now.eos_token) {
    set("tokenizer_config.json", "eos_token", chat.eos_token, true);
    set("special_tokens_map.json", "eos_token", chat.eos_token, false);
  }
}

}  // namespace lora::tokenizer
