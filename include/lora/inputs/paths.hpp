#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/data/records/record_list.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/settings/config.hpp"

namespace lora::inputs {

/// A key and its file or folder.
using RunInput = std::pair<std::string_view, io::Path>;

/// The file of an earlier evaluation, which is named by itself or by its folder.
inline io::Path earlier_results(const io::Path& path) {
  return io::is_folder(path) ? path / "evaluation_results.json" : path;
}

/// The files and folders that a run reads. `model`: where its base was found; `lists`: records that are in no file.
std::vector<RunInput> paths_of(const settings::Config& config, const io::Path& model,
                               const data::RecordLists& lists = {});

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/paths.ipp"
#endif
