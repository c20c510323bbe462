#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/io/file.hpp"

namespace lora::train {

namespace detail {

// What a folder is called while it is written, while it makes room for another, and while it is removed.
constexpr std::string_view writing_suffix = ".writing", replaced_suffix = ".replaced", removing_suffix = ".removing";

inline io::Path with_suffix(const io::Path& path, std::string_view suffix) {
  io::Path result = path;
  return result += suffix;
}

inline bool is_there(const io::Path& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

inline std::vector<io::Path> entries_of(const io::Path& folder) {
  std::vector<io::Path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory) io::detail::fail_io("list", folder, error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace detail

/// A folder that appears under its name whole or not at all: `write(path)` fills one beside it, which is then synced
/// and renamed. What stood there before goes away only once the new one is complete.
template <class Write>
void write_whole_folder(const io::Path& folder, Write&& write) {
  const io::Path parent = io::detail::folder_of(folder);
  const io::Path partial = detail::with_suffix(folder, detail::writing_suffix);
  const io::Path former = detail::with_suffix(folder, detail::replaced_suffix);
  io::create_folders(parent);
  io::remove_all(partial);
  try {
    io::create_folders(partial);
    write(std::as_const(partial));
    io::sync_folder(partial);
    if (detail::is_there(folder)) {
      io::remove_all(former);
      io::rename(folder, former);
    }
    io::rename(partial, folder);
    io::sync_folder(parent);
  } catch (...) {
    try {
      io::remove_all(partial);
      if (!detail::is_there(folder) && detail::is_there(former)) io::rename(former, folder);
    } catch (const IoError&) {  // the first error tells more; the next start clears what is left
    }
    throw;
  }
  io::remove_all(former);
}

/// Removes a folder so that it is never seen in part under its own name.
inline void remove_whole_folder(const io::Path& folder) {
  if (!detail::is_there(folder)) return;
  const io::Path doomed = detail::with_suffix(folder, detail::removing_suffix);
  io::remove_all(doomed);
  io::rename(folder, doomed);
  io::sync_folder(io::detail::folder_of(folder));
  io::remove_all(doomed);
}

/// Clears what a process that ended in the middle of one of the above has left in `parent`, and puts back what had to
/// make room for a folder that never came.
inline void clear_unfinished_folders(const io::Path& parent) {
  for (const io::Path& entry : detail::entries_of(parent)) {
    const std::string& name = entry.native();
    if (name.ends_with(detail::replaced_suffix)) {
      const io::Path place = name.substr(0, name.size() - detail::replaced_suffix.size());
      if (!detail::is_there(place)) {
        io::rename(entry, place);
        io::sync_folder(parent);
        continue;
      }
    } else if (!name.ends_with(detail::writing_suffix) && !name.ends_with(detail::removing_suffix)) {
      continue;
    }
    io::remove_all(entry);
  }
}

}  // namespace lora::train
