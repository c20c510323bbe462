#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>

/// The signal that asked for the end, 0 while none has. Whoever trains looks at it after each step.
inline std::atomic<int> asked_to_end{0};
static_assert(std::atomic<int>::is_always_lock_free);

/// From here on the first SIGINT or SIGTERM asks for the end, and the second ends the process at once. A write past the
/// file size limit fails with an error rather than killing the process.
inline void handle_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    int none = 0;
    if (!asked_to_end.compare_exchange_strong(none, number)) _exit(128 + number);
  };
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGXFSZ, SIG_IGN);
}
