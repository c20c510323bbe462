#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/read_file.hpp"

namespace lora::io {

LORA_INLINE void fail_io(std::string_view action, const Path& path, int error) {
  fail<IoError>("cannot ", action, " ", path.native(), ": ", std::generic_category().message(error));
}

LORA_INLINE bool is_there(const Path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

LORA_INLINE void fail_dangling(const Path& path) {
  std::error_code none;
  const Path target = std::filesystem::read_symlink(path, none);
  const bool cached = target.parent_path().filename() == "blobs";
  fail<IoError>("cannot open ", path.native(), ": it is a link to a file that does not exist",
                cached ? concat(": ", target.filename().native(), " of the local cache was not downloaded completely; ",
                                "hf download fetches it again")
                       : std::string());
}

LORA_INLINE FileReader::FileReader(const Path& path)
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

LORA_INLINE std::size_t FileReader::read(std::string& buffer) {
  for (;;) {
    const auto count = ::read(descriptor_, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) fail_io("read", path_, errno);
  }
}

LORA_INLINE std::string_view FileWindow::look(std::size_t count) {
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

LORA_INLINE std::optional<std::string_view> FileWindow::line(std::size_t limit) {
  for (std::size_t count = std::min(piece_.size(), limit);; count = std::min(2 * count, limit)) {
    const std::string_view text = look(count);
    if (const auto end = text.find('\n'); end != text.npos) return text.substr(0, end + 1);
    if (text.size() < count || count == limit) return std::nullopt;
  }
}

LORA_INLINE void FileWindow::pass(std::size_t count) {
  begin_ += count;
  offset_ += count;
}

LORA_INLINE FileSum file_sum(const Path& path) {
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

LORA_INLINE std::string read_file(const Path& path, std::size_t limit) {
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
