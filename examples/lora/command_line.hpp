#pragma once

#include <string>
#include <vector>

#include "lora/settings/config.hpp"
#include "lora/settings/keys.hpp"

/// The parsed command line: a command with its settings, or a text to print (help, version).
struct Request {
  lora::settings::Command command{};
  lora::settings::Config config;
  std::string config_file;         // from --config
  std::vector<std::string> words;  // the command line
  std::string answer;
};

/// Reads the command line and the file given by --config.
/// Throws   ConfigError
Request read_command_line(int argc, const char* const* argv);
