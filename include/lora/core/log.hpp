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
    const char* prefix = level == Level::info ? "" : "Warning: ";
    std::fprintf(stderr, "%s%.*s\n", prefix, static_cast<int>(text.size()), text.data());
  };
};

inline State& state() {
  static State instance;
  return instance;
}

}  // namespace detail

/// While it lives, what its thread logs goes to a sink of its own instead of the process's: runs of two threads do not
/// get each other's messages. Redirects of a thread end in the reverse of the order in which they began.
class Redirect {
 public:
  explicit Redirect(Sink sink) : sink_(std::move(sink)), outer_(std::exchange(innermost(), this)) {}
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;
  ~Redirect() { innermost() = outer_; }

  /// Sends a message to where it would have gone without this.
  void pass_on(Level level, std::string_view text) const { send(outer_, level, text); }

  /// Sends a message to the sink of `redirect`; null: to the process's.
  static void send(const Redirect* redirect, Level level, std::string_view text) {
    if (redirect != nullptr) {
      if (redirect->sink_) redirect->sink_(level, text);
      return;
    }
    auto& state = detail::state();
    const std::lock_guard lock(state.mutex);
    if (state.sink) state.sink(level, text);
  }
  /// The one that this thread's messages go to; null: none.
  static Redirect*& innermost() {
    thread_local Redirect* redirect = nullptr;
    return redirect;
  }

 private:
  Sink sink_;
  Redirect* outer_;
};

/// Replaces the sink, which is standard error by default, and returns the previous one. This is global to the process.
inline Sink set_sink(Sink sink) {
  auto& state = detail::state();
  const std::lock_guard lock(state.mutex);
  return std::exchange(state.sink, std::move(sink));
}

/// Escapes control characters other than newlines and tabs: messages contain names and texts from untrusted files.
void write(Level level, std::string_view text);

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

#ifndef LORA_COMPILED
#  include "lora/core/log.ipp"
#endif
