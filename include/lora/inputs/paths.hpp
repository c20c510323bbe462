#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/data/record_list.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/io/paths.hpp"
#include "lora/settings/config.hpp"

namespace lora::inputs {

/// A key and its file or folder.
using RunInput = std::pair<std::string_view, io::Path>;

/// The file of an earlier evaluation, which is named by itself or by its folder.
inline io::Path earlier_results(const io::Path& path) {
  return io::is_folder(path) ? path / "evaluation_results.json" : path;
}

/// The files and folders that a run reads. `model`: where its base was found; `lists`: records that are in no file.
inline std::vector<RunInput> paths_of(const settings::Config& config, const io::Path& model,
                                      const data::RecordLists& lists = {}) {
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
