#pragma once

#include <algorithm>
#include <cstdio>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/hash.hpp"
#include "lora/data/chat/chat_text.hpp"
#include "lora/data/chat/own_template.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::data::detail {

/// Characters that no text of a record has, to stand for one.
LORA_INLINE std::string stand_in(std::string_view text) {
  for (char last = '\x80'; last < '\xBF'; ++last)
    if (const std::string mark = {'\xEE', '\x80', last}; text.find(mark) == text.npos) return mark;
  fail<FormatError>("the conversation has every character from U+E000 to U+E03E, one of which must be free");
}

inline bool continues(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u;
}

/// How many bytes two texts have in common at their beginning, in whole characters.
LORA_INLINE std::size_t common_beginning(std::string_view a, std::string_view b) {
  auto count = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (count > 0 && (continues(a, count) || continues(b, count))) --count;
  return count;
}

/// The same at their ends.
LORA_INLINE std::size_t common_end(std::string_view a, std::string_view b) {
  auto count = static_cast<std::size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
  while (count > 0 && (continues(a, a.size() - count) || continues(b, b.size() - count))) --count;
  return count;
}

/// What looks like a token of many models: <|name|>.
LORA_INLINE std::string_view marker_at(std::string_view text, std::size_t at) {
  constexpr std::size_t longest = 40;
  const std::string_view here = text.substr(at, longest);
  const std::size_t end = here.find("|>");
  if (!here.starts_with("<|") || end == here.npos || here.substr(0, end).find_first_of(" \n") != here.npos) return {};
  return here.substr(0, end + 2);
}

/// A turn as transformers hands it to a template.
LORA_INLINE io::Json turn_of(const Message& message) {
  io::Json turn = io::json_object({{"role", message.role}, {"content", message.content}});
  if (message.reasoning) {
    turn["thinking"] = *message.reasoning;
    turn["reasoning_content"] = *message.reasoning;
  }
  if (message.tool_calls.empty()) return turn;
  io::Json calls = io::Json::array();
  for (const ToolCall& call : message.tool_calls)
    calls.push_back(io::json_object(
        {{"type", "function"},
         {"function", io::json_object({{"name", call.name}, {"arguments", io::Json(call.arguments)}})}}));
  turn["tool_calls"] = std::move(calls);
  return turn;
}

/// The turn with a content that stands nowhere in the text, and without thoughts.
LORA_INLINE Message with_other_content(Message message, std::string_view text) {
  message.content = stand_in(text);
  message.reasoning.reset();
  return message;
}

/// The turn with another last call.
LORA_INLINE Message with_other_call(Message message, std::string_view text) {
  message.tool_calls.back() = {stand_in(text), io::Json::object()};
  return message;
}

/// A tool as transformers hands one to a template.
LORA_INLINE io::Json any_tool() {
  const io::Json field = io::json_object({{"type", "string"}, {"description", "A field."}});
  return io::json_object(
      {{"type", "function"},
       {"function",
        io::json_object({{"name", "a_tool"},
                         {"description", "A tool."},
                         {"parameters", io::json_object({{"type", "object"},
                                                         {"properties", io::json_object({{"field", field}})},
                                                         {"required", io::Json::array({"field"})}})}})}});
}

LORA_INLINE std::string own_name(std::string_view text) {
  char name[24];
  std::snprintf(name, sizeof name, "own_%016llx", static_cast<unsigned long long>(text_hash(text)));
  return name;
}

