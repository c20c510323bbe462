#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/llama_factory.hpp"
#include "lora/settings/rules.hpp"
#include "lora/settings/stage_lists.hpp"
#include "lora/settings/unknown_key.hpp"
#include "lora/settings/value_text.hpp"
#include "lora/tokenizer/unicode.hpp"

// The one way to set a key: a command-line text becomes JSON by the key's type, JSON becomes the member's value, and
// the value is checked against the key's range, choices or form, also if it was assigned in code.

namespace lora::settings {

namespace detail {

[[noreturn]] void refuse(const Key& key, std::string_view where, std::string_view given);

/// A member's value as shown in a message.
inline std::string shown(const std::string& text) { return text; }
inline std::string shown(bool flag) { return concat(flag); }
inline std::string shown(Index number) { return concat(number); }
inline std::string shown(double number) { return concat(number); }
template <class V>
std::string shown(const std::optional<V>& value) {
  return value ? shown(*value) : std::string();
}
template <class V>
std::string shown(const std::vector<V>& values) {
  std::string text;
  for (const V& value : values) text += concat(text.empty() ? "" : ",", value);
  return text;
}

std::string shown(const data::DataFile& file);
std::string shown(const std::vector<data::DataFile>& files);
inline std::string shown(const std::vector<data::CurriculumStage>& stages) { return io::to_text(as_json(stages), -1); }
inline std::string shown(const std::vector<StageSettings>& stages) { return io::to_text(as_json(stages), -1); }

/// Reads JSON into a member; false if it has another type.
template <class V>
bool take(const io::Json& json, V& value) {
  return io::take_json(json, value);
}
/// A list is an array, or a text as on the command line.
bool take(const io::Json& json, std::vector<std::string>& value);
bool take(const io::Json& json, std::vector<Index>& value);
bool take(const io::Json& json, std::vector<double>& value);
bool take(const io::Json& json, std::vector<data::DataFile>& value);
bool take(const io::Json& json, std::vector<data::CurriculumStage>& value);
template <class V>
bool take(const io::Json& json, std::optional<V>& value) {
  return take(json, value.emplace());
}

/// Reads [{"name": "first", "until_step": 100, "learning_rate": 1e-4, …}, …].
/// Throws   FormatError naming the stage and what is wrong
bool take(const io::Json& json, std::vector<StageSettings>& stages);

inline bool fits(const Key&, bool) { return true; }
inline bool fits(const Key& key, Index number) { return key.range.holds(static_cast<double>(number)); }
inline bool fits(const Key& key, double number) { return key.range.holds(number); }
inline bool fits(const Key&, const data::DataFile& file) { return settings::fits(file); }
bool fits(const Key& key, const std::string& text);

/// The part of a value that its key doesn't allow, as text; nothing if the value is valid.
template <class V>
std::optional<std::string> offence(const Key& key, const V& value) {
  return fits(key, value) ? std::nullopt : std::optional(shown(value));
}
template <class V>
std::optional<std::string> offence(const Key& key, const std::vector<V>& values) {
  for (const V& value : values)
    if (!fits(key, value)) return shown(value);
  return std::nullopt;
}
std::optional<std::string> offence(const Key&, const std::vector<data::CurriculumStage>& stages);
std::optional<std::string> offence(const Key&, const std::vector<StageSettings>& stages);
template <class V>
std::optional<std::string> offence(const Key& key, const std::optional<V>& value) {
  if constexpr (std::is_same_v<V, std::string>)
    if (value->empty()) return std::nullopt;  // a text that may be empty
  return offence(key, *value);
}

}  // namespace detail

/// The part of a key's value that is not allowed, as text; nothing if the value is valid.
std::optional<std::string> offence(const Config& config, const Key& key);

/// Checks a key's value. `where` begins the message.
/// Throws   ConfigError naming the key, what was given and what is allowed
void check(const Config& config, const Key& key, std::string_view where = {});

/// Sets a key from the command line, which takes precedence over a file.
/// Throws   ConfigError naming the key, what was given and what is allowed
void set_from_text(Config& config, const Key& key, std::string_view text);

/// Sets a key from a JSON value; null leaves it as it is. `where` begins messages.
/// Throws   ConfigError naming the key, what was given and what is allowed
void set_from_json(Config& config, const Key& key, const io::Json& json, std::string_view where);
/// `given`: the value as the user wrote it, for messages.
void set_from_json(Config& config, const Key& key, const io::Json& json, std::string_view where,
                   std::string_view given);

/// Sets the keys of a JSON object. Keys of all commands are accepted, so that one file can serve several.
/// Throws   ConfigError naming the file and the key, or all keys that are unknown
void read_settings(Config& config, const io::Json& json, const std::string& file);

/// The value as JSON; null for what is empty.
io::Json value_of(const Config& config, const Key& key);

/// All keys of the commands as JSON, as written to run_config.json and read by read_settings.
io::Json to_json(const Config& config, unsigned commands);

/// The default as the help page prints it; empty where there is none.
std::string default_text(const Key& key);

/// Checks every key's value and all rules of the command, however the keys were set.
/// Throws   ConfigError naming the key
void validate(const Config& config, Command command);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/settings.ipp"
#endif
