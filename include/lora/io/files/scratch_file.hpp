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
#include "lora/io/files/file_system.hpp"
#include "lora/io/files/read_file.hpp"

namespace lora::io {

/// Where scratch files lie: TMPDIR, else /var/tmp, which unlike /tmp is no memory.
Path scratch_folder();

namespace detail {

/// Creates a file and removes its name at once: for file systems that have no nameless files (O_TMPFILE).
/// Returns   the descriptor, or -1 with errno set
int create_and_unlink(const Path& folder);

}  // namespace detail

/// A file without a name, for what is too large for memory: it is gone when it is closed, however the process ends.
class ScratchFile {
 public:
  /// `holds`: what it is for, in errors. Throws   IoError
  explicit ScratchFile(std::string holds);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() { ::close(descriptor_); }

  /// Throws   IoError, such as for a full disk
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

  int descriptor() const { return descriptor_; }
  const std::string& holds() const { return holds_; }

 private:
  [[noreturn]] void fail_here(int error) const;

  std::string holds_;
  Path folder_;
  int descriptor_ = -1;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/scratch_file.ipp"
#endif
