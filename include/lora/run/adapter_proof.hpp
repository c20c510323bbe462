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

/// Part of the README.md of every adapter that a run writes, which identifies it as a run's.
constexpr std::string_view card_head =
    "library_name: peft\npipeline_tag: text-generation\ntags:\n- lora\n---\n\n# LoRA adapter\n\n";

/// What in an adapter folder was not written by a run, or empty. A run's folder has a run's README.md and only files
/// that runs write; with an edited README.md it is the user's.
/// `more`: further files that a run writes into this kind of folder.
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