LORA_INLINE OwnTemplate::OwnTemplate(std::string_view text, SpecialTexts special)
    : name_(own_name(text)),
      special_(std::move(special)),
      template_(text, "the model's chat template"),
      thinks_(text.find("</think>") != text.npos),
      takes_reasoning_(template_.asks_for("reasoning_content") || template_.asks_for("thinking")),
      takes_calls_(text.find("tool_calls") != text.npos) {
  for (const std::string_view other :
       {"unk_token", "sep_token", "cls_token", "mask_token", "additional_special_tokens"})
    if (template_.names(other))
      fail<FormatError>("the model's chat template writes ", other, ", which is not supported");
  const std::string answer = stand_in(text);
  RenderOptions options;
  const auto with_answer = [&](const std::string& before = "") {
    std::vector<Message> turns = question_;
    turns.push_back({"assistant", before + answer});
    return write(turns, options);
  };
  // Some render no question without a system prompt, some none without tools.
  const io::Json tool = any_tool();
  const std::string written = [&] {
    for (const bool tools : {false, true}) {
      if (tools) options.tools = {&tool, 1};
      for (const bool system : {false, true}) {
        question_ = {{"user", "A question."}};
        if (system) question_.insert(question_.begin(), Message{"system", "A system prompt."});
        try {
          std::string text_with_answer = with_answer();
          wants_tools_ = tools;
          return text_with_answer;
        } catch (const FormatError&) {
          if (system && (tools || !takes_tools())) throw;
        }
      }
    }
    return std::string();
  }();
  const std::size_t at = written.rfind(answer);
  if (at == written.npos) fail<FormatError>("the model's chat template leaves out what the assistant says");
  tail_ = written.substr(at + answer.size());
  for (std::size_t i = 0; i < tail_.size() && end_.empty(); ++i)
    if (const std::string_view token = token_at(tail_, i); !token.empty()) {
      end_ = token;
      end_in_tail_ = i + token.size();
    }
  loses_thoughts_ = thinks_ && with_answer("<think>\nA thought.\n</think>\n\n").find("A thought.") == written.npos;
  std::vector<std::string_view> before;
  const std::string_view to_question = std::string_view(written).substr(0, written.find(question_.back().content));
  for (std::size_t i = 0; i < to_question.size(); ++i)
    if (const std::string_view token = token_at(to_question, i); !token.empty() && token != special_.bos)
      before.push_back(token);
  if (!before.empty()) openers_ = {std::string(before.front()), std::string(before.back())};
}

LORA_INLINE std::string_view OwnTemplate::token_at(std::string_view text, std::size_t at) const {
  std::string_view longest = marker_at(text, at);
  for (const std::string& token : special_.all)
    if (token.size() > longest.size() && text.substr(at).starts_with(token)) longest = text.substr(at, token.size());
  return longest;
}

LORA_INLINE std::string OwnTemplate::write(std::span<const Message> messages, const RenderOptions& options,
                                           bool prompt) const {
  RenderOptions own = options;
  own.add_generation_prompt = prompt;
  return write(messages, own);
}

LORA_INLINE std::string OwnTemplate::write(std::span<const Message> messages, const RenderOptions& options) const {
  if (wants_tools_ && options.tools.empty())
    fail<FormatError>("the model's chat template can't write a conversation without tools; expected some, or ",
                      "a choice by the key template");
  io::Json turns = io::Json::array();
  for (const Message& message : messages) turns.push_back(turn_of(message));
  io::Json tools;  // none, as in transformers, if there are none
  if (!options.tools.empty()) tools = io::Json(io::Json::array_t(options.tools.begin(), options.tools.end()));
  const io::Json nothing, prompt = options.add_generation_prompt, thinking = options.enable_thinking,
                          bos = special_.bos, eos = special_.eos, pad = special_.pad;
  io::Json date;
  std::vector<jinja::Variable> variables = {
      {"messages", &turns}, {"tools", &tools}, {"documents", &nothing}, {"add_generation_prompt", &prompt}};
  if (!special_.bos.empty()) variables.push_back({"bos_token", &bos});
  if (!special_.eos.empty()) variables.push_back({"eos_token", &eos});
  if (!special_.pad.empty()) variables.push_back({"pad_token", &pad});
  if (!options.thinking_is_default) variables.push_back({"enable_thinking", &thinking});
  if (!options.date.empty() && !writes_today()) {  // which writes it as it likes
    date = written_date(options.date, false);
    variables.push_back({"date_string", &date});
  }
  return template_.render(variables, options.date.empty() ? today() : options.date);
}

