#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/io/read_file.hpp"

namespace lora::io {

/// One change to the file system. Everything that the library writes is a sequence of these.
struct FileOperation {
  enum class Kind { create, write, sync, truncate, rename, remove, create_folder, sync_folder, lock };

  Kind kind;
  const Path& path;
  const Path& target;     ///< of a rename: the new name; else empty
  std::size_t bytes = 0;  ///< of a write: how many; of a truncate: the new size
  bool keeps = false;     ///< of a create: what the file holds is kept, for appending
};

/// What becomes of an operation: it goes ahead, fails with an errno, or (a write) moves fewer bytes.
struct FileVerdict {
  int error = 0;
  std::size_t bytes = SIZE_MAX;
};

/// Sees every operation of the process before and after it happens; how tests count them and make the k-th one fail.
class FileHook {
 public:
  virtual ~FileHook() = default;
  virtual FileVerdict before(const FileOperation& operation) = 0;
  /// Only of operations that succeeded.
  virtual void after(const FileOperation& operation) = 0;
};

namespace detail {

inline std::atomic<FileHook*>& file_hook() {
  static std::atomic<FileHook*> hook{nullptr};
  return hook;
}

/// Does one operation: `call(bytes)` is the system call, negative with errno where it failed.
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

/// The folder that holds `path`.
inline Path folder_of(const Path& path) {
  const Path parent = path.parent_path();
  return parent.empty() ? Path(".") : parent;
}

inline int remove_name(const Path& path) {
  return static_cast<int>(
      perform({FileOperation::Kind::remove, path, Path()}, [&](std::size_t) { return std::remove(path.c_str()); }));
}

}  // namespace detail

/// Puts a hook in place (null: none) and returns the former one. For tests.
inline FileHook* set_file_hook(FileHook* hook) { return detail::file_hook().exchange(hook); }

/// A file that is written from its start or its end on, straight to the system, without a buffer of its own.
class FileWriter {
 public:
  enum class Mode { create, append };

  /// `create` empties a file that is there.
  explicit FileWriter(Path path, Mode mode = Mode::create) : path_(std::move(path)) {
    const bool appends = mode == Mode::append;
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (appends ? O_APPEND : O_TRUNC);
    descriptor_ = static_cast<int>(detail::perform({FileOperation::Kind::create, path_, Path(), 0, appends},
                                                   [&](std::size_t) { return ::open(path_.c_str(), flags, 0666); }));
    if (descriptor_ < 0) detail::fail_io("create", path_, errno);
  }
  FileWriter(FileWriter&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileWriter& operator=(FileWriter&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileWriter() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::int64_t written =
          detail::perform({FileOperation::Kind::write, path_, Path(), bytes.size()},
                          [&](std::size_t count) { return ::write(descriptor_, bytes.data(), count); });
      if (written < 0) detail::fail_io("write", path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

  /// What was written survives a loss of power from here on; the file's name only once its folder is synced too.
  void sync() {
    const auto result =
        detail::perform({FileOperation::Kind::sync, path_, Path()}, [&](std::size_t) { return ::fsync(descriptor_); });
    if (result < 0) detail::fail_io("sync", path_, errno);
  }

  /// Some file systems report a failed write only here.
  void close() {
    if (descriptor_ < 0) return;
    if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) detail::fail_io("write", path_, errno);
  }

  const Path& path() const { return path_; }

 private:
  Path path_;
  int descriptor_ = -1;
};

/// Makes names that were created, renamed or removed in `folder` survive a loss of power.
inline void sync_folder(const Path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) detail::fail_io("sync", folder, errno);
  const auto result = detail::perform({FileOperation::Kind::sync_folder, folder, Path()},
                                      [&](std::size_t) { return ::fsync(descriptor); });
  const int error = result < 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0 && error != EINVAL) detail::fail_io("sync", folder, error);  // EINVAL: it has nothing to sync
}

/// Replaces a file or an empty folder at `to`. Atomic; not yet durable.
inline void rename(const Path& from, const Path& to) {
  const auto result = detail::perform({FileOperation::Kind::rename, from, to},
                                      [&](std::size_t) { return std::rename(from.c_str(), to.c_str()); });
  if (result < 0) detail::fail_io(concat("rename ", from.native(), " to"), to, errno);
}

/// Removes a file or an empty folder; false where there was none.
inline bool remove_file(const Path& path) {
  if (detail::remove_name(path) == 0) return true;
  if (errno != ENOENT) detail::fail_io("remove", path, errno);
  return false;
}

/// Removes a folder with all it holds, or a file. Does not follow links. Nothing there is no error.
inline void remove_all(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::directory) {
    std::vector<Path> entries;
    for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
      entries.push_back(entry->path());
    if (error) detail::fail_io("list", path, error.value());
    std::sort(entries.begin(), entries.end());
    for (const Path& entry : entries) io::remove_all(entry);
  }
  remove_file(path);
}

