#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/data/chat/chat_template_entry.hpp"
#include "lora/data/chat/chat_text.hpp"
#include "lora/data/chat/rendering.hpp"
#include "lora/data/chat/tool_calls.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::data {

namespace detail {
class OwnTemplate;
}

/// Renders conversations with one of the known published templates, exactly as the model's own template text would,
/// without interpreting that text; or with a template of the model's own, whose text is interpreted.
class ChatTemplate {
 public:
  /// `end_of_text` is the model's end-of-text token, with which only alpaca and none end an answer; `opening` is what
  /// the tokenizer puts before texts, with which only theirs begin.
  /// Throws   ConfigError if the name is not among the choices
  static ChatTemplate named(std::string_view name, std::string end_of_text = "", std::string_view opening = "");

  /// The one with this Jinja text, white space aside, if it is known.
  static std::optional<ChatTemplate> find(std::string_view text, std::string end_of_text = "");

  /// One that is not among the known ones.
  /// Throws   FormatError if it can't be interpreted
  static ChatTemplate interpreted(std::string_view text, SpecialTexts special);

  /// The names that `named` takes.
  static std::vector<std::string_view> names();

  /// The same, joined for a message.
  static std::string choices();

  /// Of one that is interpreted made from its text: two of the same name are the same.
  std::string_view name() const;
  bool is_interpreted() const { return own_ != nullptr; }

  /// In Jinja, as the model carries it or, of a template that was named, as it was published: what makes other programs
  /// write the same.
  const std::string& text() const { return text_; }

  /// What stands in every rendering with answers and is to be one token each.
  std::vector<std::string_view> markers() const;
  /// The same of renderings with reasoning, and of those with tools or their calls.
  std::span<const std::string_view> markers_of_thoughts() const;
  std::span<const std::string_view> markers_of_tools() const { return entry_.markers_of_tools; }

  /// The token that ends an assistant's turn.
  std::string_view end_of_turn() const;

  /// Whether it prints a date at all.
  bool prints_date() const;
  /// The date that it prints if the options give none; empty of one that is interpreted and has a date of its own.
  std::string date() const;

  /// Whether its output depends on enable_thinking.
  bool thinks_at_will() const;
  /// Whether answers may begin with reasoning that ends with </think>.
  bool thinks() const;

  /// Whether it takes reasoning apart from an answer, and leaves it out of the turns before the last question.
  bool takes_reasoning() const;
  /// Whether a generation prompt has begun the reasoning.
  bool opens_reasoning(const RenderOptions& options) const;

  /// Refuses records with tools, which the model has another template for, that is not supported.
  void leave_tools_to_another() { tools_have_another_ = true; }
  /// Whether it tells an assistant of tools, and writes their calls.
  bool calls_tools() const;
  /// Whether it writes arguments of a call that are a text as a JSON string, rather than as they are.
  bool quotes_texts() const { return entry_.quotes_texts; }

  /// Whether the tokenizer's opening token, if any, must be added before its output.
  bool needs_opening() const { return detail::is_plain(entry_); }

  /// An answer without the reasoning before it, split as Qwen3's template does.
  static std::string_view without_thoughts(std::string_view answer);

  /// The turns to render with these options: without reasoning if enable_thinking is false.
  std::vector<Message> turns_of(std::span<const Message> messages, const RenderOptions& options) const;

  /// Throws   FormatError if the template can't render a turn, which is named, counted from 1
  Rendering render(std::span<const Message> messages, const RenderOptions& options = {}) const;

 private:
  using Style = detail::TemplateStyle;
  static constexpr std::string_view im_start = "<|im_start|>";
  static constexpr std::string_view im_end = "<|im_end|>";
  static constexpr std::string_view think_end = "</think>";
  static constexpr std::string_view empty_think = "<think>\n\n</think>\n\n";
  static constexpr std::string_view smollm3_empty_think = "<think>\n\n</think>\n";

  ChatTemplate(const detail::TemplateEntry& entry, std::string end_of_text, std::string text)
      : entry_(entry), end_of_text_(std::move(end_of_text)), text_(std::move(text)) {}

  void check(const Message& message, std::size_t turn) const;
  [[noreturn]] void refuse(std::string_view what, std::size_t turn) const;

  /// The text of a generation prompt after the assistant's header.
  std::string_view opening(const RenderOptions& options) const;

  /// Ends a turn whose content began at byte `begin`. The answer begins where a generation prompt would have ended.
  static void end_answer(Rendering& out, std::size_t begin, std::string_view end_token, std::string_view opening = "");

  static void chatml_turn(Rendering& out, std::string_view role, std::string_view content,
                          std::string_view opening = "");

  void default_system(Rendering& out, std::span<const Message> messages) const;

  void render_chatml(Rendering& out, std::span<const Message> messages) const;

  /// Consecutive tool messages are merged into one user turn.
  static void qwen_tool_turn(Rendering& out, std::span<const Message> messages, std::size_t i);

  /// The system's turn with the tools, and the turns that it leaves.
  std::span<const Message> qwen_tools(Rendering& out, std::span<const Message> messages,
                                      std::span<const io::Json> tools) const;

  void render_qwen(Rendering& out, std::span<const Message> messages, std::span<const io::Json> tools) const;

  /// Reasoning is kept only after the last user question, and the last turn always has a think block.
  void render_qwen3(Rendering& out, std::span<const Message> messages, std::string_view opening,
                    std::span<const io::Json> tools) const;

  static void qwen3_answer(Rendering& out, const Message& message, bool after_query, bool last,
                           std::string_view opening);

  static void render_smollm3(Rendering& out, std::span<const Message> messages, const RenderOptions& options);

  void render_llama3(Rendering& out, std::span<const Message> messages, const RenderOptions& options) const;

  void render_alpaca(Rendering& out, std::span<const Message> messages) const;

  void render_none(Rendering& out, std::span<const Message> messages) const;

  detail::TemplateEntry entry_;
  std::string end_of_text_;
  std::string text_;
  bool tools_have_another_ = false;
  std::shared_ptr<const detail::OwnTemplate> own_{};
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/chat/chat_template.ipp"
#endif
