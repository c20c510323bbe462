#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/chat/chat_template.hpp"
#include "lora/data/chat/chat_text.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/device_name.hpp"
#include "lora/settings/value_text.hpp"

namespace lora::settings {

/// The commands of the program, as a set of bits. `all_commands` has each.
enum Command : unsigned {
  train_command = 1,
  eval_command = 2,
  generate_command = 4,
  merge_command = 8,
  tokenize_command = 16,
  doctor_command = 32,
  plan_command = 64,
  report_command = 128,
  export_command = 256,
  chat_command = 512
};

constexpr Command all_commands[] = {train_command,  eval_command,     generate_command, chat_command, merge_command,
                                    export_command, tokenize_command, doctor_command,   plan_command, report_command};

constexpr std::string_view name_of(Command command) {
  switch (command) {
    case train_command:
      return "train";
    case eval_command:
      return "eval";
    case generate_command:
      return "generate";
    case chat_command:
      return "chat";
    case merge_command:
      return "merge";
    case tokenize_command:
      return "tokenize";
    case doctor_command:
      return "doctor";
    case plan_command:
      return "plan";
    case report_command:
      return "report";
    case export_command:
      return "export";
  }
  return "";
}

/// The finite numbers that a key takes: [low, high], without an end that is open, and `also`.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  std::optional<double> also = {};
  bool whole_from_one = false;  // below 1 a fraction, from 1 a count

  bool holds(double value) const;
};

/// What a key takes, if neither choices nor a range describe it.
struct Form {
  bool (*fits)(std::string_view) = nullptr;  ///< of a text
  std::string_view words = {};
};

/// One setting: the single description used by the file reader, the command line, the help page and the checks.
struct Key {
  using Member = std::variant<bool Config::*, Index Config::*, double Config::*, std::string Config::*,
                              std::vector<std::string> Config::*, std::vector<Index> Config::*,
                              std::optional<bool> Config::*, std::optional<Index> Config::*,
                              std::optional<double> Config::*, std::optional<std::string> Config::*,
                              std::vector<double> Config::*, std::vector<data::DataFile> Config::*,
                              std::vector<data::CurriculumStage> Config::*, std::vector<StageSettings> Config::*>;

  std::string_view name;
  std::string_view group;
  unsigned commands;
  Member member;
  Range range = {};
  std::vector<std::string_view> choices = {};  // for a text, or each element of a list; empty: any
  std::string_view unset = {};                 // what applies if the key is not given
  std::string_view help;
  Form form = {};
};

namespace detail {

constexpr Range above(double low) { return {.low = low, .low_open = true}; }

}  // namespace detail

/// Every key, in the order of the help page.
const std::vector<Key>& keys();

const Key* find_key(std::string_view name);

/// Whether a key differs from its default.
bool is_given(const Config& config, const Key& key);

void reset(Config& config, const Key& key);

namespace detail {

template <class V>
struct Unwrapped {
  using type = V;
};
template <class V>
struct Unwrapped<std::optional<V>> {
  using type = V;
};

}  // namespace detail

/// The type of a key's value, optional or not.
enum class ValueType { flag, integer, number, text, list, layers, numbers, files, stages };

ValueType type_of(const Key& key);

/// The type's name on the help page.
constexpr std::string_view name_of(ValueType type) {
  constexpr std::string_view names[] = {"SWITCH", "INT", "NUMBER", "TEXT", "LIST", "LAYERS", "LIST", "LIST", "JSON"};
  return names[static_cast<std::size_t>(type)];
}
constexpr std::string_view describe(ValueType type) {
  constexpr std::string_view descriptions[] = {
      "true or false",
      "a whole number",
      "a number",
      "a text",
      "a comma-separated list (in JSON an array)",
      "layer indices and inclusive ranges a..b, comma-separated (in JSON an array)",
      "comma-separated numbers (in JSON an array)",
      "comma-separated paths (in JSON an array of paths or of objects {path, weight, name, max_samples, "
      "num_samples, split, columns, tags})",
      "a JSON array of objects"};
  return descriptions[static_cast<std::size_t>(type)];
}

inline bool is_switch(const Key& key) { return type_of(key) == ValueType::flag; }
/// Whether a switch is neither true nor false unless it is given, so that other keys or the model decide.
inline bool may_be_auto(const Key& key) { return std::holds_alternative<std::optional<bool> Config::*>(key.member); }
bool is_list(const Key& key);

namespace detail {

std::string join(const std::vector<std::string_view>& words);

}  // namespace detail

std::string describe(const Range& range);

/// Which values a key takes.
std::string allowed(const Key& key);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/keys.ipp"
#endif
