#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "lora/core/error.hpp"
#include "lora/io/file_system.hpp"
#include "lora/io/read_file.hpp"

namespace lora::io {

/// Where scratch files lie: TMPDIR, else /var/tmp, which unlike /tmp is no memory.
inline Path scratch_folder() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
}

/// A file without a name, for what is too large for memory: it is gone when it is closed, however the process ends.
class ScratchFile {
 public:
  /// `holds`: what it is for, in errors. Throws   IoError
  explicit ScratchFile(std::string holds) : holds_(std::move(holds)), folder_(scratch_folder()) {
    descriptor_ = static_cast<int>(detail::perform({FileOperation::Kind::create, folder_, Path()}, [&](std::size_t) {
      const int nameless = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
      if (nameless >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return nameless;
      std::string name = (folder_ / "lora-scratch-XXXXXX").native();  // a file system without nameless files
      const int named = ::mkostemp(name.data(), O_CLOEXEC);
      if (named >= 0) ::unlink(name.c_str());
      return named;
    }));
    if (descriptor_ < 0) fail_here(errno);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() { ::close(descriptor_); }

  /// Throws   IoError, such as for a full disk
  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::int64_t written =
          detail::perform({FileOperation::Kind::write, folder_, Path(), bytes.size()},
                          [&](std::size_t count) { return ::write(descriptor_, bytes.data(), count); });
      if (written < 0) fail_here(errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

  int descriptor() const { return descriptor_; }
  const std::string& holds() const { return holds_; }

 private:
  [[noreturn]] void fail_here(int error) const {
    fail<IoError>("cannot write ", holds_, " to a temporary file in ", folder_.native(), ": ",
                  std::generic_category().message(error), "; TMPDIR names another folder");
  }

  std::string holds_;
  Path folder_;
  int descriptor_ = -1;
};

}  // namespace lora::io
