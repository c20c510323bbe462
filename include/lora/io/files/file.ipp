#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/file.hpp"

namespace lora::io {

LORA_INLINE FileWriter::FileWriter(Path path, Mode mode, Path named)
    : path_(std::move(path)), named_(named.empty() ? path_ : std::move(named)) {
  const bool appends = mode == Mode::append;
  const int flags = O_WRONLY | O_CLOEXEC |
                    (mode == Mode::device ? 0
                     : appends            ? O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK
                                          : O_CREAT | O_EXCL | O_NOFOLLOW);
  descriptor_ = static_cast<int>(detail::perform({FileOperation::Kind::create, path_, Path(), 0, appends},
                                                 [&](std::size_t) { return ::open(path_.c_str(), flags, 0666); }));
  if (descriptor_ < 0) detail::fail_unfollowed("create", path_, named_, errno);
  // The file may have been replaced since it was checked: never overwrite somebody else's.
  struct stat status {};
  if (mode == Mode::create || ::fstat(descriptor_, &status) != 0 || S_ISREG(status.st_mode) == appends) return;
  ::close(descriptor_);
  if (appends) fail<IoError>("cannot append to ", named_.native(), ": not a regular file");
  fail<IoError>("cannot write ", named_.native(), ": a file has come there meanwhile");
}

LORA_INLINE FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      named_(std::move(other.named_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

LORA_INLINE FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(named_, other.named_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

LORA_INLINE FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LORA_INLINE void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t written =
        detail::perform({FileOperation::Kind::write, path_, Path(), bytes.size()},
                        [&](std::size_t count) { return ::write(descriptor_, bytes.data(), count); });
    if (written < 0) fail_io("write", named_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

LORA_INLINE void FileWriter::sync() {
  const auto result =
      detail::perform({FileOperation::Kind::sync, path_, Path()}, [&](std::size_t) { return ::fsync(descriptor_); });
  if (result < 0) fail_io("sync", named_, errno);
}

LORA_INLINE void FileWriter::close() {
  if (descriptor_ < 0) return;
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_io("write", named_, errno);
}

LORA_INLINE void truncate_file(const Path& path, std::size_t size) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) detail::fail_unfollowed("open", path, path, errno);
  auto result = detail::perform({FileOperation::Kind::truncate, path, Path(), size},
                                [&](std::size_t bytes) { return ::ftruncate(descriptor, static_cast<off_t>(bytes)); });
  if (result >= 0)
    result =
        detail::perform({FileOperation::Kind::sync, path, Path()}, [&](std::size_t) { return ::fsync(descriptor); });
  const int error = result < 0 ? errno : 0;
  ::close(descriptor);
  if (error != 0) fail_io("truncate", path, error);
}

LORA_INLINE void keep_begin(const Path& path, std::uint64_t size) {
  if (is_there(path) && FileReader(path).size() > size) truncate_file(path, size);
}

LORA_INLINE AtomicFile::AtomicFile(Path path)
    : path_(std::move(path)),
      direct_(is_special(path_)),
      partial_(direct_ ? path_ : temporary_name(path_, Temporary::partial)),
      unfinished_(direct_ ? Unfinished() : Unfinished(partial_)),
      writer_(partial_, direct_ ? FileWriter::Mode::device : FileWriter::Mode::create, path_) {}

LORA_INLINE AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      direct_(other.direct_),
      open_(std::exchange(other.open_, false)),
      partial_(std::move(other.partial_)),
      unfinished_(std::move(other.unfinished_)),
      writer_(std::move(other.writer_)) {}

LORA_INLINE AtomicFile::~AtomicFile() {
  if (open_ && !direct_) detail::remove_name(partial_);  // errors are ignored: nothing more can be done
}

LORA_INLINE void AtomicFile::settle() {
  if (!direct_) writer_.sync();
  writer_.close();
}

LORA_INLINE void AtomicFile::publish() {
  if (!direct_) io::rename(partial_, path_);
  open_ = false;
  unfinished_.finish();
}

LORA_INLINE void AtomicFile::commit() {
  settle();
  publish();
  if (!direct_) sync_folder(folder_of(path_));
}

LORA_INLINE bool AtomicFile::is_special(const Path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail_io("write", path, EISDIR);
    if (!S_ISREG(status.st_mode)) return true;
  }
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
    detail::fail_unfollowed("write", path, path, ELOOP);
  return false;
}

LORA_INLINE void write_file(const Path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

LORA_INLINE void write_file(const Path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

LORA_INLINE void copy_file(const Path& from, const Path& to) {
  std::optional<AtomicFile> file;  // created after opening the source, so that a missing source creates nothing
  FileReader source(from);
  detail::read_pieces(source, std::size_t{1} << 20, [&](std::string_view piece) {
    if (!file) file.emplace(to);
    file->write(piece);
  });
  if (!file) file.emplace(to);
  file->commit();
}

LORA_INLINE Lock::Lock(const Path& folder, Of kind)
    : descriptor_(
          ::open(folder.c_str(), O_RDONLY | O_CLOEXEC | (kind == Of::folder ? O_DIRECTORY : O_NOFOLLOW | O_NONBLOCK))) {
  if (descriptor_ < 0) fail_io("lock", folder, errno);
  const auto result = detail::perform({FileOperation::Kind::lock, folder, Path()},
                                      [&](std::size_t) { return ::flock(descriptor_, LOCK_EX | LOCK_NB); });
  if (result >= 0) return;
  const int error = errno;
  if (error == EBADF || error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) {
    log::warn("cannot lock ", folder.native(), " (", std::generic_category().message(error),
              "): make sure that no other run uses it");
    held_ = false;
    return;
  }
  ::close(descriptor_);
  if (error == EWOULDBLOCK)
    fail<IoError>("another run is using ", folder.native(), ": it holds the ", kind == Of::folder ? "folder" : "file",
                  "'s lock");
  fail_io("lock", folder, error);
}

LORA_INLINE Lock::~Lock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace lora::io
