#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json_view.hpp"

// Where the models and adapters lie that settings name.

namespace lora::inputs {

namespace detail {

std::string environment(const char* name);

/// Where the Hugging Face tools keep what they download; nothing where no variable tells it.
/// Source   huggingface_hub, constants.py
std::optional<io::Path> hub_cache();

}  // namespace detail

/// The name of a model or adapter for programs that know no folders of runs: a run's final_model, else the same.
std::string name_of_result(const std::string& name);

/// The local path of a model or adapter: the path itself, for the folder of a run its final_model, or a hub name's
/// snapshot in the local cache.
/// Throws   IoError that prints the command to download it
io::Path find_model(const std::string& name);

/// An adapter's folder, as find_model finds it.
/// Throws   as find_model; ConfigError for what is no adapter
io::Path find_adapter(const std::string& name);

namespace detail {

/// Throws   ConfigError for a folder that is no whole model but something else that a run writes
void expect_whole_model(const io::Path& path, const std::string& name);

}  // namespace detail

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/find_model.ipp"
#endif
