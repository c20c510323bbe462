#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/hash.hpp"
#include "lora/data/chat_template_texts.hpp"
#include "lora/data/chat_text.hpp"
#include "lora/io/json.hpp"

namespace lora::data::detail {

enum class TemplateStyle { chatml, qwen, qwen3, smollm3, llama3, llama3_dated, alpaca, none };

/// Of reasoning and tool calls, where they are tokens of the models that a template was published with.
inline constexpr std::string_view think_markers[] = {"<think>", "</think>"};
inline constexpr std::string_view call_markers[] = {"<tool_call>", "</tool_call>"};
inline constexpr std::string_view tool_markers[] = {"<tool_call>", "</tool_call>", "<tool_response>",
                                                    "</tool_response>"};

struct TemplateEntry {
  std::string_view name;
  TemplateStyle style;
  std::string_view text;          ///< in Jinja
  std::string_view system = "";   ///< default if the conversation has none
  std::string_view opening = "";  ///< text of a generation prompt after the assistant's header
  bool quotes_texts = false;      ///< arguments of a tool call that are a text become a JSON string
  std::span<const std::string_view> markers_of_tools{};
};

constexpr std::string_view alpaca_system =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";

constexpr std::string_view smollm3_think =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role as an assistant involves "
    "thoroughly exploring questions through a systematic thinking process before providing the final precise and "
    "accurate solutions. This requires engaging in a comprehensive cycle of analysis, summarizing, exploration, "
    "reassessment, reflection, backtracking, and iteration to develop well-considered thinking process. Please "
    "structure your response into two main sections: Thought and Solution using the specified format: <think> "
    "Thought "
    "section </think> Solution section. In the Thought section, detail your reasoning process in steps. Each step "
    "should include detailed considerations such as analysing questions, summarizing relevant findings, "
    "brainstorming "
    "new ideas, verifying the accuracy of the current steps, refining any errors, and revisiting previous steps. In "
    "the Solution section, based on various attempts, explorations, and reflections from the Thought section, "
    "systematically present the final solution that you deem correct. The Solution section should be logical, "
    "accurate, and concise and detail necessary steps needed to reach the conclusion.";
constexpr std::string_view smollm3_no_think = "You are a helpful AI assistant named SmolLM, trained by Hugging Face.";

constexpr TemplateEntry template_entries[] = {
    {"qwen2", TemplateStyle::chatml, qwen2_text, "You are a helpful assistant."},
    {"qwen2_5", TemplateStyle::qwen, qwen2_5_text,
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "", true, call_markers},
    {"qwen2_5_base", TemplateStyle::qwen, qwen2_5_base_text, "You are a helpful assistant.", "", true, call_markers},
    {"qwen3", TemplateStyle::qwen3, qwen3_text, "", "", false, tool_markers},
    {"qwen3_instruct_2507", TemplateStyle::qwen, qwen3_instruct_2507_text, "", "", false, tool_markers},
    {"qwen3_thinking_2507", TemplateStyle::qwen3, qwen3_thinking_2507_text, "", "<think>\n", false, tool_markers},
    {"smollm2", TemplateStyle::chatml, smollm2_text,
     "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"smollm3", TemplateStyle::smollm3, smollm3_text},
    {"chatml", TemplateStyle::chatml, chatml_text},
    {"llama3", TemplateStyle::llama3, llama3_text},
    {"llama3_1", TemplateStyle::llama3_dated, llama3_1_text, "2024-07-26"},
    {"llama3_2", TemplateStyle::llama3_dated, llama3_2_text},
    {"alpaca", TemplateStyle::alpaca, alpaca_text, alpaca_system},
    {"none", TemplateStyle::none, none_text},
};

/// Whether it has no markers of its own.
constexpr bool is_plain(const TemplateEntry& entry) {
  return entry.style == TemplateStyle::alpaca || entry.style == TemplateStyle::none;
}

/// Jinja that writes the tokenizer's opening, before the text of a plain one.
inline std::string opening_tag(std::string_view opening) {
  return opening.empty() ? "" : concat("{{- ", io::to_text(std::string(opening), -1), " }}\n");
}

/// A template text, published or written by a run, identified by hash and length of its normalised text.
struct PublishedTemplate {
  std::uint64_t hash;
  std::size_t bytes;
  std::string_view name;
};

constexpr PublishedTemplate published_templates[] = {
    {0xAC3E21ADF083D713u, 328, "qwen2"},
    {0x80EDB050BAB8A257u, 2146, "qwen2_5"},
    {0x1BDA3471B7BD88CFu, 2066, "qwen2_5_base"},
    {0x9D0F9E284D6DA15Eu, 3380, "qwen3"},
    {0x61AE26B23585F505u, 3412, "qwen3"},  // the later revision, the same for contents that are text
    {0x131B0A86E34FECEFu, 2114, "qwen3_instruct_2507"},
    {0x26A5556C8EF526A7u, 3309, "qwen3_thinking_2507"},
    {0x2D12679674ACF708u, 368, "smollm2"},
    {0x530F962A8FF77556u, 5198, "smollm3"},
    {0x0A2A7FDDE81FE93Eu, 196, "chatml"},
    {0xE6A91CA359F4278Cu, 387, "llama3"},
    {0x9A3E94DC0B68272Eu, 4048, "llama3_1"},
    {0xEF8F150C028C2230u, 3470, "llama3_2"},
    {0xBF5F0D1D6349BABFu, 662, "alpaca"},
    {0x98FF97B83D00EB95u, 284, "none"},
};

/// The template with this text, white space aside; null if it is not known.
inline const TemplateEntry* entry_of(std::string_view text) {
  const std::string normalised = normalise_white_space(text);
  const auto find = [](std::string_view rest) -> const TemplateEntry* {
    const std::uint64_t hash = text_hash(rest);
    for (const auto& known : published_templates)
      if (known.hash == hash && known.bytes == rest.size())
        return std::find_if(std::begin(template_entries), std::end(template_entries),
                            [&](const auto& entry) { return entry.name == known.name; });
    return nullptr;
  };
  if (const TemplateEntry* entry = find(normalised)) return entry;
  constexpr std::string_view begin = "{{- \"", end = "\" }} ";
  const auto tag = normalised.starts_with(begin) ? normalised.find(end) : normalised.npos;
  if (tag == normalised.npos) return nullptr;
  const TemplateEntry* entry = find(std::string_view(normalised).substr(tag + end.size()));
  return entry != nullptr && is_plain(*entry) ? entry : nullptr;
}

}  // namespace lora::data::detail
