#pragma once

#include <string>
#include <string_view>

#include "lora/core/log.hpp"

namespace lora::test {

/// Keeps logged words off the test's output while it lives, and can be asked what was said.
struct Quiet {
  std::string text;
  log::Sink former = log::set_sink([this](log::Level, std::string_view line) { text += concat(line, "\n"); });
  ~Quiet() { log::set_sink(former); }
  bool said(std::string_view words) const { return text.find(words) != std::string::npos; }
};

}  // namespace lora::test
