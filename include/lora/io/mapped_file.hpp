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
#include "lora/io/lfs_pointer.hpp"
#include "lora/io/scratch_file.hpp"

namespace lora::io {

namespace detail {

struct Mapping {
  const std::byte* begin = nullptr;
  std::size_t size = 0;
  const char* path = nullptr;
};

inline SignalList<Mapping>& mappings() {
  static constinit SignalList<Mapping> all;
  return all;
}

}  // namespace detail

/// The path of the file that is mapped at an address, or null. Async-signal-safe.
inline const char* mapped_at(const void* address) {
  const char* path = nullptr;
  detail::mappings().visit([&](const detail::Mapping& mapping) {
    const auto* place = static_cast<const std::byte*>(address);
    if (!std::less<>()(place, mapping.begin) && std::less<>()(place, mapping.begin + mapping.size)) path = mapping.path;
  });
  return path;
}

/// A whole file as read-only memory. Pages are read when touched and shared by every process that maps the same file.
/// The file must not be truncated while it is mapped: touching the missing part raises SIGBUS, whose handler can find
/// the file with `mapped_at`.
class MappedFile {
 public:
  /// Throws   IoError if the file cannot be opened or is not a regular file, FormatError if it is a Git LFS pointer
  explicit MappedFile(std::filesystem::path path) : path_(std::move(path)) {
    const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (const int error = errno; descriptor < 0) {
      if (error == ENOENT && is_there(path_)) fail_dangling(path_);
      fail_with(error);
    }
    const auto [error, regular] = map(descriptor);
    ::close(descriptor);
    if (!regular) fail<IoError>("cannot map ", path_.native(), ": not a regular file");
    if (error != 0) fail_with(error);
    try {
      refuse_lfs_pointer(path_, {static_cast<const char*>(data_), size_});
    } catch (...) {
      ::munmap(data_, size_);
      throw;
    }
    if (size_ > 0) entry_ = detail::mappings().add({bytes().data(), size_, path_.c_str()});
  }
  /// What was written to a scratch file so far, which may be closed; `path` is what errors name.
  /// Throws   IoError
  MappedFile(const ScratchFile& file, std::filesystem::path path) : path_(std::move(path)) {
    if (const auto mapped = map(file.descriptor()); mapped.error != 0) fail_with(mapped.error);
    if (size_ > 0) entry_ = detail::mappings().add({bytes().data(), size_, path_.c_str()});
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    entry_.remove();
    if (size_ > 0) ::munmap(data_, size_);
  }

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Gives the pages that were read back to the system, which may keep them in its cache; they are read again when
  /// touched. Thread-safe.
  void release() const {
    read_.store(0, std::memory_order_relaxed);
    if (size_ > 0) ::madvise(data_, size_, MADV_DONTNEED);
  }
  /// Notes that this many neighboring bytes were read; releases pages once enough were. Thread-safe.
  void note_read(std::size_t bytes) const {
    constexpr std::size_t touched = std::size_t{64} << 10;  // a touch maps some sixteen pages
    constexpr std::size_t much = std::size_t{32} << 20;
    const std::size_t read = std::max(bytes, touched);
    if (read_.fetch_add(read, std::memory_order_relaxed) + read >= much) release();
  }

 private:
  struct Attempt {
    int error;
    bool regular;
  };
  /// Maps the file if it is a regular one.
  Attempt map(int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) return {errno, true};
    if (S_ISDIR(status.st_mode)) return {EISDIR, true};
    if (!S_ISREG(status.st_mode)) return {0, false};
    if (status.st_size == 0) return {0, true};
    void* const data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) return {errno, true};
    data_ = data;
    size_ = static_cast<std::size_t>(status.st_size);
    return {0, true};
  }
  [[noreturn]] void fail_with(int error) const {
    fail<IoError>("cannot open ", path_.native(), ": ", std::generic_category().message(error));
  }

  std::filesystem::path path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  mutable std::atomic<std::size_t> read_ = 0;  // since the last release
  SignalList<detail::Mapping>::Entry entry_;
};

}  // namespace lora::io
