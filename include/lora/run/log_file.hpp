#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lora/core/log.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"

namespace lora::run {

/// A file of logged lines, each with its time.
class LogFile {
 public:
  /// Throws   IoError
  LogFile(const io::Path& path, bool append);

  /// Returns   what has ended the file here, or nothing. A full disk must not end a run because of its log: writing
  ///           metrics or checkpoints reports it.
  std::optional<std::string> write(log::Level level, std::string_view text);

 private:
  std::optional<io::FileWriter> file_;
};

/// While it lives, what this thread logs goes to a file as well: logs/rank-N.log of a rank behind the first.
class RankLog {
 public:
  /// `append`: behind what is there.   Throws   IoError
  RankLog(const io::Path& output, int rank, bool append);

  static io::Path path(const io::Path& output, int rank);

 private:
  LogFile file_;
  log::Redirect redirect_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/log_file.ipp"
#endif
