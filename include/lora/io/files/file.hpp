#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
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
#include "lora/io/files/file_system.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/files/temporary.hpp"

namespace lora::io {

/// Writes a file unbuffered. Symbolic links are not followed.
class FileWriter {
 public:
  enum class Mode {
    create,  ///< a new file; an existing one is an error
    append,  ///< keeps the content of an existing file
    device,  ///< an existing device or pipe
  };

  /// `named`: the name of the file in errors, while it has a temporary name.
  explicit FileWriter(Path path, Mode mode = Mode::create, Path named = {});
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

  /// Makes the content durable; the file's name is durable only once its folder is synced.
  void sync();

  /// Some file systems report a failed write only here.
  void close();

  const Path& path() const { return path_; }

 private:
  Path path_;
  Path named_;
  int descriptor_ = -1;
};

/// Shortens a file to `size` bytes, durably.
void truncate_file(const Path& path, std::size_t size);

/// Leaves of a file, if there is one, its first `size` bytes.
void keep_begin(const Path& path, std::uint64_t size);

/// Writes a file atomically: under a temporary name in the same folder, then synced and renamed. Without a commit
/// nothing is left. A device or pipe is written to directly; a symbolic link to anything else is an error.
class AtomicFile {
 public:
  explicit AtomicFile(Path path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes) { writer_.write(bytes); }
  void write(std::string_view text) { writer_.write(text); }

  /// Makes the content durable, still under its temporary name.
  void settle();
  /// Renames the settled file; durable once the folder is synced.
  void publish();
  void commit();

  const Path& path() const { return path_; }
  /// The temporary name.
  const Path& partial() const { return partial_; }
  /// Whether it is a device or pipe.
  bool direct() const { return direct_; }

 private:
  static bool is_special(const Path& path);

  Path path_;
  bool direct_;
  bool open_ = true;
  Path partial_;
  Unfinished unfinished_;
  FileWriter writer_;
};

/// Writes a whole file atomically and durably.
void write_file(const Path& path, std::span<const std::byte> bytes);
void write_file(const Path& path, std::string_view text);

/// Copies a file's content, atomically at `to`.
void copy_file(const Path& from, const Path& to);

/// Locks a folder or file against other processes until destroyed. The system releases it when the process ends.
class Lock {
 public:
  enum class Of { folder, file };

  /// Throws   IoError if another run holds the folder
  explicit Lock(const Path& folder, Of kind = Of::folder);
  Lock(Lock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), held_(other.held_) {}
  Lock& operator=(Lock&&) = delete;
  ~Lock();

  /// False if the file system has no locks: then nothing is locked.
  bool held() const { return held_; }

 private:
  int descriptor_;
  bool held_ = true;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/file.ipp"
#endif
