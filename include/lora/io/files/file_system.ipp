#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/file_system.hpp"

namespace lora::io::detail {

LORA_INLINE std::atomic<FileHook*>& file_hook() {
  static std::atomic<FileHook*> hook{nullptr};
  return hook;
}

LORA_INLINE void fail_unfollowed(std::string_view action, const Path& path, const Path& named, int error) {
  struct stat status {};
  if (error == ELOOP && ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
    fail<IoError>("cannot ", action, " ", named.native(), ": it is a link, which is not followed");
  fail_io(action, named, error);
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE Path folder_of(const Path& path) {
  const Path parent = path.parent_path();
  return parent.empty() ? Path(".") : parent;
}

}  // namespace lora::io

namespace lora::io::detail {

LORA_INLINE int remove_name(const Path& path) {
  return static_cast<int>(
      perform({FileOperation::Kind::remove, path, Path()}, [&](std::size_t) { return std::remove(path.c_str()); }));
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE void sync_folder(const Path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_io("sync", folder, errno);
  const auto result = detail::perform({FileOperation::Kind::sync_folder, folder, Path()},
                                      [&](std::size_t) { return ::fsync(descriptor); });
  const int error = result < 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0 && error != EINVAL) fail_io("sync", folder, error);  // EINVAL: it has nothing to sync
}

LORA_INLINE void rename(const Path& from, const Path& to) {
  const auto result = detail::perform({FileOperation::Kind::rename, from, to},
                                      [&](std::size_t) { return std::rename(from.c_str(), to.c_str()); });
  if (result < 0) fail_io(concat("rename ", from.native(), " to"), to, errno);
}

LORA_INLINE bool exchange(const Path& a, const Path& b) {
  const auto result = detail::perform({FileOperation::Kind::exchange, a, b}, [&](std::size_t) {
    return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  });
  if (result >= 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  fail_io(concat("exchange ", a.native(), " with"), b, errno);
}

LORA_INLINE void expect_room(const Path& folder, std::uint64_t bytes, std::string_view what) {
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

LORA_INLINE bool remove_file(const Path& path) {
  if (detail::remove_name(path) == 0) return true;
  if (errno != ENOENT) fail_io("remove", path, errno);
  return false;
}

LORA_INLINE void remove_all(const Path& path) {
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

LORA_INLINE void create_folder(const Path& path) {
  const auto result = detail::perform({FileOperation::Kind::create_folder, path, Path()},
                                      [&](std::size_t) { return ::mkdir(path.c_str(), 0777); });
  if (result < 0) fail_io("create folder", path, errno);
}

LORA_INLINE void create_folders(const Path& path) {
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
