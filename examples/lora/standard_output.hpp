#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "lora/core/printable.hpp"

/// Writes a result as it is; where standard output is a terminal, with control characters but line ends and tabs
/// written out, for what a model says or a data file holds must not steer the terminal.
inline void print_result(std::string_view text) {
  static const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const std::string shown = is_terminal ? lora::printable(text, true) : std::string();
  if (is_terminal) text = shown;
  std::fwrite(text.data(), 1, text.size(), stdout);
}
