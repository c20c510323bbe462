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

/// Receives whole sentences without a line end.
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

/// Puts another receiver in place of standard error and returns the former one. The one setting of the process: where
/// words go is not a property of a device or a run.
inline Sink set_sink(Sink sink) {
  auto& state = detail::state();
  const std::lock_guard lock(state.mutex);
  return std::exchange(state.sink, std::move(sink));
}

/// Control characters but line ends and tabs are written out: names and texts of strangers' files are in such
/// sentences.
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
