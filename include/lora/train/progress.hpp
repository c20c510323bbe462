#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lora/core/log.hpp"
#include "lora/io/file.hpp"
#include "lora/train/metrics.hpp"

namespace lora::train {

namespace detail {

template <class... Numbers>
std::string formatted(const char* format, Numbers... numbers) {
  char text[160];
  const int length = std::snprintf(text, sizeof text, format, numbers...);
  return std::string(text, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof text) - 1)));
}

}  // namespace detail

/// "1:02:03" or "2:03".
inline std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, 3.6e9) + 0.5);
  if (whole >= 3600) return detail::formatted("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return detail::formatted("%lld:%02lld", whole / 60, whole % 60);
}

/// One line on where a run stands.
inline std::string progress_line(const StepMetrics& metrics, Index total_steps, double seconds_left) {
  using detail::formatted;
  return concat("step ", metrics.step, "/", total_steps, formatted("  epoch %.2f", metrics.epoch),
                formatted("  loss %.4f", metrics.loss), formatted("  lr %.3g", metrics.learning_rate),
                formatted("  grad norm %.4g", metrics.grad_norm),
                formatted("  %.0f tokens/s", metrics.tokens_per_second), "  ", duration_text(seconds_left), " left",
                formatted("  %.2f GiB", metrics.peak_memory_gib));
}

/// What a run says, to standard error and to training.log, for as long as it lives. Where standard error is a terminal
/// a bar stands below the words and moves with every step; elsewhere, and in the file, each logged step is a line.
class Progress {
 public:
  Progress(const io::Path& training_log, bool append, Index total_steps, Index first_step = 0,
           bool terminal = ::isatty(STDERR_FILENO) == 1)
      : file_(std::in_place, training_log, append ? io::FileWriter::Mode::append : io::FileWriter::Mode::create),
        total_steps_(total_steps),
        first_step_(first_step),
        terminal_(terminal),
        start_(Clock::now()) {
    former_ = log::set_sink([this](log::Level level, std::string_view text) { say(level, text); });
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    log::set_sink(std::move(former_));
    clear();
  }

  /// `logged`: the step's line is written too, not only the bar moved.
  void step(const StepMetrics& metrics, bool logged) {
    const double done = static_cast<double>(metrics.step - first_step_);
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const double left = done > 0 ? seconds / done * static_cast<double>(total_steps_ - metrics.step) : 0;
    const std::string line = progress_line(metrics, total_steps_, left);
    if (terminal_) {
      if (logged) to_file(log::Level::info, line);
      const auto filled = static_cast<std::size_t>(20 * metrics.step / std::max<Index>(total_steps_, 1));
      draw(concat("[", std::string(filled, '='), std::string(20 - std::min<std::size_t>(filled, 20), ' '), "] ", line));
    } else if (logged) {
      log::info(line);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void say(log::Level level, std::string_view text) {
    clear();
    if (former_) former_(level, text);
    to_file(level, text);
    if (!bar_.empty()) draw(std::exchange(bar_, {}));
  }

  /// A full disk must not end the run through its words: the numbers and checkpoints report it.
  void to_file(log::Level level, std::string_view text) {
    if (!file_) return;
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char stamp[32];
    std::strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S ", &local);
    const char* prefix = level == log::Level::info ? "" : level == log::Level::warning ? "warning: " : "error: ";
    try {
      file_->write(concat(std::string_view(stamp), std::string_view(prefix), text, "\n"));
    } catch (const IoError& error) {
      file_.reset();
      if (former_) former_(log::Level::warning, concat("training.log ends here: ", std::string_view(error.what())));
    }
  }

  void draw(std::string bar) {
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
      bar.resize(std::min<std::size_t>(bar.size(), size.ws_col - 1u));
    std::fprintf(stderr, "\r\033[K%s", bar.c_str());
    bar_ = std::move(bar);
  }

  void clear() {
    if (!bar_.empty()) std::fputs("\r\033[K", stderr);
  }

  std::optional<io::FileWriter> file_;
  Index total_steps_;
  Index first_step_;
  bool terminal_;
  Clock::time_point start_;
  std::string bar_;
  log::Sink former_;
};

}  // namespace lora::train
