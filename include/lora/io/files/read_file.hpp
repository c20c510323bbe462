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
#include "lora/io/files/lfs_pointer.hpp"
#include "lora/io/files/path.hpp"
#include "lora/io/files/text_encoding.hpp"

namespace lora::io {

[[noreturn]] void fail_io(std::string_view action, const Path& path, int error);

/// Whether anything has this name, including a dangling link and a file without permission: opening it then reports
/// what is wrong. An optional file counts as absent only if there is nothing.
bool is_there(const Path& path);

/// Throws   IoError for a link to nothing: in the cache of the Hugging Face tools a file that was not fetched
[[noreturn]] void fail_dangling(const Path& path);

/// Reads a regular file. Anything else is rejected: a pipe without a writer would block, and a device may never end.
class FileReader {
 public:
  /// Throws   IoError
  explicit FileReader(const Path& path);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader() { ::close(descriptor_); }

  /// The size as the system reports it; 0 for files in /proc and the like.
  std::uintmax_t size() const { return size_; }
  const Path& path() const { return path_; }

  /// Fills the buffer with what comes next; returns how many bytes, 0 at the end.
  std::size_t read(std::string& buffer);

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
  std::string_view look(std::size_t count);
  /// The next line with its end; nothing where none ends within `limit` bytes. Valid as above.
  std::optional<std::string_view> line(std::size_t limit);
  /// Leaves behind what was looked at.
  void pass(std::size_t count);

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
FileSum file_sum(const Path& path);

/// Limit for files that are read into memory whole: settings, templates, vocabularies. The largest published ones have
/// a tenth of it.
inline constexpr std::size_t whole_file_limit = std::size_t{256} << 20;

/// The whole content of a file.
/// Throws   IoError, also for more than `limit` bytes; FormatError if it is a Git LFS pointer, or UTF-16
std::string read_file(const Path& path, std::size_t limit = whole_file_limit);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/read_file.ipp"
#endif
