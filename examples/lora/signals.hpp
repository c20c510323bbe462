#pragma once

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "lora/io/mapped_file.hpp"
#include "lora/io/temporary.hpp"

/// The signal that asked for the end, 0 while none has. Whoever trains looks at it after each step.
inline std::atomic<int> asked_to_end{0};
static_assert(std::atomic<int>::is_always_lock_free);

/// To standard error, as a signal handler may; nothing where that would wait.
inline void say_in_handler(const char* text) {
  pollfd errors{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&errors, 1, 0) != 1 || (errors.revents & POLLOUT) == 0) return;
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody is there to read it
}

[[noreturn]] inline void end_at_once(int status) {
  lora::io::remove_unfinished();
  _exit(status);
}

/// SIGINT, SIGTERM and SIGHUP, unless the last is ignored as nohup has it.
inline void handle_ends(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_NODEFER;  // the second of a kind is heard while the first is handled
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction former {};
    if (number == SIGHUP && sigaction(number, nullptr, &former) == 0 && former.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
}

/// From here on a signal that asks for the end leaves nothing half-written. A write past the file size limit, or to a
/// pipe that nobody reads, fails with an error rather than killing the process, and so does reading a mapped file that
/// has become shorter.
inline void handle_signals() {
  handle_ends([](int number) { end_at_once(128 + number); });
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action {};
  action.sa_sigaction = [](int number, siginfo_t* info, void*) {
    const char* path = lora::io::mapped_at(info->si_addr);
    if (path == nullptr) {
      signal(number, SIG_DFL);  // what failed fails again, and ends the process
      return;
    }
    say_in_handler("error: ");
    say_in_handler(path);
    say_in_handler(": the file became shorter, or could not be read, while it was in use\n");
    end_at_once(1);
  };
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

/// From here on the first signal that asks for the end sets `asked_to_end`, and the second ends the process at once.
inline void stop_after_the_step() {
  handle_ends([](int number) {
    int none = 0;
    if (!asked_to_end.compare_exchange_strong(none, number)) end_at_once(128 + number);
    const int error = errno;  // of the call that was interrupted
    say_in_handler("\nstopping after this step; again to quit at once\n");
    errno = error;
  });
}
