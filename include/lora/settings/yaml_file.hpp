#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/yaml.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/foreign_keys.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/llama_factory.hpp"
#include "lora/settings/settings.hpp"
#include "lora/settings/unknown_key.hpp"
#include "lora/settings/value_text.hpp"

// Settings in YAML, as LLaMA-Factory writes them. A document becomes the JSON that a file of JSON would have, each
// scalar by what its key takes: a text stays as it is written, 1e-4 is a number where one is asked for.

namespace lora::settings {

/// A file's keys that cannot be honored, a line for each: what the program prints as several errors.
class FileError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// The value of a key as JSON would have it.
io::Json json_of(const io::YamlNode& node, const Key& key);

/// Sets the keys of a YAML document; those of all commands are accepted, so that one file can serve several, and of
/// LLaMA-Factory's those whose value says what `command` does anyway, or what a key here says.
/// `then` sets what takes precedence over the file, before it is settled what follows from several keys.
/// Returns  what of LLaMA-Factory's was taken, as a sentence to log; empty if nothing
/// Throws   FileError naming each key that cannot be honored, with its line, and why or which key does it; what `then`
///          throws
std::string read_settings(Config& config, const io::YamlNode& document, const std::string& file,
                          Command command = train_command, const std::function<void()>& then = {});

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/yaml_file.ipp"
#endif
