#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "lora/io/atomic_folder.hpp"
#include "lora/io/read_file.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::run {

/// Stands in the README.md of every adapter that a run writes, and in no other program's.
constexpr std::string_view card_head =
    "library_name: peft\npipeline_tag: text-generation\ntags:\n- lora\n---\n\n# LoRA adapter\n\n";

/// A Stranger of final_model: a run's has the README.md that runs write, and besides only files that they write there.
/// A page that its reader has rewritten makes it his. The files have no checksums, since no loader would mind them.
/// `more`: further files that a run writes beside an adapter.
inline std::string stranger_beside_adapter(const io::Path& folder, std::initializer_list<std::string_view> more) {
  constexpr std::string_view names[] = {"adapter_config.json", "adapter_model.safetensors", "README.md", "config.json"};
  const auto is_a_runs = [&](std::string_view name) {
    const auto among = [&](const auto& list) {
      return std::find(std::begin(list), std::end(list), name) != std::end(list);
    };
    return among(names) || among(tokenizer::tokenizer_files) || among(more);
  };
  if (!io::is_folder(folder)) return "it is no folder";
  const io::Path card = folder / "README.md";
  if (!io::is_file(card) || !io::is_file(folder / "adapter_config.json") ||
      io::read_file(card).find(card_head) == std::string::npos)
    return "it has no README.md of a run";
  for (const io::Path& entry : io::entries_of(folder))
    if (!is_a_runs(entry.filename().native()))
      return concat("it holds ", entry.filename().native(), ", which no run wrote there");
  return {};
}
inline std::string stranger_in_adapter(const io::Path& folder) { return stranger_beside_adapter(folder, {}); }

}  // namespace lora::run
