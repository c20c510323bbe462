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

#include "lora/io/file.hpp"
#include "lora/io/paths.hpp"

namespace lora::train {

/// What in a folder no run of this program wrote, as the end of a sentence; empty where all of it is a run's. Only then
/// is a folder replaced or removed.
using Stranger = std::function<std::string(const io::Path&)>;

namespace detail {

inline void expect_own(const io::Path& folder, const Stranger& stranger) {
  if (const std::string what = stranger(folder); !what.empty())
    fail<IoError>(folder.native(), " is in the way: ", what, "; move it elsewhere");
}

/// Takes the place of a folder that is a run's. Durable. `placed` is set once it has the place: if it fails after
/// that, which of the two is durable is not known, and both are left for the next start.
inline void replace_folder(const io::Path& from, const io::Path& folder, io::Unfinished& unfinished, bool& placed) {
  const io::Path parent = io::folder_of(folder);
  io::Path former = from;
  placed = io::exchange(from, folder);
  if (!placed) {
    unfinished.finish();  // a signal must leave the new one for the next start, while the old one is out of its place
    former = io::temporary_name(folder, io::Temporary::replaced);
    io::rename(folder, former);
    try {
      io::rename(from, folder);
    } catch (...) {
      io::rename(former, folder);
      throw;
    }
    placed = true;
  }
  io::sync_folder(parent);
  io::remove_all(former);
}

}  // namespace detail

/// A folder that appears under its name whole or not at all: `write(path)` fills one beside it, which is then synced
/// and renamed. A run's folder that stood there goes away only once the new one is complete.
/// Throws   IoError if what stands there is not a run's
template <class Write>
void write_whole_folder(const io::Path& folder, const Stranger& stranger, Write&& write) {
  const io::Path parent = io::folder_of(folder);
  const io::Path partial = io::temporary_name(folder, io::Temporary::writing);
  if (io::is_there(folder)) detail::expect_own(folder, stranger);
  io::create_folders(parent);
  io::Unfinished unfinished(partial);
  bool placed = false;
  try {
    io::create_folder(partial);
    write(std::as_const(partial));
    io::sync_folder(partial);
    if (io::is_there(folder)) {
      detail::expect_own(folder, stranger);
      return detail::replace_folder(partial, folder, unfinished, placed);
    }
    io::rename(partial, folder);
    placed = true;
    io::sync_folder(parent);
  } catch (...) {
    if (!placed) {
      try {
        io::remove_all(partial);
      } catch (const IoError&) {  // the first error tells more
      }
    }
    throw;
  }
}

/// Removes a run's folder so that it is never seen in part under its own name.
/// Throws   IoError if it is not a run's
inline void remove_whole_folder(const io::Path& folder, const Stranger& stranger) {
  if (!io::is_there(folder)) return;
  detail::expect_own(folder, stranger);
  const io::Path doomed = io::temporary_name(folder, io::Temporary::removing);
  io::rename(folder, doomed);
  io::sync_folder(io::folder_of(folder));
  io::remove_all(doomed);
}

/// Clears what a process that ended in the middle of one of the above, or of a file, has left in `parent`, and puts
/// back what had to make room for a folder that never came. `place_of(name, entry)`: the name under which the writer
/// that calls this writes, if io::held_name makes that name of it and nobody is at the entry; else nothing.
template <class PlaceOf>
void clear_unfinished(const io::Path& parent, PlaceOf&& place_of) {
  using io::Temporary;
  std::optional<std::string> place;
  const auto is = [&](const io::Path& entry, Temporary kind) {
    const auto name = io::name_of_temporary(entry, kind);
    place = name ? place_of(*name, entry) : std::nullopt;
    return place.has_value();
  };
  for (const io::Path& entry : io::entries_of(parent)) {
    if (is(entry, Temporary::partial)) {
      if (io::is_file(entry)) io::remove_file(entry);
    } else if (is(entry, Temporary::writing) || is(entry, Temporary::removing)) {
      if (io::is_folder(entry)) io::remove_all(entry);
    } else if (is(entry, Temporary::replaced) && io::is_folder(entry)) {
      if (io::is_there(parent / *place)) {
        io::remove_all(entry);
      } else {
        io::rename(entry, parent / *place);
        io::sync_folder(parent);
      }
    }
  }
}

/// A place_of for clear_unfinished: one of some short names.
template <class IsOne>
auto place_among(IsOne is_one) {
  return
      [is_one](const std::string& name, const io::Path&) { return is_one(name) ? std::optional(name) : std::nullopt; };
}

/// Clears what killed processes of this user have left of one file or folder. Who writes such a one holds the lock of
/// it, under its temporary name, so that what is being written stays.
inline void clear_killed(const io::Path& place) {
  clear_unfinished(io::folder_of(place), [&](const std::string& name, const io::Path& entry) {
    std::optional<std::string> found;
    struct stat status {};
    if (name != io::held_name(place.filename()) || ::lstat(entry.c_str(), &status) != 0 || status.st_uid != ::geteuid())
      return found;
    try {
      const io::Lock lock(entry, io::is_folder(entry) ? io::Lock::Of::folder : io::Lock::Of::file);
      if (lock.held()) found = place.filename();
    } catch (const IoError&) {  // somebody is at it
    }
    return found;
  });
}

}  // namespace lora::train
