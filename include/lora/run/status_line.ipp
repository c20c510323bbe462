#pragma once

#include "lora/core/config.hpp"
#include "lora/run/status_line.hpp"

namespace lora::run {

LORA_INLINE std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, 3.6e9) + 0.5);
  const auto two_digits = [](long long number) { return concat(number < 10 ? "0" : "", number); };
  if (whole < 3600) return concat(whole / 60, ":", two_digits(whole % 60));
  return concat(whole / 3600, ":", two_digits(whole / 60 % 60), ":", two_digits(whole % 60));
}

LORA_INLINE std::string to_text(const Facts& facts) {
  std::string line;
  for (const auto& fact : facts) line += (line.empty() ? "" : "  ") + fact;
  return line;
}

LORA_INLINE std::string bar_text(double done, const Facts& facts, std::size_t columns) {
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(facts.size(), 4); ++i) wanted += facts[i].size() + 2;
  std::string line;
  if (const std::size_t room = columns - std::min(columns, wanted); room >= 8) {
    const std::size_t width = std::min<std::size_t>(room - 2, 20);
    const auto filled = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * static_cast<double>(width));
    line = concat("[", std::string(filled, '='), std::string(width - filled, ' '), "]");
  }
  for (const auto& fact : facts) {
    if (!line.empty() && line.size() + 2 + fact.size() > columns) break;
    line += (line.empty() ? "" : "  ") + fact;
  }
  return line.substr(0, columns);
}

LORA_INLINE StatusLine::StatusLine(bool terminal) : terminal_(terminal) {
  if (!terminal_) return;
  redirect_.emplace([this](log::Level level, std::string_view text) {
    erase();
    redirect_->pass_on(level, text);
    if (!text_.empty()) draw();
  });
}

LORA_INLINE void StatusLine::show(double done, const Facts& facts) {
  if (!terminal_) return;
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  text_ = bar_text(done, facts, known ? size.ws_col - 1u : 79u);
  draw();
}

LORA_INLINE void StatusLine::clear() {
  erase();
  text_.clear();
}

LORA_INLINE void StatusLine::erase() const {
  if (!text_.empty()) std::fputs("\r\033[K", stderr);
}

LORA_INLINE CountProgress::CountProgress(std::string does, std::string things, Index total, double seconds,
                                         bool terminal)
    : does_(std::move(does)), things_(std::move(things)), total_(total), line_(terminal) {
  between_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(terminal ? 0.1 : seconds));
  said_ = start_ = Clock::now();
  if (terminal) line_.show(0, facts(0, 0));
}

LORA_INLINE void CountProgress::reached(Index done, Index tokens) {
  const auto now = Clock::now();
  if (now - said_ < between_) return;
  said_ = now;
  if (line_.terminal()) {
    line_.show(static_cast<double>(done) / static_cast<double>(std::max<Index>(total_, 1)), facts(done, tokens));
  } else if (done < total_) {
    log::info(to_text(facts(done, tokens)));
  }
}

LORA_INLINE Facts CountProgress::facts(Index done, Index tokens) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  Facts facts{concat(does_, " ", done, "/", total_, " ", things_)};
  if (done > 0)
    facts.push_back(
        duration_text(seconds / static_cast<double>(done) * static_cast<double>(std::max<Index>(total_ - done, 0))) +
        " left");
  if (tokens > 0 && seconds > 0) facts.push_back(fixed(static_cast<double>(tokens) / seconds, 0) + " tokens/s");
  return facts;
}

}  // namespace lora::run
