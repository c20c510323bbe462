#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/data/chat/rendering.hpp"
#include "lora/jinja/template.hpp"

namespace lora::data::detail {

/// A model's own template, whose text is interpreted.
class OwnTemplate {
 public:
  /// Throws   FormatError for a text that is no Jinja, that is not supported, or that can't render a question and its
  /// answer, be it with a system prompt and tools
  OwnTemplate(std::string_view text, SpecialTexts special);

  const std::string& name() const { return name_; }
  /// Empty if it writes no special token behind an answer.
  const std::string& end_of_turn() const { return end_; }
  bool prints_date() const { return writes_today() || template_.names("date_string"); }
  /// Whether it writes the day on which it is rendered.
  bool writes_today() const { return template_.names("strftime_now"); }
  bool thinks_at_will() const { return template_.names("enable_thinking"); }
  bool thinks() const { return thinks_; }
  bool takes_reasoning() const { return takes_reasoning_; }
  bool takes_tools() const { return template_.names("tools"); }
  bool takes_calls() const { return takes_calls_; }
  bool opens_reasoning(const RenderOptions& options) const;

  /// Throws   FormatError where the template can't render the conversation, or where an answer begins or ends can't be
  /// told
  Rendering render(std::span<const Message> messages, const RenderOptions& options) const;

 private:
  std::string write(std::span<const Message> messages, const RenderOptions& options) const;
  std::string write(std::span<const Message> messages, const RenderOptions& options, bool prompt) const;

  /// The text with another turn in the place of this one; nothing where the template refuses it.
  std::optional<std::string> write_with(std::span<const Message> messages, const RenderOptions& options,
                                        std::size_t turn, const Message& other) const;

  /// What another turn in the place of this one changes of the text.
  struct Place {
    std::size_t begin, end;
  };
  std::optional<Place> place_of(std::span<const Message> messages, const RenderOptions& options, std::size_t turn,
                                std::string_view text, const Message& other) const;
  std::size_t begin_of(std::span<const Message> messages, const RenderOptions& options, std::size_t turn,
                       std::string_view text) const;
  std::size_t end_of(std::span<const Message> messages, const RenderOptions& options, std::size_t turn,
                     std::string_view text, std::size_t begin) const;

  /// Throws   FormatError where the text has nothing of what another than the assistant says, or of what the assistant
  /// says beside calls, or of a call
  void expect_all_said(std::span<const Message> messages, const RenderOptions& options, std::string_view text) const;

  /// Throws   FormatError where the last answer would lose its reasoning
  void expect_thoughts(const Message& last) const;

  /// The special token at a place of a text; empty if there is none.
  std::string_view token_at(std::string_view text, std::size_t at) const;

  std::string name_;
  SpecialTexts special_;
  jinja::Template template_;
  bool thinks_, takes_reasoning_, takes_calls_;
  bool loses_thoughts_ = false;      // even of the last answer
  bool wants_tools_ = false;         // it can't write a conversation without them
  std::vector<Message> question_{};  // with a system prompt where it needs one
  std::string tail_{};               // what it writes behind the last answer
  std::size_t end_in_tail_ = 0;      // where its end-of-turn token ends there
  std::string end_{};
  std::vector<std::string> openers_{};  // tokens with which turns begin
};

}  // namespace lora::data::detail

#ifndef LORA_COMPILED
#  include "lora/data/chat/own_template.ipp"
#endif
