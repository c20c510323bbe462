#pragma once

#include "lora/core/config.hpp"
#include "lora/data/chat/chat_template.hpp"
#include "lora/data/chat/chat_template_table.hpp"
#include "lora/data/chat/own_template.hpp"

namespace lora::data {

LORA_INLINE ChatTemplate ChatTemplate::named(std::string_view name, std::string end_of_text, std::string_view opening) {
  for (const auto& entry : detail::template_entries) {
    if (entry.name != name) continue;
    if (!detail::is_plain(entry)) return {entry, std::move(end_of_text), std::string(entry.text)};
    if (end_of_text.empty())
      fail<ConfigError>("template ", name, " ends an answer with the end-of-text token, and the model names none");
    return {entry, std::move(end_of_text), concat(detail::opening_tag(opening), entry.text)};
  }
  fail<ConfigError>("template is ", name, "; expected auto or one of ", choices());
}

LORA_INLINE std::optional<ChatTemplate> ChatTemplate::find(std::string_view text, std::string end_of_text) {
  const detail::TemplateEntry* entry = detail::entry_of(text);
  if (entry == nullptr || (detail::is_plain(*entry) && end_of_text.empty())) return std::nullopt;
  return ChatTemplate(*entry, std::move(end_of_text), std::string(text));
}

LORA_INLINE ChatTemplate ChatTemplate::interpreted(std::string_view text, SpecialTexts special) {
  ChatTemplate chat({"", Style::interpreted, ""}, "", std::string(text));
  chat.own_ = std::make_shared<const detail::OwnTemplate>(text, std::move(special));
  return chat;
}

LORA_INLINE std::string_view ChatTemplate::name() const { return own_ ? std::string_view(own_->name()) : entry_.name; }

LORA_INLINE std::vector<std::string_view> ChatTemplate::names() {
  std::vector<std::string_view> list;
  for (const auto& entry : detail::template_entries) list.push_back(entry.name);
  return list;
}

LORA_INLINE std::string ChatTemplate::choices() {
  std::string list;
  for (const std::string_view name : names()) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

LORA_INLINE std::vector<std::string_view> ChatTemplate::markers() const {
  switch (entry_.style) {
    case Style::llama3:
    case Style::llama3_dated:
      return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case Style::alpaca:
    case Style::none:
      return {end_of_text_};
    case Style::interpreted:
      if (end_of_turn().empty()) return {};  // it can be talked with, but not trained
      return {end_of_turn()};
    default:
      return {im_start, im_end};
  }
}

LORA_INLINE std::span<const std::string_view> ChatTemplate::markers_of_thoughts() const {
  return thinks() && !own_ ? std::span<const std::string_view>(detail::think_markers)
                           : std::span<const std::string_view>();
}

LORA_INLINE std::string_view ChatTemplate::end_of_turn() const {
  switch (entry_.style) {
    case Style::llama3:
    case Style::llama3_dated:
      return "<|eot_id|>";
    case Style::alpaca:
    case Style::none:
      return end_of_text_;
    case Style::interpreted:
      return own_->end_of_turn();
    default:
      return "<|im_end|>";
  }
}

LORA_INLINE bool ChatTemplate::prints_date() const {
  return own_ ? own_->prints_date() : entry_.style == Style::smollm3 || entry_.style == Style::llama3_dated;
}

LORA_INLINE std::string ChatTemplate::date() const {
  if (own_) return own_->writes_today() ? detail::today() : "";
  return entry_.style == Style::llama3_dated && !entry_.system.empty() ? std::string(entry_.system) : detail::today();
}

LORA_INLINE bool ChatTemplate::thinks() const {
  return own_ ? own_->thinks() : entry_.style == Style::smollm3 || entry_.style == Style::qwen3;
}

LORA_INLINE bool ChatTemplate::takes_reasoning() const {
  return own_ ? own_->takes_reasoning() : entry_.style == Style::qwen3;
}

LORA_INLINE bool ChatTemplate::opens_reasoning(const RenderOptions& options) const {
  return own_ ? own_->opens_reasoning(options) : opening(options) == "<think>\n";
}

LORA_INLINE bool ChatTemplate::calls_tools() const {
  return own_ ? own_->takes_tools() : entry_.style == Style::qwen || entry_.style == Style::qwen3;
}

LORA_INLINE bool ChatTemplate::thinks_at_will() const {
  if (own_) return own_->thinks_at_will();
  return entry_.style == Style::smollm3 || (entry_.style == Style::qwen3 && entry_.opening.empty());
}

LORA_INLINE std::string_view ChatTemplate::without_thoughts(std::string_view answer) {
  const auto end = answer.rfind(think_end);
  return end == answer.npos ? answer : detail::strip_newlines(answer.substr(end + think_end.size()), true, false);
}

LORA_INLINE std::vector<Message> ChatTemplate::turns_of(std::span<const Message> messages,
                                                        const RenderOptions& options) const {
  std::vector<Message> turns(messages.begin(), messages.end());
  const bool drops = own_ ? own_->thinks() : entry_.style == Style::qwen3;
  if (!drops || !thinks_at_will() || options.enable_thinking) return turns;
  for (Message& turn : turns) {
    if (turn.role != "assistant") continue;
    if (!turn.reasoning) turn.content = std::string(without_thoughts(turn.content));
    if (takes_reasoning()) turn.reasoning = "";
  }
  return turns;
}

LORA_INLINE Rendering ChatTemplate::render(std::span<const Message> messages, const RenderOptions& options) const {
  if (messages.empty()) fail<FormatError>("the conversation has no turns");
  if (!options.tools.empty() && tools_have_another_)
    fail<FormatError>("the record has tools, for which the model has a chat template of its own, tool_use, which is ",
                      "not supported; expected records without tools, or a choice by the key template");
  if (!options.tools.empty() && !calls_tools()) fail<FormatError>("template ", name(), " has no place for tools");
  for (std::size_t i = 0; i < messages.size(); ++i) check(messages[i], i);
  if (own_) return own_->render(messages, options);
  Rendering out;
  switch (entry_.style) {
    case Style::chatml:
      render_chatml(out, messages);
      break;
    case Style::qwen:
      render_qwen(out, messages, options.tools);
      break;
    case Style::qwen3:
      render_qwen3(out, messages, opening(options), options.tools);
      break;
    case Style::smollm3:
      render_smollm3(out, messages, options);
      return out;
    case Style::llama3:
    case Style::llama3_dated:
      render_llama3(out, messages, options);
      return out;
    case Style::alpaca:
      render_alpaca(out, messages);
      return out;
    case Style::none:
      render_none(out, messages);
      return out;
    case Style::interpreted:
      break;
  }
  if (options.add_generation_prompt) {
    out.text += concat(im_start, "assistant\n", opening(options));
  }
  return out;
}

LORA_INLINE void ChatTemplate::check(const Message& message, std::size_t turn) const {
  const bool known = message.role == "system" || message.role == "user" || message.role == "assistant";
  if (!known && message.role != "tool")
    fail<FormatError>("turn ", turn + 1, " has the role \"", message.role,
                      "\"; expected system, user, assistant or tool");
  if (message.role == "tool" && detail::is_plain(entry_)) refuse("tool turns", turn);
  if (!message.tool_calls.empty() && !(own_ ? own_->takes_calls() : calls_tools())) refuse("tool calls", turn);
  if (!message.tool_calls.empty() && message.role != "assistant")
    fail<FormatError>("turn ", turn + 1, " is the ", message.role, "'s and has tool calls; only an assistant calls");
  const bool only_first = entry_.style == Style::alpaca || entry_.style == Style::smollm3;
  if (message.role == "system" && turn > 0 && only_first) refuse("a system turn that is not the first", turn);
  if (message.reasoning && !message.reasoning->empty() && !takes_reasoning())
    refuse("reasoning apart from the content", turn);
}

LORA_INLINE void ChatTemplate::refuse(std::string_view what, std::size_t turn) const {
  fail<FormatError>("template ", name(), " has no place for ", what, " (turn ", turn + 1, ")");
}

LORA_INLINE std::string_view ChatTemplate::opening(const RenderOptions& options) const {
  const bool closes = entry_.style == Style::qwen3 && thinks_at_will() && !options.enable_thinking;
  return closes ? empty_think : entry_.opening;
}

LORA_INLINE void ChatTemplate::end_answer(Rendering& out, std::size_t begin, std::string_view end_token,
                                          std::string_view opening) {
  if (std::string_view(out.text).substr(begin).starts_with(opening)) begin += opening.size();
  out.text += end_token;
  out.answers.push_back({begin, out.text.size()});
}

LORA_INLINE void ChatTemplate::chatml_turn(Rendering& out, std::string_view role, std::string_view content,
                                           std::string_view opening) {
  out.text += concat(im_start, role, "\n");
  const std::size_t begin = out.text.size();
  out.text += content;
  if (role == "assistant") {
    end_answer(out, begin, im_end, opening);
  } else {
    out.text += im_end;
  }
  out.text += '\n';
}

LORA_INLINE void ChatTemplate::default_system(Rendering& out, std::span<const Message> messages) const {
  if (messages[0].role != "system" && !entry_.system.empty()) chatml_turn(out, "system", entry_.system);
}

LORA_INLINE void ChatTemplate::render_chatml(Rendering& out, std::span<const Message> messages) const {
  default_system(out, messages);
  for (const Message& message : messages) chatml_turn(out, message.role, message.content);
}

LORA_INLINE void ChatTemplate::qwen_tool_turn(Rendering& out, std::span<const Message> messages, std::size_t i) {
  if (i == 0 || messages[i - 1].role != "tool") out.text += concat(im_start, "user");
  out.text += concat("\n<tool_response>\n", messages[i].content, "\n</tool_response>");
  if (i + 1 == messages.size() || messages[i + 1].role != "tool") out.text += concat(im_end, "\n");
}

LORA_INLINE std::span<const Message> ChatTemplate::qwen_tools(Rendering& out, std::span<const Message> messages,
                                                              std::span<const io::Json> tools) const {
  const bool own = messages[0].role == "system";
  const std::string_view system = own ? std::string_view(messages[0].content) : entry_.system;
  chatml_turn(out, "system", concat(system, own || !system.empty() ? "\n\n" : "", tools_text(tools)));
  return messages.subspan(own ? 1 : 0);
}

LORA_INLINE void ChatTemplate::render_qwen(Rendering& out, std::span<const Message> messages,
                                           std::span<const io::Json> tools) const {
  if (tools.empty()) {
    default_system(out, messages);
  } else {
    messages = qwen_tools(out, messages, tools);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.role == "tool") {
      qwen_tool_turn(out, messages, i);
    } else {
      chatml_turn(out, message.role,
                  with_calls(message.content, !message.content.empty(), message.tool_calls, entry_.quotes_texts));
    }
  }
}

LORA_INLINE void ChatTemplate::render_qwen3(Rendering& out, std::span<const Message> messages, std::string_view opening,
                                            std::span<const io::Json> tools) const {
  if (!tools.empty()) messages = qwen_tools(out, messages, tools);
  std::size_t last_query = messages.size() - 1;
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string_view content = messages[i].content;
    const bool tool_answer = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role != "user" || tool_answer) continue;
    last_query = i;
    break;
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "tool") {
      qwen_tool_turn(out, messages, i);
    } else if (messages[i].role == "assistant") {
      qwen3_answer(out, messages[i], i > last_query, i + 1 == messages.size(), opening);
    } else {
      chatml_turn(out, messages[i].role, messages[i].content);
    }
  }
}

