#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"

/// Writes a result unchanged; to a terminal with control characters other than newlines and tabs escaped, since texts
/// of models and data files must not control the terminal. Throws   IoError, so that nothing more is computed if nobody
/// reads it
inline void print_result(std::string_view text) {
  static const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const std::string shown = is_terminal ? lora::printable(text, true) : std::string();
  if (is_terminal) text = shown;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  lora::fail<lora::IoError>("cannot write standard output: ", std::generic_category().message(errno));
}