LORA_INLINE bool OwnTemplate::opens_reasoning(const RenderOptions& options) const {
  return strip(write(question_, options, true)).ends_with("<think>");
}

LORA_INLINE std::optional<std::string> OwnTemplate::write_with(std::span<const Message> messages,
                                                               const RenderOptions& options, std::size_t turn,
                                                               const Message& other) const {
  std::vector<Message> turns(messages.begin(), messages.end());
  turns[turn] = other;
  try {
    return write(turns, options);
  } catch (const FormatError&) {
    return std::nullopt;
  }
}

LORA_INLINE std::optional<OwnTemplate::Place> OwnTemplate::place_of(std::span<const Message> messages,
                                                                    const RenderOptions& options, std::size_t turn,
                                                                    std::string_view text, const Message& other) const {
  const auto written = write_with(messages, options, turn, other);
  if (!written || *written == text) return std::nullopt;
  const std::size_t begin = common_beginning(text, *written);
  const std::size_t end = text.size() - common_end(text.substr(begin), std::string_view(*written).substr(begin));
  return Place{begin, end};
}

LORA_INLINE std::size_t OwnTemplate::begin_of(std::span<const Message> messages, const RenderOptions& options,
                                              std::size_t turn, std::string_view text) const {
  const std::string prompt = write(messages.first(turn), options, true);
  if (text.starts_with(prompt)) return prompt.size();
  if (thinks_at_will()) {  // a prompt that closes the thoughts, or opens them, before an answer that does otherwise
    RenderOptions other = options;
    other.enable_thinking = !options.enable_thinking;
    other.thinking_is_default = false;
    if (const std::string prompt_of_other = write(messages.first(turn), other, true); text.starts_with(prompt_of_other))
      return prompt_of_other.size();
  }
  const auto place = place_of(messages, options, turn, text, with_other_content(messages[turn], text));
  if (!place) fail<FormatError>("the template leaves out the answer of turn ", turn + 1);
  // The turns before may be written otherwise once the conversation goes on; then what the prompt ends with is looked
  // for, or its beginning, before the answer.
  const std::string before = write(messages.first(turn), options, false);
  const std::string_view header = std::string_view(prompt).substr(common_beginning(prompt, before));
  const std::size_t common = common_beginning(text, prompt);
  if (common + header.size() > prompt.size()) return std::min(common, place->begin);
  for (std::size_t size = header.size(); size > 0; --size) {
    if (size > place->begin || continues(header, size)) continue;
    const std::size_t at = text.rfind(header.substr(0, size), place->begin - size);
    if (at == text.npos) continue;
    const std::string_view between = text.substr(at + size, place->begin - at - size);
    if (end_.empty() || between.find(end_) == between.npos) return at + size;
  }
  fail<FormatError>("where the answer of turn ", turn + 1, " begins in what the template writes can't be told");
}

