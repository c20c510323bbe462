#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

#include "lora/core/error.hpp"
#include "lora/core/hash.hpp"
#include "lora/io/lfs_pointer.hpp"
#include "lora/io/text_encoding.hpp"

namespace lora::io {

using Path = std::filesystem::path;

[[noreturn]] inline void fail_io(std::string_view action, const Path& path, int error) {
  fail<IoError>("cannot ", action, " ", path.native(), ": ", std::generic_category().message(error));
}

/// Whether anything has this name, including a dangling link and a file without permission: opening it then reports
/// what is wrong. An optional file counts as absent only if there is nothing.
inline bool is_there(const Path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/// Throws   IoError for a link to nothing: in the cache of the Hugging Face tools a file that was not fetched
[[noreturn]] inline void fail_dangling(const Path& path) {
  std::error_code none;
  const Path target = std::filesystem::read_symlink(path, none);
  const bool cached = target.parent_path().filename() == "blobs";
  fail<IoError>("cannot open ", path.native(), ": it is a link to a file that does not exist",
                cached ? concat(": ", target.filename().native(), " of the local cache was not downloaded completely; ",
                                "hf download fetches it again")
                       : std::string());
}

/// Reads a regular file. Anything else is rejected: a pipe without a writer would block, and a device may never end.
class FileReader {
 public:
  /// Throws   IoError
  explicit FileReader(const Path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    if (descriptor_ < 0) {
      const int error = errno;
      if (error == ENOENT && is_there(path)) fail_dangling(path);
      if (error == ENXIO) fail<IoError>("cannot read ", path.native(), ": it is a socket; expected a regular file");
      fail_io("open", path, error);
    }
    struct stat status {};
    const int error = ::fstat(descriptor_, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
    size_ = static_cast<std::uintmax_t>(status.st_size);
    if (error == 0 && S_ISREG(status.st_mode)) return;
    ::close(descriptor_);
    if (error != 0) fail_io("read", path, error);
    fail<IoError>("cannot read ", path.native(), ": it is a ", S_ISFIFO(status.st_mode) ? "pipe" : "device",
                  "; expected a regular file");
  }
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader() { ::close(descriptor_); }

  /// The size as the system reports it; 0 for files in /proc and the like.
  std::uintmax_t size() const { return size_; }
  const Path& path() const { return path_; }

  /// Fills the buffer with what comes next; returns how many bytes, 0 at the end.
  std::size_t read(std::string& buffer) {
    for (;;) {
      const auto count = ::read(descriptor_, buffer.data(), buffer.size());
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) fail_io("read", path_, errno);
    }
  }

 private:
  Path path_;
  int descriptor_;
  std::uintmax_t size_ = 0;
};

namespace detail {

/// Reads the rest of a file in pieces and passes each to `take(std::string_view)`.
template <class Take>
void read_pieces(FileReader& file, std::size_t piece_bytes, Take&& take) {
  std::string piece(piece_bytes, '\0');
  while (const std::size_t count = file.read(piece)) take(std::string_view(piece).substr(0, count));
}

}  // namespace detail

/// Goes through a file once, with no more of it in memory than is looked at.
class FileWindow {
 public:
  /// Throws   IoError
  explicit FileWindow(const Path& path, std::size_t piece_bytes = std::size_t{1} << 16)
      : file_(path), piece_(piece_bytes, '\0') {}

  /// The next bytes: `count` of them, or fewer where the file ends. Valid until the next call.
  std::string_view look(std::size_t count) {
    if (held_.size() - begin_ < count) {
      held_.erase(0, std::exchange(begin_, 0));
      while (held_.size() < count) {
        const std::size_t got = file_.read(piece_);
        if (got == 0) break;
        held_.append(piece_, 0, got);
      }
    }
    return std::string_view(held_).substr(begin_, count);
  }
  /// The next line with its end; nothing where none ends within `limit` bytes. Valid as above.
  std::optional<std::string_view> line(std::size_t limit) {
    for (std::size_t count = std::min(piece_.size(), limit);; count = std::min(2 * count, limit)) {
      const std::string_view text = look(count);
      if (const auto end = text.find('\n'); end != text.npos) return text.substr(0, end + 1);
      if (text.size() < count || count == limit) return std::nullopt;
    }
  }
  /// Leaves behind what was looked at.
  void pass(std::size_t count) {
    begin_ += count;
    offset_ += count;
  }

  /// Bytes that were passed.
  std::uint64_t offset() const { return offset_; }
  std::uint64_t size() const { return file_.size(); }

 private:
  FileReader file_;
  std::string piece_, held_;
  std::size_t begin_ = 0;  // of what comes next in held_
  std::uint64_t offset_ = 0;
};

/// The size and checksum of a file, which never is in memory whole.
struct FileSum {
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;
};
/// Throws   IoError
inline FileSum file_sum(const Path& path) {
  FileReader file(path);
  FileSum found;
  Checksum sum;
  detail::read_pieces(file, std::size_t{1} << 18, [&](std::string_view piece) {
    found.size += piece.size();
    sum.add(std::as_bytes(std::span(piece)));
  });
  found.checksum = sum.value();
  return found;
}

/// Limit for files that are read into memory whole: settings, templates, vocabularies. The largest published ones have
/// a tenth of it.
inline constexpr std::size_t whole_file_limit = std::size_t{256} << 20;

/// The whole content of a file.
/// Throws   IoError, also for more than `limit` bytes; FormatError if it is a Git LFS pointer, or UTF-16
inline std::string read_file(const Path& path, std::size_t limit = whole_file_limit) {
  const auto expect = [&](bool fits) {
    if (!fits)
      fail<IoError>("cannot read ", path.native(), ": it is longer than ", limit,
                    " bytes, the most that such a file may have");
  };
  FileReader file(path);
  expect(file.size() <= limit);
  std::string text;
  detail::read_pieces(file, std::size_t{1} << 16, [&](std::string_view piece) {
    expect(piece.size() <= limit - text.size());  // it may grow, or have no size
    text += piece;
  });
  refuse_lfs_pointer(path, text);
  refuse_wide_text(path, text);
  return text;
}

}  // namespace lora::io