LORA_INLINE void ChatTemplate::qwen3_answer(Rendering& out, const Message& message, bool after_query, bool last,
                                            std::string_view opening) {
  std::string_view content = message.content;
  std::string_view reasoning;
  if (message.reasoning) {
    reasoning = *message.reasoning;
  } else if (const auto first = content.find(think_end); first != content.npos) {
    reasoning = detail::strip_newlines(content.substr(0, first), false, true);
    if (const auto open = reasoning.rfind("<think>"); open != reasoning.npos) reasoning.remove_prefix(open + 7);
    reasoning = detail::strip_newlines(reasoning, true, false);
    content = without_thoughts(content);
  }
  std::string text(content);
  if (after_query && (last || !reasoning.empty()))
    text = concat("<think>\n", detail::strip_newlines(reasoning, true, true), "\n</think>\n\n",
                  detail::strip_newlines(content, true, false));
  chatml_turn(out, "assistant", with_calls(std::move(text), !content.empty(), message.tool_calls, false), opening);
}

LORA_INLINE void ChatTemplate::render_smollm3(Rendering& out, std::span<const Message> messages,
                                              const RenderOptions& options) {
  const std::string system = messages[0].role == "system" ? messages[0].content : "";
  bool think = options.enable_thinking;
  if (system.find("/no_think") != system.npos) {
    think = false;
  } else if (system.find("/think") != system.npos) {
    think = true;
  }
  const std::string own(detail::strip_right(detail::without(detail::without(system, "/no_think"), "/think")));
  out.text += concat(im_start, "system\n");
  if (system.find("/system_override") != system.npos) {
    out.text += concat(detail::strip_right(detail::without(own, "/system_override")), im_end, "\n");
  } else {  // the published template doesn't end this turn
    const std::string date = detail::written_date(options.date.empty() ? detail::today() : options.date, true);
    out.text += concat("## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: ", date,
                       "\nReasoning Mode: ", think ? "/think" : "/no_think", "\n\n## Custom Instructions\n\n",
                       !own.empty() ? std::string_view(own)
                       : think      ? detail::smollm3_think
                                    : detail::smollm3_no_think,
                       "\n\n");
  }
  const std::string_view block = think ? "" : smollm3_empty_think;
  for (const Message& message : messages) {
    if (message.role == "system") continue;
    if (message.role == "assistant") {
      const auto content = detail::strip_newlines(message.content, true, false);
      chatml_turn(out, "assistant", concat(block, content), block);
    } else {
      chatml_turn(out, "user", message.content);
    }
  }
  if (options.add_generation_prompt) out.text += concat(im_start, "assistant\n", block);
}

