#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "lora/core/error.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/io/files/file.hpp"

/// Throws   ConfigError if `output`, given by `key`, is a file that the command reads, compared by identity
inline void expect_no_input(std::string_view key, const lora::io::Path& output, const Request& request,
                            const lora::io::Path& model) {
  struct stat target {};
  if (::stat(output.c_str(), &target) != 0 || !S_ISREG(target.st_mode)) return;
  auto inputs = lora::inputs::paths_of(request.config, model);
  if (!request.config_file.empty()) inputs.emplace_back("config", request.config_file);
  const auto check = [&](std::string_view input_key, const lora::io::Path& input) {
    struct stat found {};
    if (::stat(input.c_str(), &found) == 0 && found.st_dev == target.st_dev && found.st_ino == target.st_ino)
      lora::fail<lora::ConfigError>("key ", key, ": ", output.native(), " is the same file as ", input.native(), " of ",
                                    input_key, "; allowed: another");
  };
  for (const auto& [input_key, input] : inputs) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(input, ignored)) {
      check(input_key, input);
      continue;
    }
    for (std::filesystem::directory_iterator entry(input, ignored), end; !ignored && entry != end;
         entry.increment(ignored))
      check(input_key, entry->path());
  }
}
