#pragma once

#include <span>
#include <string_view>

namespace lora::data::detail {

/// Templates of one style are rendered by the same code.
enum class TemplateStyle { chatml, qwen, qwen3, smollm3, llama3, llama3_dated, alpaca, none, interpreted };

/// What tells templates of a style apart.
struct TemplateEntry {
  std::string_view name;
  TemplateStyle style;
  std::string_view text;          ///< in Jinja
  std::string_view system = "";   ///< default if the conversation has none
  std::string_view opening = "";  ///< text of a generation prompt after the assistant's header
  bool quotes_texts = false;      ///< arguments of a tool call that are a text become a JSON string
  std::span<const std::string_view> markers_of_tools{};
};

/// Whether it has no markers of its own.
constexpr bool is_plain(const TemplateEntry& entry) {
  return entry.style == TemplateStyle::alpaca || entry.style == TemplateStyle::none;
}

}  // namespace lora::data::detail
