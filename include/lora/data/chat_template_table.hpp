#pragma once

#include <cstdint>
#include <string_view>

namespace lora::data::detail {

enum class TemplateStyle { chatml, qwen, qwen3, smollm3, llama3, llama3_dated, alpaca, none };

struct TemplateEntry {
  std::string_view name;
  TemplateStyle style;
  std::string_view system = "";   ///< default if the conversation has none
  std::string_view opening = "";  ///< text of a generation prompt after the assistant's header
  bool quotes_texts = false;      ///< arguments of a tool call that are a text become a JSON string
};

constexpr std::string_view alpaca_system =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";

constexpr TemplateEntry template_entries[] = {
    {"qwen2", TemplateStyle::chatml, "You are a helpful assistant."},
    {"qwen2_5", TemplateStyle::qwen, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "", true},
    {"qwen2_5_base", TemplateStyle::qwen, "You are a helpful assistant.", "", true},
    {"qwen3", TemplateStyle::qwen3},
    {"qwen3_instruct_2507", TemplateStyle::qwen},
    {"qwen3_thinking_2507", TemplateStyle::qwen3, "", "<think>\n"},
    {"smollm2", TemplateStyle::chatml, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"smollm3", TemplateStyle::smollm3},
    {"chatml", TemplateStyle::chatml},
    {"llama3", TemplateStyle::llama3},
    {"llama3_1", TemplateStyle::llama3_dated, "2024-07-26"},
    {"llama3_2", TemplateStyle::llama3_dated},
    {"alpaca", TemplateStyle::alpaca, alpaca_system},
    {"none", TemplateStyle::none},
};

/// A published template text, identified by hash and length of its normalised text.
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
};

}  // namespace lora::data::detail
