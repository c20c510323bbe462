#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/core/scalar.hpp"

namespace lora::run {

/// "1:02:03" or "2:03".
std::string duration_text(double seconds);

/// The facts of a status line, the most important first.
using Facts = std::vector<std::string>;

std::string to_text(const Facts& facts);

/// A progress bar followed by as many facts as fit into `columns`. The bar shrinks in favor of the first four facts.
std::string bar_text(double done, const Facts& facts, std::size_t columns);

/// A status line at the bottom of the terminal, until destroyed: it stays below what is logged and is redrawn in place.
/// If standard error is not a terminal, nothing is drawn.
class StatusLine {
 public:
  explicit StatusLine(bool terminal = ::isatty(STDERR_FILENO) == 1);
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { clear(); }

  bool terminal() const { return terminal_; }

  void show(double done, const Facts& facts);

  void clear();

 private:
  void draw() const { std::fprintf(stderr, "\r\033[K%s", text_.c_str()); }
  void erase() const;

  bool terminal_;
  std::string text_;
  std::optional<log::Redirect> redirect_;
};

/// Progress over a known number of items: a bar on a terminal, elsewhere an occasional line.
class CountProgress {
 public:
  using Clock = std::chrono::steady_clock;

  /// For example "evaluating", "records", 1319. `seconds`: time between two lines.
  CountProgress(std::string does, std::string things, Index total, double seconds = 30,
                bool terminal = ::isatty(STDERR_FILENO) == 1);

  void reached(Index done, Index tokens);

  /// Removes the bar, before something else is written to the terminal.
  void clear() { line_.clear(); }

 private:
  Facts facts(Index done, Index tokens) const;

  std::string does_, things_;
  Index total_;
  Clock::duration between_;
  Clock::time_point start_, said_;
  StatusLine line_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/status_line.ipp"
#endif
