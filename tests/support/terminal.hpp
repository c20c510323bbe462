#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "lora/core/error.hpp"
#include "support/program.hpp"

namespace lora::test {

/// Runs a program whose standard error is a terminal of so many columns, and its standard output too where `both`: its
/// exit status, and what the terminal got.
inline Outcome run_on_terminal(const std::string& program, std::span<const std::string> words, unsigned short columns,
                               bool both = false) {
  const int screen = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (screen < 0 || grantpt(screen) != 0 || unlockpt(screen) != 0) fail<IoError>("no terminal");
  winsize size{24, columns, 0, 0};
  ioctl(screen, TIOCSWINSZ, &size);
  const int terminal = open(ptsname(screen), O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (both) posix_spawn_file_actions_adddup2(&actions, terminal, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, terminal, STDERR_FILENO);
  pid_t id = -1;
  const int error = posix_spawn(&id, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(terminal);
  if (error != 0) fail<IoError>("cannot start ", program);
  Outcome outcome;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(screen, buffer, sizeof buffer)) > 0;)  // fails once the program has gone
    outcome.errors.append(buffer, static_cast<std::size_t>(got));
  close(screen);
  int status = 0;
  waitpid(id, &status, 0);
  outcome.status = status_of(status);
  return outcome;
}

}  // namespace lora::test
