#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

namespace lora::test {

inline int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

struct Ending {
  std::string text;
  int status;  ///< as wait() tells it
};

/// Runs `body(out)` in a process of its own: what it wrote to the descriptor `out`, and how it ended.
template <class Body>
Ending run_apart(const Body& body) {
  int ends[2];
  if (pipe(ends) != 0) return {"no pipe", -1};
  const pid_t child = fork();
  if (child == 0) {
    try {
      body(ends[1]);
    } catch (...) {  // which would run the remaining tests in this process
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  return {std::move(text), wait_for(child)};
}

/// What `body` wrote to standard error if it ended by abort(), else a sentence that says how it ended.
template <class Body>
std::string abort_message(const Body& body) {
  const Ending end = run_apart([&](int out) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(out, STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);
    body();
  });
  if (WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGABRT) return end.text;
  return "it went on without an abort";
}

}  // namespace lora::test
