#pragma once

#include "lora/core/config.hpp"
#include "lora/run/result_proof.hpp"

namespace lora::run::detail {

/// Whether a run writes files of this name beside a model's README.md: weights in one file or in shards, and settings.
LORA_INLINE bool is_of_model(std::string_view name) {
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

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE std::string stranger_beside_result(const io::Path& folder, std::initializer_list<std::string_view> more) {
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

}  // namespace lora::run
