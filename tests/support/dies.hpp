#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace lora::test {

/// Runs `body` in a process of its own and returns what it wrote to standard error if it ended by abort(), else a
/// sentence that says how it ended.
template <class Body>
std::string abort_message(const Body& body) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(pipe_ends[1], STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);
    body();
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = read(pipe_ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) return text;
  return "it went on without an abort";
}

}  // namespace lora::test
