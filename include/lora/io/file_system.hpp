#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/read_file.hpp"

namespace lora::io {

/// One operation on the file system. Everything that the library writes goes through these.
struct FileOperation {
  enum class Kind {
    create,
    write,
    sync,
    truncate,
    rename,
    exchange,
    remove,
    create_folder,
    sync_folder,
    lock,
    measure
  };

  Kind kind;
  const Path& path;
  const Path& target;     ///< of a rename: the new name; of an exchange: the other; else empty
  std::size_t bytes = 0;  ///< of a write: how many; of a truncate: the new size; of a measure: how many are wanted
  bool keeps = false;     ///< of a create: what the file holds is kept, for appending
};

/// The result of an operation: it succeeds, fails with an errno, or (for a write) writes fewer bytes.
struct FileVerdict {
  int error = 0;
  std::size_t bytes = SIZE_MAX;
};

/// Is called before and after every operation of the process; tests use it to count them and to make the k-th fail.
class FileHook {
 public:
  virtual ~FileHook() = default;
  virtual FileVerdict before(const FileOperation& operation) = 0;
  /// Called only if the operation succeeded.
  virtual void after(const FileOperation& operation) = 0;
};

namespace detail {

inline std::atomic<FileHook*>& file_hook() {
  static std::atomic<FileHook*> hook{nullptr};
  return hook;
}

/// Performs one operation. `call(bytes)` is the system call; it returns a negative number and sets errno on failure.
template <class Call>
std::int64_t perform(FileOperation operation, Call&& call) {
  FileHook* const hook = file_hook().load(std::memory_order_acquire);
  if (hook) {
    const FileVerdict verdict = hook->before(operation);
    if (verdict.error != 0) {
      errno = verdict.error;
      return -1;
    }
    if (operation.kind == FileOperation::Kind::write) operation.bytes = std::min(operation.bytes, verdict.bytes);
  }
  std::int64_t result = 0;
  do {
    result = static_cast<std::int64_t>(call(operation.bytes));
  } while (result < 0 && errno == EINTR);
  if (hook && result >= 0) hook->after(operation);
  return result;
}

/// Of a file that was opened without following links; `named` is what the error calls it.
[[noreturn]] inline void fail_unfollowed(std::string_view action, const Path& path, const Path& named, int error) {
  struct stat status {};
  if (error == ELOOP && ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
    fail<IoError>("cannot ", action, " ", named.native(), ": it is a link, which is not followed");
  fail_io(action, named, error);
}

}  // namespace detail

/// The folder that holds `path`.
inline Path folder_of(const Path& path) {
  const Path parent = path.parent_path();
  return parent.empty() ? Path(".") : parent;
}

namespace detail {

inline int remove_name(const Path& path) {
  return static_cast<int>(
      perform({FileOperation::Kind::remove, path, Path()}, [&](std::size_t) { return std::remove(path.c_str()); }));
}

}  // namespace detail

/// Sets the hook (null: none) and returns the previous one. For tests.
inline FileHook* set_file_hook(FileHook* hook) { return detail::file_hook().exchange(hook); }

/// Makes names created, renamed or removed in `folder` durable.
inline void sync_folder(const Path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_io("sync", folder, errno);
  const auto result = detail::perform({FileOperation::Kind::sync_folder, folder, Path()},
                                      [&](std::size_t) { return ::fsync(descriptor); });
  const int error = result < 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0 && error != EINVAL) fail_io("sync", folder, error);  // EINVAL: it has nothing to sync
}

/// Replaces a file or an empty folder at `to`. Atomic; not yet durable.
inline void rename(const Path& from, const Path& to) {
  const auto result = detail::perform({FileOperation::Kind::rename, from, to},
                                      [&](std::size_t) { return std::rename(from.c_str(), to.c_str()); });
  if (result < 0) fail_io(concat("rename ", from.native(), " to"), to, errno);
}

/// Exchanges two names, atomically; not yet durable. False where the file system can't.
inline bool exchange(const Path& a, const Path& b) {
  const auto result = detail::perform({FileOperation::Kind::exchange, a, b}, [&](std::size_t) {
    return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  });
  if (result >= 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  fail_io(concat("exchange ", a.native(), " with"), b, errno);
}

/// Throws   IoError if the disk of `folder` has fewer than `bytes` free
inline void expect_room(const Path& folder, std::uint64_t bytes, std::string_view what) {
  std::uint64_t free = 0;
  const auto result = detail::perform({FileOperation::Kind::measure, folder, Path(), bytes}, [&](std::size_t) {
    struct statvfs status {};
    if (::statvfs(folder.c_str(), &status) != 0) return -1;
    free = std::uint64_t{status.f_bavail} * status.f_frsize;
    errno = ENOSPC;
    return free < bytes ? -1 : 0;
  });
  if (result >= 0) return;
  if (errno != ENOSPC) fail_io("measure the disk of", folder, errno);
  constexpr double mib = 0x1p20;
  const auto rounded = [](double size) { return std::ceil(size * 10) / 10; };
  fail<IoError>("no room for ", what, " in ", folder.native(), ": it takes ", rounded(static_cast<double>(bytes) / mib),
                " MiB, and ", std::floor(static_cast<double>(free) / mib * 10) / 10, " MiB are free");
}

/// Removes a file or an empty folder; false where there was none.
inline bool remove_file(const Path& path) {
  if (detail::remove_name(path) == 0) return true;
  if (errno != ENOENT) fail_io("remove", path, errno);
  return false;
}

/// Removes a file, or a folder with its content. Does not follow symbolic links. A missing path is no error.
inline void remove_all(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::directory) {
    std::vector<Path> entries;
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
      entries.push_back(entry->path());
    if (error == std::errc::no_such_file_or_directory) return;  // another process was quicker
    if (error) fail_io("list", path, error.value());
    std::sort(entries.begin(), entries.end());
    for (const Path& entry : entries) io::remove_all(entry);
  }
  remove_file(path);
}

/// Creates a folder, which must not exist; not yet durable.
inline void create_folder(const Path& path) {
  const auto result = detail::perform({FileOperation::Kind::create_folder, path, Path()},
                                      [&](std::size_t) { return ::mkdir(path.c_str(), 0777); });
  if (result < 0) fail_io("create folder", path, errno);
}

/// Creates a folder and its missing parents, durably.
inline void create_folders(const Path& path) {
  if (path.empty()) return;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) fail_io("create folder", path, ENOTDIR);
    return;
  }
  if (errno != ENOENT) fail_io("create folder", path, errno);
  if (!path.has_filename()) return create_folders(path.parent_path());  // a trailing slash
  create_folders(path.parent_path());
  const auto result = detail::perform({FileOperation::Kind::create_folder, path, Path()},
                                      [&](std::size_t) { return ::mkdir(path.c_str(), 0777); });
  if (result < 0 && errno != EEXIST) fail_io("create folder", path, errno);
  sync_folder(folder_of(path));
}

}  // namespace lora::io
