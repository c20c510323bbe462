#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
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
#include "lora/io/json.hpp"
#include "lora/train/config.hpp"
#include "lora/train/keys.hpp"

namespace lora::train {

namespace detail {

[[noreturn]] inline void refuse(const Key& key, std::string_view where, std::string_view given) {
  std::string nearest;
  if (!key.choices.empty()) nearest = concat("; nearest: ", nearest_name(given, key.choices));
  fail<ConfigError>(where, "key ", key.name, ": given ", given.empty() ? "nothing" : given, ", allowed: ", allowed(key),
                    nearest);
}

template <class N>
std::optional<N> parse_number(std::string_view text) {
  N value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<N>)
    if (!std::isfinite(value)) return std::nullopt;
  return value;
}

inline std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

/// "4" is one layer, "4..7" four; false where the text is neither. The bound keeps a slip from filling the memory.
inline bool add_layers(std::vector<Index>& layers, std::string_view text) {
  constexpr Index most = 100'000;
  const std::size_t dots = text.find("..");
  const auto first = parse_number<Index>(text.substr(0, dots));
  const auto last = dots == std::string_view::npos ? first : parse_number<Index>(text.substr(dots + 2));
  if (!first || !last || *first < 0 || *last < *first || *last > most) return false;
  for (Index layer = *first; layer <= *last; ++layer) layers.push_back(layer);
  return true;
}

inline void sort_unique(std::vector<Index>& layers) {
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
}

/// Refuses what the key's range or choices leave out.
template <class V>
void check(const Key& key, const V& value, std::string_view where, std::string_view given) {
  const auto chosen = [&](std::string_view word) {
    return key.choices.empty() || std::find(key.choices.begin(), key.choices.end(), word) != key.choices.end();
  };
  bool good = true;
  if constexpr (std::is_arithmetic_v<V> && !std::is_same_v<V, bool>) {
    good = key.range.holds(static_cast<double>(value));
  } else if constexpr (std::is_same_v<V, std::string>) {
    good = chosen(value);
  } else if constexpr (std::is_same_v<V, std::vector<std::string>>) {
    for (const std::string& word : value)
      if (!chosen(word)) refuse(key, where, word);
  }
  if (!good) refuse(key, where, given);
}

template <class V>
struct Unwrapped {
  using type = V;
};
template <class V>
struct Unwrapped<std::optional<V>> {
  using type = V;
};

}  // namespace detail

/// Sets a key from the command line. A switch with an empty text stands alone and is true.
/// Throws   ConfigError naming the key, what was given and what is allowed
inline void set_from_text(Config& config, const Key& key, std::string_view text, std::string_view where = {},
                          Config::Origin origin = Config::Origin::command_line) {
  const auto parse = [&]<class V>(V Config::*member) {
    using Value = typename detail::Unwrapped<V>::type;
    if constexpr (std::is_same_v<Value, bool>) {
      if (text != "" && text != "true" && text != "false") detail::refuse(key, where, text);
      config.*member = text != "false";
    } else if constexpr (std::is_arithmetic_v<Value>) {
      const auto value = detail::parse_number<Value>(text);
      if (!value) detail::refuse(key, where, text);
      detail::check(key, *value, where, text);
      config.*member = *value;
    } else if constexpr (std::is_same_v<Value, std::string>) {
      detail::check(key, std::string(text), where, text);
      config.*member = std::string(text);
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      auto words = detail::split_list(text);
      if (words.empty()) detail::refuse(key, where, text);
      detail::check(key, words, where, text);
      config.*member = std::move(words);
    } else {
      std::vector<Index> layers;
      for (const std::string& word : detail::split_list(text))
        if (!detail::add_layers(layers, word)) detail::refuse(key, where, word);
      detail::sort_unique(layers);
      config.*member = std::move(layers);
    }
  };
  std::visit(parse, key.member);
  config.given.insert_or_assign(std::string(key.name), origin);
}

