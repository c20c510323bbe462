#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "lora/io/file.hpp"
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

/// Runs a shell command that takes `words` as its arguments.
inline Outcome run_program(const std::string& program, std::initializer_list<std::string> words) {
  const TempFolder folder;
  std::string command = program;
  for (const std::string& word : words) command += " " + shell_word(word);
  command += " </dev/null >" + shell_word((folder / "out").native()) + " 2>" + shell_word((folder / "err").native());
  const int status = std::system(command.c_str());
  Outcome outcome;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.output = io::read_file(folder / "out");
  outcome.errors = io::read_file(folder / "err");
  return outcome;
}

}  // namespace lora::test
