#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"

namespace lora::io {

/// Returns what in a folder was not written by this program, as the end of a sentence, or an empty text if everything
/// was. Only then may the folder be replaced or removed.
using Stranger = std::function<std::string(const Path&)>;

namespace detail {

void expect_own(const Path& folder, const Stranger& stranger);

/// Replaces a folder that this program wrote. Durable. `placed` is set once the new folder has its name: after a later
/// failure it is unknown which of the two is durable, and both are left for the next start. Where names can't be
/// exchanged the old folder is away for a moment; its lock keeps `clear_killed` of another process from putting it
/// back.
void replace_folder(const Path& from, const Path& folder, Unfinished& unfinished, bool& placed);

}  // namespace detail

/// Writes a folder atomically: `write(path)` fills a temporary folder next to it, which is then synced and renamed. An
/// existing folder is removed only once the new one is complete.
/// Throws   IoError if the existing folder was not written by this program
template <class Write>
void write_whole_folder(const Path& folder, const Stranger& stranger, Write&& write) {
  const Path parent = folder_of(folder);
  const Path partial = temporary_name(folder, Temporary::writing);
  if (is_there(folder)) detail::expect_own(folder, stranger);
  create_folders(parent);
  Unfinished unfinished(partial);
  bool placed = false;
  try {
    create_folder(partial);
    write(std::as_const(partial));
    sync_folder(partial);
    if (is_there(folder)) {
      detail::expect_own(folder, stranger);
      return detail::replace_folder(partial, folder, unfinished, placed);
    }
    io::rename(partial, folder);
    placed = true;
    sync_folder(parent);
  } catch (...) {
    if (!placed) {
      try {
        io::remove_all(partial);
      } catch (const IoError&) {  // the first error matters
      }
    }
    throw;
  }
}

/// Removes a folder atomically: it is never seen in part under its own name.
/// Throws   IoError if it was not written by this program
void remove_whole_folder(const Path& folder, const Stranger& stranger);

/// Removes what a process that was killed while writing a file or folder has left in `parent`, and restores a folder
/// that was moved away for one that was never completed. `place_of(name, entry)`: the final name of a temporary `entry`
/// that belongs to the caller and that no process is writing, else nothing.
template <class PlaceOf>
void clear_unfinished(const Path& parent, PlaceOf&& place_of) {
  std::optional<std::string> place;
  const auto is = [&](const Path& entry, Temporary kind) {
    const auto name = name_of_temporary(entry, kind);
    place = name ? place_of(*name, entry) : std::nullopt;
    return place.has_value();
  };
  for (const Path& entry : entries_of(parent)) {
    if (is(entry, Temporary::partial)) {
      if (is_file(entry)) remove_file(entry);
    } else if (is(entry, Temporary::writing) || is(entry, Temporary::removing)) {
      if (is_folder(entry)) io::remove_all(entry);
    } else if (is(entry, Temporary::replaced) && is_folder(entry)) {
      if (is_there(parent / *place)) {
        io::remove_all(entry);
      } else {
        io::rename(entry, parent / *place);
        sync_folder(parent);
      }
    }
  }
}

/// A place_of for clear_unfinished that accepts names for which is_one(name) holds.
template <class IsOne>
auto place_among(IsOne is_one) {
  return [is_one](const std::string& name, const Path&) { return is_one(name) ? std::optional(name) : std::nullopt; };
}

/// Removes what killed processes of this user have left of one file or folder. A writer holds a lock on its temporary
/// file or folder, so that one in use is kept.
void clear_killed(const Path& place);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/atomic_folder.ipp"
#endif