/// Sets a key from a JSON value. Lists are arrays or a text as on the command line; null leaves the default.
/// Throws   ConfigError naming the file, the key, what was given and what is allowed
inline void set_from_json(Config& config, const Key& key, const io::Json& json, std::string_view where) {
  if (json.is_null()) return;
  const auto refuse = [&](const io::Json& found) { detail::refuse(key, where, io::to_text(found, -1)); };
  const auto parse = [&]<class V>(V Config::*member) {
    using Value = typename detail::Unwrapped<V>::type;
    if constexpr (std::is_same_v<Value, bool>) {
      if (!json.is_boolean()) refuse(json);
      config.*member = json.get<bool>();
    } else if constexpr (std::is_same_v<Value, Index>) {
      if (!json.is_number_integer()) refuse(json);
      if (json.is_number_unsigned() && json.get<std::uint64_t>() > std::numeric_limits<Index>::max()) refuse(json);
      const auto value = json.get<Index>();
      detail::check(key, value, where, io::to_text(json, -1));
      config.*member = value;
    } else if constexpr (std::is_same_v<Value, double>) {
      if (!json.is_number()) refuse(json);
      const auto value = json.get<double>();
      if (!std::isfinite(value)) refuse(json);
      detail::check(key, value, where, io::to_text(json, -1));
      config.*member = value;
    } else if constexpr (std::is_same_v<Value, std::string>) {
      if (!json.is_string()) refuse(json);
      const auto& value = json.get_ref<const std::string&>();
      detail::check(key, value, where, value);
      config.*member = value;
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      if (!json.is_array()) refuse(json);
      std::vector<std::string> words;
      for (const io::Json& word : json) {
        if (!word.is_string()) refuse(json);
        words.push_back(word.get<std::string>());
      }
      detail::check(key, words, where, io::to_text(json, -1));
      config.*member = std::move(words);
    } else {
      if (!json.is_array()) refuse(json);
      std::vector<Index> layers;
      for (const io::Json& word : json) {
        const std::string text = word.is_string() ? word.get<std::string>() : io::to_text(word, -1);
        if (!detail::add_layers(layers, text)) refuse(word);
      }
      detail::sort_unique(layers);
      config.*member = std::move(layers);
    }
  };
  const bool list = key.member.index() == 4 || key.member.index() == 5;
  if (list && json.is_string()) {
    set_from_text(config, key, json.get_ref<const std::string&>(), where, Config::Origin::file);
  } else {
    std::visit(parse, key.member);
    config.given.insert_or_assign(std::string(key.name), Config::Origin::file);
  }
}

/// Sets what a JSON object gives. Keys of every command are known, so that one file serves several.
/// Throws   ConfigError naming the file and the key
inline void read_settings(Config& config, const io::Json& json, const std::string& file) {
  const std::string where = file + ": ";
  if (!json.is_object()) fail<ConfigError>(where, "expected an object of keys, found ", json.type_name());
  for (const auto& [name, value] : io::json_fields(json)) {
    const Key* key = find_key(name);
    if (key == nullptr) {
      fail<ConfigError>(where, "unknown key ", name, ", given ", io::to_text(value, -1),
                        "; allowed: the keys of --help; nearest: ", nearest_key(name, ~0u));
    }
    set_from_json(config, *key, value, where);
  }
}

/// The value as JSON; null for what is empty and was not given.
inline io::Json value_of(const Config& config, const Key& key) {
  return std::visit(
      [&]<class V>(V Config::*member) -> io::Json {
        const V& value = config.*member;
        if constexpr (std::is_same_v<V, std::string>) {
          return value.empty() && !config.is_given(key.name) ? io::Json() : io::Json(value);
        } else if constexpr (requires { value.has_value(); }) {
          return value ? io::Json(*value) : io::Json();
        } else {
          return value;
        }
      },
      key.member);
}

/// All keys of the commands, as `run_config.json` holds them and read_settings reads them back.
inline io::Json settings_of(const Config& config, unsigned commands) {
  io::Json json = io::Json::object();
  for (const Key& key : keys())
    if (key.commands & commands) json[std::string(key.name)] = value_of(config, key);
  return json;
}

