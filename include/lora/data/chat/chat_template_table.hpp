#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/hash.hpp"
#include "lora/data/chat/chat_template_entry.hpp"
#include "lora/data/chat/chat_template_texts.hpp"
#include "lora/data/chat/chat_text.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::data::detail {

/// Of reasoning and tool calls, where they are tokens of the models that a template was published with.
inline constexpr std::string_view think_markers[] = {"<think>", "</think>"};
inline constexpr std::string_view call_markers[] = {"<tool_call>", "</tool_call>"};
inline constexpr std::string_view tool_markers[] = {"<tool_call>", "</tool_call>", "<tool_response>",
                                                    "</tool_response>"};

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

/// Jinja that writes the tokenizer's opening, before the text of a plain one.
inline std::string opening_tag(std::string_view opening) {
  return opening.empty() ? "" : concat("{{- ", io::to_text(std::string(opening), -1), " }}\n");
}

/// A template text, published or written by a run, identified by hash and length of its significant_text.
struct PublishedTemplate {
  std::uint64_t hash;
  std::size_t bytes;
  std::string_view name;
};

constexpr PublishedTemplate published_templates[] = {
    {0xD736192DB2408D0Bu, 330, "qwen2"},
    {0xD56480D37669A6F7u, 2039, "qwen2_5"},
    {0xCD0AECAFF773958Fu, 1959, "qwen2_5_base"},
    {0xE0C634A890169A9Bu, 3211, "qwen3"},
    {0x6959EC31445DB64Cu, 3235, "qwen3"},  // the later revision, the same for contents that are text
    {0x358D6F8D2148A56Au, 1993, "qwen3_instruct_2507"},
    {0xD9A336F098E73463u, 3138, "qwen3_thinking_2507"},
    {0x7508C1257520A9B4u, 370, "smollm2"},
    {0xC9139F3B61B5465Bu, 4598, "smollm3"},
    {0xBE10679872D5C79Au, 198, "chatml"},
    {0x0E60067A5537498Eu, 389, "llama3"},
    {0x9844DD84092AF193u, 3545, "llama3_1"},
    {0x6A94F633D73FB4BEu, 3053, "llama3_2"},
    {0x2933F78C29B2A345u, 631, "alpaca"},
    {0x162BDDF38CE5B856u, 267, "none"},
};

/// The template with this text, but for white space that it does not write; null if it is not known.
inline const TemplateEntry* entry_of(std::string_view text) {
  const std::string significant = significant_text(text);
  const auto find = [](std::string_view rest) -> const TemplateEntry* {
    const std::uint64_t hash = text_hash(rest);
    for (const auto& known : published_templates)
      if (known.hash == hash && known.bytes == rest.size())
        return std::find_if(std::begin(template_entries), std::end(template_entries),
                            [&](const auto& entry) { return entry.name == known.name; });
    return nullptr;
  };
  if (const TemplateEntry* entry = find(significant)) return entry;
  constexpr std::string_view begin = "{{ \"", end = "\" }}";
  const auto tag = significant.starts_with(begin) ? significant.find(end) : significant.npos;
  if (tag == significant.npos) return nullptr;
  const TemplateEntry* entry = find(std::string_view(significant).substr(tag + end.size()));
  return entry != nullptr && is_plain(*entry) ? entry : nullptr;
}

}  // namespace lora::data::detail