LORA_INLINE std::size_t OwnTemplate::end_of(std::span<const Message> messages, const RenderOptions& options,
                                            std::size_t turn, std::string_view text, std::size_t begin) const {
  const bool last = turn + 1 == messages.size();
  const std::string through = last ? std::string(text) : write(messages.first(turn + 1), options);
  const bool begins = text.starts_with(through) && through.size() >= begin;
  if (begins && through.size() - begin >= tail_.size() && through.ends_with(tail_))
    return through.size() - tail_.size() + end_in_tail_;
  // Behind what changes with the answer stands its token; behind its last call may stand what closes the call.
  const bool calls = !messages[turn].tool_calls.empty();
  const Message other = calls ? with_other_call(messages[turn], text) : with_other_content(messages[turn], text);
  if (const auto place = place_of(messages, options, turn, text, other)) {
    const std::size_t first = text.size() - strip_left(text.substr(std::max(place->end, begin))).size();
    for (std::size_t at = first; at < text.size() && (calls || at == first); ++at) {
      const std::string_view token = token_at(text, at);
      if (token.empty()) continue;
      const bool opens = std::find(openers_.begin(), openers_.end(), token) != openers_.end();
      if (token != end_ && (calls || opens)) break;
      return at + token.size();
    }
  }
  if (begins && calls) {
    const std::size_t end = strip_right(through).size();
    for (std::size_t at = end; at-- > begin;)
      if (const std::string_view token = token_at(text, at); at + token.size() == end && !token.empty()) return end;
  }
  fail<FormatError>("where the answer of turn ", turn + 1,
                    " ends in what the template writes can't be told: ", "no special token stands behind it");
}

LORA_INLINE void OwnTemplate::expect_all_said(std::span<const Message> messages, const RenderOptions& options,
                                              std::string_view text) const {
  for (std::size_t turn = 0; turn < messages.size(); ++turn) {
    const Message& message = messages[turn];
    const bool calls = !message.tool_calls.empty();
    const std::string_view said = strip(message.content);
    // Short words may stand there for another reason.
    constexpr std::size_t short_words = 24;
    const bool stands_there = said.empty() || (said.size() > short_words && text.find(said) != text.npos);
    if (message.role != "assistant") {
      // Where it refuses the other, it looks at what is said.
      if (!stands_there && write_with(messages, options, turn, with_other_content(message, text)) == text)
        fail<FormatError>("the template leaves out turn ", turn + 1, ", which has the role ", message.role,
                          "; expected records without such turns, or a template that writes them");
      continue;
    }
    if (!calls) continue;
    Message other = message;
    other.content = stand_in(text);
    if (!stands_there && write_with(messages, options, turn, other) == text)
      fail<FormatError>("the template leaves out what turn ", turn + 1,
                        " says beside its calls; expected calls without a content, or a template that writes both");
    for (std::size_t call = 0; call < message.tool_calls.size(); ++call) {
      other = message;
      other.tool_calls[call] = {stand_in(text), io::Json::object()};
      if (write_with(messages, options, turn, other) == text)
        fail<FormatError>("the template leaves out call ", call + 1, " of turn ", turn + 1,
                          "; expected turns of as many calls as it writes, or another template");
    }
  }
}

LORA_INLINE void OwnTemplate::expect_thoughts(const Message& last) const {
  const bool thinks = last.reasoning ? !last.reasoning->empty() : strip_left(last.content).starts_with("<think>");
  if (loses_thoughts_ && thinks && last.learned)
    fail<FormatError>(
        "the template leaves out the reasoning of the last turn, which then would not be learned; expected ",
        "answers without it, or a template that keeps it");
}

LORA_INLINE Rendering OwnTemplate::render(std::span<const Message> messages, const RenderOptions& options) const {
  Rendering out{write(messages, options)};
  expect_all_said(messages, options, out.text);
  if (options.add_generation_prompt) return out;
  for (std::size_t turn = 0; turn < messages.size(); ++turn) {
    if (messages[turn].role != "assistant") continue;
    if (end_.empty())
      fail<FormatError>(
          "the model's chat template writes no special token behind an answer, by which a model could learn ",
          "where to stop; expected one, or a choice by the key template");
    const std::size_t begin = begin_of(messages, options, turn, out.text);
    const std::size_t end = end_of(messages, options, turn, out.text, begin);
    const std::size_t before = out.answers.empty() ? 0 : out.answers.back().end;
    if (begin < before || end < begin)
      fail<FormatError>("the answer of turn ", turn + 1, " is written within another one");
    if (turn + 1 == messages.size()) expect_thoughts(messages[turn]);
    out.answers.push_back({begin, end});
  }
  return out;
}

}  // namespace lora::data::detail
