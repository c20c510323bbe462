#pragma once

#include <ctime>
#include <string>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/io/files/file_system.hpp"
#include "lora/run/log_file.hpp"

namespace lora::run {

LORA_INLINE LogFile::LogFile(const io::Path& path, bool append)
    : file_(std::in_place, path, append ? io::FileWriter::Mode::append : io::FileWriter::Mode::create) {}

LORA_INLINE std::optional<std::string> LogFile::write(log::Level level, std::string_view text) {
  if (!file_) return std::nullopt;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S ", &local);
  const char* prefix = level == log::Level::info ? "" : "Warning: ";
  try {
    file_->write(concat(std::string_view(stamp), std::string_view(prefix), text, "\n"));
    return std::nullopt;
  } catch (const IoError& error) {
    file_.reset();
    return error.what();
  }
}

LORA_INLINE RankLog::RankLog(const io::Path& output, int rank, bool append)
    : file_([&] {
        io::create_folders(output / "logs");
        return LogFile(path(output, rank), append);
      }()),
      redirect_([this](log::Level level, std::string_view text) {
        redirect_.pass_on(level, text);
        if (const auto error = file_.write(level, text))
          redirect_.pass_on(log::Level::warning, concat("the log of this rank ends here: ", *error));
      }) {}

LORA_INLINE io::Path RankLog::path(const io::Path& output, int rank) {
  return output / "logs" / concat("rank-", rank, ".log");
}

}  // namespace lora::run
