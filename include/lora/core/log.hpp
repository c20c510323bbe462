#pragma once

#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"

namespace lora::log {

enum class Level { info, warning };

/// Receives one message at a time, without a trailing newline.
using Sink = std::function<void(Level, std::string_view)>;

namespace detail {

struct State {
  std::mutex mutex;
  Sink sink = [](Level level, std::string_view text) {
    const char* prefix = level == Level::info ? "" : "warning: ";
    std::fprintf(stderr, "%s%.*s\n", prefix, static_cast<int>(text.size()), text.data());
  };
};

inline State& state() {
  static State instance;
  return instance;
}

}  // namespace detail

/// Replaces the sink, which is standard error by default, and returns the previous one. This is global to the process.
inline Sink set_sink(Sink sink) {
  auto& state = detail::state();
  const std::lock_guard lock(state.mutex);
  return std::exchange(state.sink, std::move(sink));
}

/// Escapes control characters other than newlines and tabs: messages contain names and texts from untrusted files.
inline void write(Level level, std::string_view text) {
  const std::string shown = printable(text, true);
  auto& state = detail::state();
  const std::lock_guard lock(state.mutex);
  if (state.sink) state.sink(level, shown);
}

template <class... Parts>
void info(const Parts&... parts) {
  write(Level::info, concat(parts...));
}

template <class... Parts>
void warn(const Parts&... parts) {
  const lora::detail::Argument arguments[] = {lora::detail::Argument(parts)...};
  write(Level::warning, lora::detail::join_shortened(arguments, sizeof...(parts)));
}

}  // namespace lora::log
