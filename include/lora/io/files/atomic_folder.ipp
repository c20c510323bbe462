#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/atomic_folder.hpp"

namespace lora::io::detail {

LORA_INLINE void expect_own(const Path& folder, const Stranger& stranger) {
  if (const std::string what = stranger(folder); !what.empty())
    fail<IoError>(folder.native(), " is in the way: ", what, "; move it elsewhere");
}

LORA_INLINE void replace_folder(const Path& from, const Path& folder, Unfinished& unfinished, bool& placed) {
  const Path parent = folder_of(folder);
  Path former = from;
  placed = exchange(from, folder);
  if (!placed) {
    const Lock lock(folder);
    unfinished.finish();  // a signal must leave the new folder for the next start while the old one is moved away
    former = temporary_name(folder, Temporary::replaced);
    io::rename(folder, former);
    try {
      io::rename(from, folder);
    } catch (...) {
      try {
        io::rename(former, folder);
      } catch (const IoError&) {  // the first error matters; the next start puts it back
      }
      throw;
    }
    placed = true;
  }
  sync_folder(parent);
  io::remove_all(former);
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE void remove_whole_folder(const Path& folder, const Stranger& stranger) {
  if (!is_there(folder)) return;
  detail::expect_own(folder, stranger);
  const Path doomed = temporary_name(folder, Temporary::removing);
  io::rename(folder, doomed);
  sync_folder(folder_of(folder));
  io::remove_all(doomed);
}

LORA_INLINE void clear_killed(const Path& place) {
  clear_unfinished(folder_of(place), [&](const std::string& name, const Path& entry) {
    std::optional<std::string> found;
    struct stat status {};
    if (name != held_name(place.filename()) || ::lstat(entry.c_str(), &status) != 0 || status.st_uid != ::geteuid())
      return found;
    try {
      const Lock lock(entry, is_folder(entry) ? Lock::Of::folder : Lock::Of::file);
      if (lock.held()) found = place.filename();
    } catch (const IoError&) {  // in use by another process
    }
    return found;
  });
}

}  // namespace lora::io
