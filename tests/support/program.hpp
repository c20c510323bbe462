#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/temp_folder.hpp"

namespace lora::test {

/// What a finished program leaves.
struct Outcome {
  int status = -1;  // of the exit; 128 + the signal where one ended it
  std::string output;
  std::string errors;
};

inline std::string shell_word(std::string_view word) {
  std::string text = "'";
  for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
  return text + "'";
}

/// Of a process that has ended: its exit's, or 128 + the signal that ended it.
inline int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/// Runs a shell command that takes `words` as its arguments. Its standard output goes to `output` where that is given,
/// which is then not read; its standard input is the file `input`.
inline Outcome run_program(const std::string& program, std::span<const std::string> words,
                           const std::string& output = {}, const std::string& input = "/dev/null") {
  const TempFolder folder;
  std::string command = program;
  for (const std::string& word : words) command += " " + shell_word(word);
  command += " <" + shell_word(input) + " >" + shell_word(output.empty() ? (folder / "out").native() : output) + " 2>" +
             shell_word((folder / "err").native());
  Outcome outcome;
  outcome.status = status_of(std::system(command.c_str()));
  if (output.empty()) outcome.output = io::read_file(folder / "out");
  outcome.errors = io::read_file(folder / "err");
  return outcome;
}
inline Outcome run_program(const std::string& program, std::initializer_list<std::string> words) {
  return run_program(program, std::span(words.begin(), words.size()));
}

/// A program that runs beside the test, for as long as this lives. Its standard error is a pipe that holds few bytes.
class Process {
 public:
  struct Setup {
    bool is_deaf = false;                 ///< its standard error takes not one byte: the first words wait for ever
    rlim_t longest_file = RLIM_INFINITY;  ///< in bytes
    bool is_unheard = false;              ///< nobody reads its standard error: writing there fails
  };

  /// It is the program itself from here on, with no signal handled.
  Process(const std::string& program, std::span<const std::string> words, Setup setup) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail<IoError>("no pipe");
    if (setup.is_deaf) fill(ends[1]);
    std::vector<char*> arguments{const_cast<char*>(program.c_str())};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t by_default;  // a signal that is ignored here, as under nohup, would be ignored there too
    sigemptyset(&by_default);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) sigaddset(&by_default, signal);
    posix_spawnattr_setsigdefault(&attributes, &by_default);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const int error = posix_spawn(&id_, program.c_str(), &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    errors_ = ends[0];
    if (setup.is_unheard) close(std::exchange(errors_, -1));
    if (error != 0) fail<IoError>("cannot start ", program);
    const rlimit limit{setup.longest_file, setup.longest_file};
    prlimit(id_, RLIMIT_FSIZE, &limit, nullptr);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (running()) {
      kill(id_, SIGKILL);
      waitpid(id_, nullptr, 0);
    }
    if (errors_ >= 0) close(errors_);
  }

  void send(int signal) const { kill(id_, signal); }

  bool running() {
    if (!ended_ && waitpid(id_, &status_, WNOHANG) == id_) ended_ = true;
    return !ended_;
  }

  /// Whether it has this file in its memory.
  bool maps(const io::Path& file) const {
    return io::read_file(concat("/proc/", id_, "/maps")).find(file.native()) != std::string::npos;
  }

  /// Whether a signal that was sent still waits to be handled.
  bool awaits(int signal) const {
    const std::string status = io::read_file(concat("/proc/", id_, "/status"));
    for (const std::string_view field : {"\nSigPnd:\t", "\nShdPnd:\t"}) {
      const auto at = status.find(field);
      if (at == status.npos) return true;
      if ((std::stoull(status.substr(at + field.size(), 16), nullptr, 16) >> (signal - 1) & 1u) != 0) return true;
    }
    return false;
  }

  /// Its exit status as in Outcome; -1 if it does not end within a minute.
  int wait() {
    for (int i = 0; i < 12000 && running(); ++i) usleep(5000);
    return ended_ ? status_of(status_) : -1;
  }

  /// All that it says, read until it has ended.
  std::string errors() const {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(errors_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }

 private:
  static void fill(int descriptor) {
    const int flags = fcntl(descriptor, F_GETFL);
    fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
    const char bytes[4096]{};
    for (const std::size_t size : {sizeof bytes, std::size_t{1}})
      while (write(descriptor, bytes, size) > 0) {}
    fcntl(descriptor, F_SETFL, flags);
  }

  pid_t id_ = -1;
  int errors_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace lora::test