/// Creates a folder and those above it that are missing, each durable.
inline void create_folders(const Path& path) {
  if (path.empty()) return;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) detail::fail_io("create folder", path, ENOTDIR);
    return;
  }
  if (errno != ENOENT) detail::fail_io("create folder", path, errno);
  if (!path.has_filename()) return create_folders(path.parent_path());  // a trailing slash
  create_folders(path.parent_path());
  const auto result = detail::perform({FileOperation::Kind::create_folder, path, Path()},
                                      [&](std::size_t) { return ::mkdir(path.c_str(), 0777); });
  if (result < 0 && errno != EEXIST) detail::fail_io("create folder", path, errno);
  sync_folder(detail::folder_of(path));
}

/// Shortens a file to `size` bytes, durably.
inline void truncate_file(const Path& path, std::size_t size) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) detail::fail_io("open", path, errno);
  auto result = detail::perform({FileOperation::Kind::truncate, path, Path(), size},
                                [&](std::size_t bytes) { return ::ftruncate(descriptor, static_cast<off_t>(bytes)); });
  if (result >= 0)
    result =
        detail::perform({FileOperation::Kind::sync, path, Path()}, [&](std::size_t) { return ::fsync(descriptor); });
  const int error = result < 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0) detail::fail_io("truncate", path, error);
}

/// A file that appears under its name whole or not at all: written beside it as NAME.partial, synced, renamed. Without
/// a commit nothing is left. A device or pipe is written to directly.
class AtomicFile {
 public:
  explicit AtomicFile(Path path)
      : path_(std::move(path)), direct_(is_special(path_)), writer_(direct_ ? path_ : partial_name()) {}
  AtomicFile(AtomicFile&& other) noexcept
      : path_(std::move(other.path_)),
        direct_(other.direct_),
        open_(std::exchange(other.open_, false)),
        writer_(std::move(other.writer_)) {}
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile() {
    if (open_ && !direct_) detail::remove_name(writer_.path());  // nothing more can be done if this fails
  }

  void write(std::span<const std::byte> bytes) { writer_.write(bytes); }
  void write(std::string_view text) { writer_.write(text); }

  /// Makes the content durable, still under its partial name.
  void settle() {
    if (!direct_) writer_.sync();
    writer_.close();
  }
  /// Gives the settled file its name; durable once the folder is synced.
  void publish() {
    if (!direct_) io::rename(writer_.path(), path_);
    open_ = false;
  }
  void commit() {
    settle();
    publish();
    if (!direct_) sync_folder(detail::folder_of(path_));
  }

  const Path& path() const { return path_; }

 private:
  static bool is_special(const Path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return false;
    if (S_ISDIR(status.st_mode)) detail::fail_io("write", path, EISDIR);
    return !S_ISREG(status.st_mode);
  }
  Path partial_name() const {
    Path name = path_;
    return name += ".partial";
  }

  Path path_;
  bool direct_;
  bool open_ = true;
  FileWriter writer_;
};

/// Writes a whole file atomically and durably.
inline void write_file(const Path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}
inline void write_file(const Path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

/// Copies a file's content, atomically at `to`.
inline void copy_file(const Path& from, const Path& to) {
  std::optional<AtomicFile> file;  // made once the source has been opened, so that a missing one creates nothing
  detail::read_pieces(from, std::size_t{1} << 20, [&](std::string_view piece) {
    if (!file) file.emplace(to);
    file->write(piece);
  });
  if (!file) file.emplace(to);
  file->commit();
}

/// Keeps other runs out of a folder until destroyed. The system drops it when the process ends, however it ends.
class Lock {
 public:
  /// Throws   IoError if another run holds the folder
  explicit Lock(const Path& folder) : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) detail::fail_io("lock", folder, errno);
    const auto result = detail::perform({FileOperation::Kind::lock, folder, Path()},
                                        [&](std::size_t) { return ::flock(descriptor_, LOCK_EX | LOCK_NB); });
    if (result >= 0) return;
    const int error = errno;
    if (error == EBADF || error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) {
      log::warn("cannot lock ", folder.native(), " (", std::generic_category().message(error),
                "): make sure that no other run uses it");
      return;
    }
    ::close(descriptor_);
    if (error == EWOULDBLOCK) fail<IoError>("another run is using ", folder.native(), ": it holds the folder's lock");
    detail::fail_io("lock", folder, error);
  }
  Lock(Lock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Lock& operator=(Lock&&) = delete;
  ~Lock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace lora::io
