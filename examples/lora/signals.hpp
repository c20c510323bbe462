#pragma once

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/temporary.hpp"

/// The signal that asked to stop, or 0. Training checks it after each step.
inline std::atomic<int> asked_to_end{0};
static_assert(std::atomic<int>::is_always_lock_free);

/// Writes to standard error, async-signal-safe; gives up if that would block.
inline void say_in_handler(const char* text) {
  pollfd errors{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&errors, 1, 0) != 1 || (errors.revents & POLLOUT) == 0) return;
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nobody reads it
}

[[noreturn]] inline void end_at_once(int status) {
  lora::io::remove_unfinished();
  _exit(status);
}

/// SIGINT, SIGTERM, those by which batch systems warn of a time limit and, unless it is ignored (nohup), SIGHUP.
inline void handle_ends(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_NODEFER;  // a second signal is delivered while the first is handled
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    struct sigaction former {};
    if (number == SIGHUP && sigaction(number, nullptr, &former) == 0 && former.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
}

/// Installs handlers: a signal to stop removes unfinished files. Writing past the file size limit or to a closed pipe,
/// and reading a mapped file that was truncated, fail with an error instead of killing the process.
inline void handle_signals() {
  handle_ends([](int number) { end_at_once(128 + number); });
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action {};
  action.sa_sigaction = [](int number, siginfo_t* info, void*) {
    const char* path = lora::io::mapped_at(info->si_addr);
    if (path == nullptr) {
      signal(number, SIG_DFL);  // the access fails again and ends the process
      return;
    }
    static std::atomic_flag told;
    while (told.test_and_set()) ::pause();  // another thread has touched it too, and ends the process
    say_in_handler("error: ");
    say_in_handler(path);
    say_in_handler(": the file became shorter, or could not be read, while it was in use\n");
    end_at_once(1);
  };
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

/// Installs a handler: the first signal to stop sets `asked_to_end`, and SIGINT after it ends the process at once.
/// Others come again without anybody's wish for that: SIGTERM from torchrun, which sends it twice, and from a batch
/// system after its warning; SIGXCPU every second.
inline void stop_after_the_step() {
  handle_ends([](int number) {
    int earlier = 0;
    if (!asked_to_end.compare_exchange_strong(earlier, number)) {
      if (number == SIGINT) end_at_once(128 + number);
      return;
    }
    const int error = errno;  // of the interrupted call
    say_in_handler("\nstopping after this step; Ctrl-C (SIGINT) quits at once\n");
    errno = error;
  });
}
