#pragma once

#include <string>
#include <vector>

#include "lora/settings/config.hpp"
#include "lora/settings/keys.hpp"

/// What the user asks for: a command with its settings, or a text to print (help, version).
struct Request {
  lora::settings::Command command{};
  lora::settings::Config config;
  std::string config_file;         // that --config names
  std::vector<std::string> words;  // the command line itself
  std::string answer;
};

/// Reads the command line and the file that --config names.
/// Throws   ConfigError for all that is wrong with them
Request read_command_line(int argc, const char* const* argv);
