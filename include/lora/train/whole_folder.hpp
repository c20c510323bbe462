#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/io/file.hpp"

namespace lora::train {

namespace detail {

/// What stands under a name itself; nothing there is `not_found`.
/// Throws   IoError where that cannot be told
inline std::filesystem::file_type type_of(const io::Path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::none) io::detail::fail_io("look at", path, error.value());
  return status.type();
}

inline bool is_there(const io::Path& path) { return type_of(path) != std::filesystem::file_type::not_found; }
inline bool is_folder(const io::Path& path) { return type_of(path) == std::filesystem::file_type::directory; }
inline bool is_file(const io::Path& path) { return type_of(path) == std::filesystem::file_type::regular; }

inline std::vector<io::Path> entries_of(const io::Path& folder) {
  std::vector<io::Path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory) io::detail::fail_io("list", folder, error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

inline bool is_same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

/// Whether a path leads to a file or folder, or to something in that folder: by identity, however they are named.
inline bool lies_within(const io::Path& input, const io::Path& place) {
  struct stat wanted {};
  if (::stat(place.c_str(), &wanted) != 0) return false;
  std::error_code none;
  io::Path path = std::filesystem::canonical(input, none);
  for (bool more = !none; more; path = path.parent_path()) {
    struct stat found {};
    if (::stat(path.c_str(), &found) == 0 && is_same(wanted, found)) return true;
    more = path.has_relative_path();
  }
  return false;
}

/// What of an input, a file or a folder of files, lies at `place` or in it: the input, or a link that it holds.
inline std::optional<io::Path> input_within(const io::Path& input, const io::Path& place) {
  if (lies_within(input, place)) return input;
  std::error_code none;
  if (!std::filesystem::is_directory(input, none)) return std::nullopt;
  for (const io::Path& entry : entries_of(input))
    if (type_of(entry) == std::filesystem::file_type::symlink && lies_within(entry, place)) return entry;
  return std::nullopt;
}

}  // namespace detail

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
  const io::Path parent = io::detail::folder_of(folder);
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
  const io::Path parent = io::detail::folder_of(folder);
  const io::Path partial = io::temporary_name(folder, io::Temporary::writing);
  if (detail::is_there(folder)) detail::expect_own(folder, stranger);
  io::create_folders(parent);
  io::Unfinished unfinished(partial);
  bool placed = false;
  try {
    io::create_folder(partial);
    write(std::as_const(partial));
    io::sync_folder(partial);
    if (detail::is_there(folder)) {
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
  if (!detail::is_there(folder)) return;
  detail::expect_own(folder, stranger);
  const io::Path doomed = io::temporary_name(folder, io::Temporary::removing);
  io::rename(folder, doomed);
  io::sync_folder(io::detail::folder_of(folder));
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
  for (const io::Path& entry : detail::entries_of(parent)) {
    if (is(entry, Temporary::partial)) {
      if (detail::is_file(entry)) io::remove_file(entry);
    } else if (is(entry, Temporary::writing) || is(entry, Temporary::removing)) {
      if (detail::is_folder(entry)) io::remove_all(entry);
    } else if (is(entry, Temporary::replaced) && detail::is_folder(entry)) {
      if (detail::is_there(parent / *place)) {
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
  clear_unfinished(io::detail::folder_of(place), [&](const std::string& name, const io::Path& entry) {
    std::optional<std::string> found;
    struct stat status {};
    if (name != io::held_name(place.filename()) || ::lstat(entry.c_str(), &status) != 0 || status.st_uid != ::geteuid())
      return found;
    try {
      const io::Lock lock(entry, detail::is_folder(entry) ? io::Lock::Of::folder : io::Lock::Of::file);
      if (lock.held()) found = place.filename();
    } catch (const IoError&) {  // somebody is at it
    }
    return found;
  });
}

}  // namespace lora::train
