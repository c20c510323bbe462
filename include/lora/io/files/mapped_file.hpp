#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <system_error>
#include <utility>

#include "lora/core/error.hpp"
#include "lora/core/signal_list.hpp"
#include "lora/io/files/lfs_pointer.hpp"
#include "lora/io/files/path.hpp"
#include "lora/io/files/scratch_file.hpp"

namespace lora::io {

namespace detail {

struct Mapping {
  const std::byte* begin = nullptr;
  std::size_t size = 0;
  const char* path = nullptr;
};

SignalList<Mapping>& mappings();

}  // namespace detail

/// The path of the file that is mapped at an address, or null. Async-signal-safe.
const char* mapped_at(const void* address);

/// A whole file as read-only memory. Pages are read when touched and shared by every process that maps the same file.
/// The file must not be truncated while it is mapped: touching the missing part raises SIGBUS, whose handler can find
/// the file with `mapped_at`.
class MappedFile {
 public:
  /// Throws   IoError if the file cannot be opened or is not a regular file, FormatError if it is a Git LFS pointer
  explicit MappedFile(Path path);
  /// What was written to a scratch file so far, which may be closed; `path` is what errors name.
  /// Throws   IoError
  MappedFile(const ScratchFile& file, Path path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  const Path& path() const { return path_; }

  /// Gives the pages that were read back to the system, which may keep them in its cache; they are read again when
  /// touched. Thread-safe.
  void release() const;
  /// Notes that this many neighboring bytes were read; releases pages once enough were. Thread-safe.
  void note_read(std::size_t bytes) const;

 private:
  struct Attempt {
    int error;
    bool regular;
  };
  /// Maps the file if it is a regular one.
  Attempt map(int descriptor);
  [[noreturn]] void fail_with(int error) const;

  Path path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  mutable std::atomic<std::size_t> read_ = 0;  // since the last release
  SignalList<detail::Mapping>::Entry entry_;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/mapped_file.ipp"
#endif