LORA_INLINE void ChatTemplate::render_llama3(Rendering& out, std::span<const Message> messages,
                                             const RenderOptions& options) const {
  const bool dated = entry_.style == Style::llama3_dated;
  const auto header = [&](std::string_view role) {
    out.text += concat("<|start_header_id|>", role, "<|end_header_id|>\n\n");
  };
  out.text += "<|begin_of_text|>";
  if (dated) {
    const std::string day = options.date.empty() ? date() : options.date;
    header("system");
    out.text += concat("Cutting Knowledge Date: December 2023\nToday Date: ", detail::written_date(day, false), "\n\n");
    if (messages[0].role == "system") out.text += strip(messages[0].content);
    out.text += "<|eot_id|>";
    if (messages[0].role == "system") messages = messages.subspan(1);
  }
  for (const Message& message : messages) {
    const bool tool = dated && message.role == "tool";
    header(tool ? "ipython" : message.role);
    const std::size_t begin = out.text.size();
    out.text += tool ? io::to_text(message.content, -1) : std::string(strip(message.content));
    if (message.role == "assistant") {
      end_answer(out, begin, "<|eot_id|>");
    } else {
      out.text += "<|eot_id|>";
    }
  }
  if (options.add_generation_prompt) header("assistant");
}

LORA_INLINE void ChatTemplate::render_alpaca(Rendering& out, std::span<const Message> messages) const {
  const bool own = messages[0].role == "system";
  out.text += concat(own ? std::string_view(messages[0].content) : entry_.system, "\n\n");
  for (const Message& message : messages.subspan(own ? 1 : 0)) {
    if (message.role == "user") {
      out.text += concat("### Instruction:\n", message.content, "\n\n### Response:\n");
      continue;
    }
    const std::size_t begin = out.text.size();
    out.text += message.content;
    end_answer(out, begin, end_of_text_);
    out.text += "\n\n";
  }
}

LORA_INLINE void ChatTemplate::render_none(Rendering& out, std::span<const Message> messages) const {
  for (const Message& message : messages) {
    const std::size_t begin = out.text.size();
    out.text += message.content;
    if (message.role == "assistant") end_answer(out, begin, end_of_text_);
  }
}

}  // namespace lora::data
