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
#include "lora/io/files/read_file.hpp"

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

std::atomic<FileHook*>& file_hook();

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
[[noreturn]] void fail_unfollowed(std::string_view action, const Path& path, const Path& named, int error);

}  // namespace detail

/// The folder that holds `path`.
Path folder_of(const Path& path);

namespace detail {

int remove_name(const Path& path);

}  // namespace detail

/// Sets the hook (null: none) and returns the previous one. For tests.
inline FileHook* set_file_hook(FileHook* hook) { return detail::file_hook().exchange(hook); }

/// Makes names created, renamed or removed in `folder` durable.
void sync_folder(const Path& folder);

/// Replaces a file or an empty folder at `to`. Atomic; not yet durable.
void rename(const Path& from, const Path& to);

/// Exchanges two names, atomically; not yet durable. False where the file system can't.
bool exchange(const Path& a, const Path& b);

/// Throws   IoError if the disk of `folder` has fewer than `bytes` free
void expect_room(const Path& folder, std::uint64_t bytes, std::string_view what);

/// Removes a file or an empty folder; false where there was none.
bool remove_file(const Path& path);

/// Removes a file, or a folder with its content. Does not follow symbolic links. A missing path is no error.
void remove_all(const Path& path);

/// Creates a folder, which must not exist; not yet durable.
void create_folder(const Path& path);

/// Creates a folder and its missing parents, durably.
void create_folders(const Path& path);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/file_system.ipp"
#endif