/// The default as the help page prints it; empty where there is none.
inline std::string default_text(const Key& key) {
  static const Config defaults;
  if (!key.unset.empty()) return std::string(key.unset);
  const io::Json value = value_of(defaults, key);
  if (value.is_number_float()) {
    char digits[400];  // 0.0002 rather than 2e-04, but 1e-08
    const auto number = value.get<double>();
    const auto end = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed).ptr;
    return end - digits <= 7 ? std::string(digits, end) : concat(number);
  }
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return {};
  if (value.is_array()) {
    std::string text;
    for (const io::Json& word : value) text += concat(text.empty() ? "" : ",", word.get_ref<const std::string&>());
    return text;
  }
  return io::to_text(value, -1);
}

/// A size in bytes such as 500MB, 5GB (powers of 1000) or 4GiB (powers of 1024).
inline Index parse_size(std::string_view text) {
  constexpr std::pair<std::string_view, double> units[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                                                           {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9}};
  for (const auto& [unit, bytes] : units) {
    if (!text.ends_with(unit)) continue;
    const auto number = detail::parse_number<double>(text.substr(0, text.size() - unit.size()));
    if (number && *number > 0 && *number * bytes < 0x1p62) return static_cast<Index>(*number * bytes);
  }
  fail<ConfigError>("key max_shard_size: given ", text.empty() ? "nothing" : text,
                    ", allowed: a number above 0 with KB, MB, GB, KiB, MiB or GiB, such as 5GB");
}

/// Which of two keys that exclude each other holds: the one that the command line gives, so that a file may hold the
/// other for another command.
/// Throws   ConfigError if both are given in one place
inline bool prefers(const Config& config, std::string_view one, std::string_view other) {
  const auto a = config.given.find(one), b = config.given.find(other);
  if (a == config.given.end()) return false;
  if (b == config.given.end()) return true;
  if (a->second == b->second)
    fail<ConfigError>("key ", one, ": given together with ", other, ", allowed: one of the two");
  return a->second == Config::Origin::command_line;
}

/// Refuses what is missing for the command or contradicts itself.
/// Throws   ConfigError naming the key
inline void validate(const Config& config, Command command) {
  const auto require = [&](bool present, std::string_view key, std::string_view allowed) {
    if (!present) fail<ConfigError>("key ", key, ": given nothing, allowed: ", allowed);
  };
  require(!config.model_name_or_path.empty(), "model_name_or_path", "a model folder, a .gguf file or a model's name");
  if (command == train_command || command == eval_command) {
    require(!config.dataset.empty(), "dataset", "a file of records, or several");
    if (config.preview == 0) require(!config.output_dir.empty(), "output_dir", "a folder for the results");
  }
  if (command == train_command) {
    if (config.lora_target.size() > 1 &&
        std::find(config.lora_target.begin(), config.lora_target.end(), "all") != config.lora_target.end())
      fail<ConfigError>("key lora_target: given all together with other names, allowed: all, or a list of projections");
    const bool evaluates = !config.eval_dataset.empty() || config.val_size > 0;
    if (config.eval_steps)
      require(evaluates, "eval_dataset", "a file of records, or val_size above 0, since eval_steps is given");
    if (config.load_best_model_at_end)
      require(evaluates, "eval_dataset",
              "a file of records, or val_size above 0, since load_best_model_at_end is given");
  }
  if (command == generate_command) {
    require(config.is_given("prompt") || !config.dataset.empty(), "prompt", "a text, or dataset instead");
    prefers(config, "prompt", "dataset");
  }
  if (command == merge_command) {
    require(!config.adapter_name_or_path.empty(), "adapter_name_or_path", "an adapter folder");
    require(!config.output_dir.empty(), "output_dir", "a folder for the merged model");
    parse_size(config.max_shard_size);
  }
  if (command == tokenize_command) {
    require(config.is_given("text") || !config.file.empty(), "text", "a text, or file instead");
    prefers(config, "text", "file");
  }
}

}  // namespace lora::train
