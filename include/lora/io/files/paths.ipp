#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/paths.hpp"

namespace lora::io {

LORA_INLINE std::filesystem::file_type type_of(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::none) fail_io("look at", path, error.value());
  return status.type();
}

LORA_INLINE std::vector<Path> entries_of(const Path& folder) {
  std::vector<Path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory) fail_io("list", folder, error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

LORA_INLINE std::optional<Index> number_behind(std::string_view prefix, const Path& path) {
  const std::string name = path.filename().native();
  if (!name.starts_with(prefix)) return std::nullopt;
  Index number = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
  if (error != std::errc() || number < 0 || name != concat(prefix, number)) return std::nullopt;
  return number;
}

LORA_INLINE std::optional<Path> newest_checkpoint(const Path& folder, std::string_view file) {
  std::optional<Path> newest;
  std::error_code none;
  for (const Path& place : {folder / "checkpoints", folder}) {
    if (newest || !std::filesystem::is_directory(place, none)) continue;
    Index highest = -1;
    for (const Path& entry : entries_of(place)) {
      const Index step = number_behind("checkpoint-", entry).value_or(-1);
      if (step <= highest || !std::filesystem::exists(entry / file, none)) continue;
      highest = step;
      newest = entry;
    }
  }
  return newest;
}

/// Whether a path is a file or folder, or something in that folder; compared by identity, not by name.
LORA_INLINE bool lies_within(const Path& input, const Path& place) {
  struct stat wanted {};
  if (::stat(place.c_str(), &wanted) != 0) return false;
  std::error_code none;
  Path path = std::filesystem::canonical(input, none);
  for (bool more = !none; more; path = path.parent_path()) {
    struct stat found {};
    if (::stat(path.c_str(), &found) == 0 && is_same(wanted, found)) return true;
    more = path.has_relative_path();
  }
  return false;
}

LORA_INLINE std::optional<Path> input_within(const Path& input, const Path& place) {
  if (lies_within(input, place)) return input;
  std::error_code none;
  if (!std::filesystem::is_directory(input, none)) return std::nullopt;
  for (const Path& entry : entries_of(input))
    if (type_of(entry) == std::filesystem::file_type::symlink && lies_within(entry, place)) return entry;
  return std::nullopt;
}

}  // namespace lora::io
