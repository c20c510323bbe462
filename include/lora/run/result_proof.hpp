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
constexpr std::string_view adapter_card_head =
    "library_name: peft\npipeline_tag: text-generation\ntags:\n- lora\n---\n\n# LoRA adapter\n\n";
/// The same of every model.
constexpr std::string_view model_card_head =
    "library_name: transformers\npipeline_tag: text-generation\n---\n\n# Fine-tuned model\n\n";

namespace detail {

/// Whether a run writes files of this name beside a model's README.md: weights in one file or in shards, and settings.
inline bool is_of_model(std::string_view name) {
  constexpr std::string_view prefix = "model-", form = "00000-of-00000", suffix = ".safetensors";
  if (name == "model.safetensors" || name == "model.safetensors.index.json" || name == "generation_config.json")
    return true;
  if (name.size() != prefix.size() + form.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix))
    return false;
  const std::string_view numbers = name.substr(prefix.size(), form.size());
  return std::equal(numbers.begin(), numbers.end(), form.begin(),
                    [](char c, char f) { return f == '0' ? c >= '0' && c <= '9' : c == f; });
}

}  // namespace detail

/// What in the folder of an adapter or a model was not written by a run, or empty. A run's folder has a run's README.md
/// and only files that runs write; with an edited README.md it is the user's.
/// `more`: further files that a run writes into this kind of folder.
inline std::string stranger_beside_result(const io::Path& folder, std::initializer_list<std::string_view> more) {
  if (!io::is_folder(folder)) return "it is no folder";
  const std::string card = io::is_file(folder / "README.md") ? io::read_file(folder / "README.md") : "";
  const bool is_adapter = card.find(adapter_card_head) != card.npos && io::is_file(folder / "adapter_config.json");
  if (!is_adapter && card.find(model_card_head) == card.npos) return "it has no README.md of a run";
  const auto is_a_runs = [&](std::string_view name) {
    const auto among = [&](const auto& list) {
      return std::find(std::begin(list), std::end(list), name) != std::end(list);
    };
    const bool of_kind =
        is_adapter ? name == "adapter_config.json" || name == "adapter_model.safetensors" : detail::is_of_model(name);
    return of_kind || name == "README.md" || name == "config.json" || among(tokenizer::tokenizer_files) || among(more);
  };
  for (const io::Path& entry : io::entries_of(folder))
    if (!is_a_runs(entry.filename().native()))
      return concat("it holds ", entry.filename().native(), ", which no run wrote there");
  return {};
}
inline std::string stranger_in_result(const io::Path& folder) { return stranger_beside_result(folder, {}); }

}  // namespace lora::run
