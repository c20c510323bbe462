#pragma once

#include "lora/core/config.hpp"
#include "lora/data/records/data_file.hpp"

namespace lora::data::detail {

/// The type of records that an ending tells; empty: none.
inline std::string_view record_type(const io::Path& path) {
  constexpr std::pair<std::string_view, std::string_view> types[] = {{".json", ".json"}, {".jsonl", ".json"},
                                                                     {".csv", ".csv"},   {".tsv", ".csv"},
                                                                     {".txt", ".txt"},   {".parquet", ".parquet"}};
  const std::string ending = io::lower_extension(io::unpacked_name(path));
  for (const auto& [known, type] : types)
    if (ending == known) return type;
  return {};
}

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE std::vector<std::string> files_at(const std::string& path) {
  std::error_code unreadable;  // reported by what opens it
  if (!std::filesystem::is_directory(path, unreadable)) return {path};
  if (io::is_there(io::Path(path) / "dataset_info.json"))
    fail<FormatError>("dataset ", std::string_view(path), " is a folder with a dataset_info.json; expected a name in ",
                      "that, with the folder as dataset_dir, or a file");
  std::vector<std::string> files;
  for (const io::Path& entry : io::entries_of(path)) {
    if (entry.filename().native().starts_with('.')) continue;
    const std::string_view type = detail::record_type(entry);
    if (type.empty() || !std::filesystem::is_regular_file(entry, unreadable))
      fail<FormatError>(entry.native(), ": no file of records; expected in a folder of them only .json and .jsonl, ",
                        ".csv and .tsv, .parquet or .txt, also compressed");
    if (!files.empty() && type != detail::record_type(files.front()))
      fail<FormatError>(entry.native(), " lies beside ", std::string_view(files.front()),
                        "; expected files of one type in a folder of records");
    files.push_back(entry.native());
  }
  if (files.empty())
    fail<IoError>("dataset ", std::string_view(path), " is a folder without files; expected some of records");
  return files;
}

LORA_INLINE io::Path last_part(const io::Path& path) {
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

LORA_INLINE std::vector<std::string> names_of(std::span<const DataFile> files) {
  std::vector<std::string> names;
  for (const DataFile& file : files) {
    const std::string first =
        printable(file.name.empty() ? io::unpacked_name(last_part(file.path)).stem().native() : file.name);
    std::string name = first;
    for (int i = 2; std::find(names.begin(), names.end(), name) != names.end(); ++i) name = concat(first, "-", i);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace lora::data
