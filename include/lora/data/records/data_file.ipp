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

LORA_INLINE std::optional<std::pair<Index, Index>> slice_of(std::string_view split, Index count) {
  if (split == "train" || split == "all") return std::pair{Index{0}, count};
  if (!split.starts_with("train[") || !split.ends_with(']')) return std::nullopt;
  split = split.substr(6, split.size() - 7);
  const std::size_t colon = split.find(':');
  if (colon == split.npos) return std::nullopt;
  std::string_view ends[] = {split.substr(0, colon), split.substr(colon + 1)};
  bool percents = false;  // of both, where one has the sign
  for (std::string_view& end : ends) {
    if (!end.ends_with('%')) continue;
    end.remove_suffix(1);
    if (end.empty()) return std::nullopt;
    percents = true;
  }
  Index slice[] = {0, count};
  for (std::size_t i = 0; i < 2; ++i) {
    if (ends[i].empty()) continue;
    const char* const end = ends[i].data() + ends[i].size();
    if (const auto read = std::from_chars(ends[i].data(), end, slice[i]); read.ec != std::errc() || read.ptr != end)
      return std::nullopt;
    if (percents && (slice[i] < -100 || slice[i] > 100)) return std::nullopt;
    if (percents) slice[i] = static_cast<Index>(std::nearbyint(static_cast<double>(slice[i] * count) / 100));
    slice[i] = slice[i] < 0 ? std::max<Index>(count + slice[i], 0) : std::min(slice[i], count);
  }
  return std::pair{slice[0], std::max(slice[0], slice[1])};
}

LORA_INLINE std::string told_split(std::string_view split) {
  return concat("\"split\" is ", split, ", and the records of a file are of no split but train; expected train, or a ",
                "slice of it, as train[:1000], train[-100:] or train[10%:20%]");
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
