#pragma once

#include "lora/core/config.hpp"
#include "lora/inputs/paths.hpp"

namespace lora::inputs {

LORA_INLINE std::vector<RunInput> paths_of(const settings::Config& config, const io::Path& model,
                                           const data::RecordLists& lists) {
  std::vector<RunInput> all = {{config.model_preset.empty() ? "model_name_or_path" : "tokenizer_name_or_path", model}};
  if (!config.adapter_name_or_path.empty())
    all.emplace_back("adapter_name_or_path", find_adapter(config.adapter_name_or_path));
  for (const data::DataFile& file : config.dataset)
    if (!lists.contains(file.path)) all.emplace_back("dataset", file.path);
  for (const data::DataFile& file : config.eval_dataset)
    if (!lists.contains(file.path)) all.emplace_back("eval_dataset", file.path);
  for (const std::string& path : config.compare_with) all.emplace_back("compare_with", earlier_results(path));
  return all;
}

}  // namespace lora::inputs
