#pragma once

#include "lora/core/config.hpp"
#include "lora/settings/settings.hpp"

namespace lora::settings::detail {

LORA_INLINE void refuse(const Key& key, std::string_view where, std::string_view given) {
  const std::string_view nearest = nearest_name(given, key.choices);
  std::string hint = !nearest.empty()         ? concat("; nearest: ", nearest)
                     : key.name == "template" ? "; auto is the model's own"
                                              : "";
  for (const ForeignValue& other : llama_factory_values)
    if (other.name == key.name && other.key == key.name && other.value == given && !other.denies)
      hint = concat("; nearest: ", other.meaning, ", as LLaMA-Factory means it");
  for (const ForeignAnswer& answer : llama_factory_answers)
    if (answer.name == key.name && answer.value == given) hint = concat("; here: ", answer.here);
  const bool is_text = tokenizer::unicode::find_invalid_utf8(given) == given.npos;
  fail<ConfigError>(where, "key ", key.name, ": given ",
                    given.empty() ? "nothing" : tokenizer::unicode::replace_invalid_utf8(std::string(given)),
                    ", allowed: ", allowed(key), is_text ? "" : ", in UTF-8", std::string_view(hint));
}

LORA_INLINE std::string shown(const data::DataFile& file) {
  return file.is_path() ? file.path : io::to_text(as_json(file), -1);
}

LORA_INLINE std::string shown(const std::vector<data::DataFile>& files) {
  std::string text;
  for (const data::DataFile& file : files) text += concat(text.empty() ? "" : ",", shown(file));
  return text;
}

LORA_INLINE bool take(const io::Json& json, std::vector<std::string>& value) {
  value.clear();
  if (json.is_string()) {
    value = split_list(json.get_ref<const std::string&>());
    return !value.empty();
  }
  if (!json.is_array()) return false;
  for (const io::Json& word : json)
    if (!take(word, value.emplace_back())) return false;
  return true;
}

LORA_INLINE bool take(const io::Json& json, std::vector<Index>& value) {
  std::vector<std::string> words;
  if (json.is_array()) {
    for (const io::Json& word : json)
      words.push_back(word.is_string() ? word.get_ref<const std::string&>() : io::to_text(word, -1));
  } else if (!take(json, words)) {
    return false;
  }
  value.clear();
  for (const std::string& word : words)
    if (!add_layers(value, word)) return false;
  std::sort(value.begin(), value.end());
  value.erase(std::unique(value.begin(), value.end()), value.end());
  return true;
}

LORA_INLINE bool take(const io::Json& json, std::vector<double>& value) {
  value.clear();
  if (json.is_array()) {
    for (const io::Json& number : json)
      if (!take(number, value.emplace_back())) return false;
    return true;
  }
  if (json.is_number()) return take(json, value.emplace_back());
  std::vector<std::string> words;
  if (!take(json, words)) return false;
  for (const std::string& word : words) {
    const auto number = parse_number<double>(word);
    if (!number) return false;
    value.push_back(*number);
  }
  return true;
}

LORA_INLINE bool take(const io::Json& json, std::vector<data::DataFile>& value) {
  if (const auto list = file_objects(json)) {
    value = files_from(*list);
    return true;
  }
  std::vector<std::string> paths;
  if (!take(json, paths)) return false;
  value.assign(paths.begin(), paths.end());
  return true;
}

LORA_INLINE bool take(const io::Json& json, std::vector<data::CurriculumStage>& value) {
  value = curriculum_from(json);
  return true;
}

/// Sets what a field of a stage says, unless it is one of the stage's own three.
LORA_INLINE void take_stage_field(const io::JsonView& object, const std::string& field, const io::Json& value,
                                  StageSettings& stage) {
  bool known = field == "name" || field == "until_step" || field == "until_epoch";
  std::string keys;
  for_each_stage_key([&](const char* key, auto member, auto) {
    keys += concat(", ", key);
    if (field != key) return;
    known = true;
    if (!value.is_null() && !take(value, stage.*member))
      object.fail("\"", field, "\" is ", io::to_text(value, -1), "; allowed: ", allowed(*find_key(key)));
  });
  if (!known) object.fail("the field \"", field, "\"; expected name, until_step, until_epoch", keys);
}

LORA_INLINE bool take(const io::Json& json, std::vector<StageSettings>& stages) {
  stages.clear();
  if (!json.is_array()) return false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const io::JsonView object(json[i], concat("stage ", i + 1));
    if (!json[i].is_object()) object.fail("expected an object");
    StageSettings& stage = stages.emplace_back();
    stage.name = object.get<std::string>("name").value_or("");
    stage.until_step = object.get<Index>("until_step");
    stage.until_epoch = object.get<double>("until_epoch");
    for (const auto& item : io::json_fields(json[i])) take_stage_field(object, item.first, item.second, stage);
  }
  return true;
}

/// A command-line text as the JSON that a file would have. If it doesn't parse as the key's type, it stays a text.
LORA_INLINE io::Json json_of(const Key& key, std::string_view text) {
  const auto or_text = [&](auto value) { return value ? io::Json(*value) : io::Json(std::string(text)); };
  switch (type_of(key)) {
    case ValueType::flag:
      if (text.empty() || text == "true") return true;  // a switch may have no value
      if (text == "false") return false;
      return std::string(text);
    case ValueType::integer:
      return or_text(parse_number<Index>(text));
    case ValueType::number:
      return or_text(parse_number<double>(text));
    case ValueType::stages:
      return io::parse_json(text, "the value");
    default:
      return std::string(text);
  }
}

LORA_INLINE bool fits(const Key& key, const std::string& text) {
  if (tokenizer::unicode::find_invalid_utf8(text) != text.npos) return false;  // run_config.json could not repeat it
  if (key.form.fits) return key.form.fits(text);
  if (!key.choices.empty()) return std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end();
  return !text.empty();
}

LORA_INLINE std::optional<std::string> offence(const Key&, const std::vector<data::CurriculumStage>& stages) {
  return settings::offence(stages);
}

LORA_INLINE std::optional<std::string> offence(const Key&, const std::vector<StageSettings>& stages) {
  return settings::offence(stages);
}

/// Whether a key is a text that was set to "".
LORA_INLINE bool is_empty_text(const Config& config, const Key& key) {
  const auto* member = std::get_if<std::string Config::*>(&key.member);
  return member != nullptr && (config.**member).empty();
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE std::optional<std::string> offence(const Config& config, const Key& key) {
  if (!is_given(config, key)) return std::nullopt;
  return std::visit([&](auto member) { return detail::offence(key, config.*member); }, key.member);
}

LORA_INLINE void check(const Config& config, const Key& key, std::string_view where) {
  if (const auto given = offence(config, key)) detail::refuse(key, where, *given);
}

LORA_INLINE void set_from_json(Config& config, const Key& key, const io::Json& json, std::string_view where,
                               std::string_view given) {
  if (json.is_null()) return;
  if (may_be_auto(key) && json == "auto") return reset(config, key);
  bool taken = false;
  try {
    taken = std::visit([&](auto member) { return detail::take(json, config.*member); }, key.member);
  } catch (const FormatError& error) {  // of a list of objects
    fail<ConfigError>(where, "key ", key.name, ": ", std::string_view(error.what()), "; allowed: ", allowed(key));
  }
  if (!taken || detail::is_empty_text(config, key)) detail::refuse(key, where, given);
  check(config, key, where);
}

LORA_INLINE void set_from_json(Config& config, const Key& key, const io::Json& json, std::string_view where) {
  set_from_json(config, key, json, where,
                json.is_string() && type_of(key) == ValueType::text ? json.get<std::string>() : io::to_text(json, -1));
}

LORA_INLINE void set_from_text(Config& config, const Key& key, std::string_view text) {
  try {
    const io::Json json = detail::json_of(key, text);
    if (json.is_null()) detail::refuse(key, {}, text);  // of a file it leaves the key as it is
    set_from_json(config, key, json, {}, text);
  } catch (const FormatError& error) {
    fail<ConfigError>("key ", key.name, ": ", std::string_view(error.what()), "; allowed: ", allowed(key));
  }
  config.from_command_line.insert(key.name);
  if (!is_given(config, key)) return;
  for (const Rule& rule : rules()) {
    if (rule.kind != Rule::Kind::excludes || (rule.key != key.name && rule.other != key.name)) continue;
    const Key& other = *find_key(rule.key == key.name ? rule.other : rule.key);
    if (!config.from_command_line.contains(other.name)) reset(config, other);
  }
}

LORA_INLINE void read_settings(Config& config, const io::Json& json, const std::string& file) {
  const std::string where = file + ": ";
  if (!json.is_object()) fail<ConfigError>(where, "expected an object of keys, found ", json.type_name());
  std::vector<UnknownKey> unknown;
  for (const auto& [name, value] : io::json_fields(json))
    if (find_key(name) == nullptr) unknown.push_back({name, io::to_text(without_secrets(value), -1)});
  if (!unknown.empty()) refuse_unknown(where, unknown, ~0u, "--help");
  for (const auto& [name, value] : io::json_fields(json)) set_from_json(config, *find_key(name), value, where);
}

LORA_INLINE io::Json value_of(const Config& config, const Key& key) {
  return std::visit(
      [&]<class V>(V Config::*member) -> io::Json {
        const V& value = config.*member;
        if constexpr (requires { as_json(value); }) {
          return value.empty() ? io::Json() : as_json(value);
        } else if constexpr (requires { value.has_value(); }) {
          return value ? io::Json(*value) : io::Json();
        } else if constexpr (requires { value.empty(); }) {
          return value.empty() ? io::Json() : io::Json(value);
        } else {
          return value;
        }
      },
      key.member);
}

LORA_INLINE io::Json to_json(const Config& config, unsigned commands) {
  io::Json json = io::Json::object();
  for (const Key& key : keys())
    if (key.commands & commands) json[std::string(key.name)] = value_of(config, key);
  return json;
}

LORA_INLINE std::string default_text(const Key& key) {
  static const Config defaults;
  if (!key.unset.empty()) return std::string(key.unset);
  const io::Json value = value_of(defaults, key);
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return io::to_text(value, -1);
  char digits[400];  // 0.0002 rather than 2e-04, but 1e-08
  const auto number = value.get<double>();
  const auto end = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed).ptr;
  return end - digits <= 7 ? std::string(digits, end) : concat(number);
}

}  // namespace lora::settings

namespace lora::settings::detail {

/// Whether a rule is for each stage to keep, rather than for the run that has them.
LORA_INLINE bool is_of_stages(const Rule& rule, const Config& config) {
  if (config.stages.empty() || rule.kind != Rule::Kind::refused) return false;
  bool said_by_stages = rule.key == "step_units" || rule.key == "shuffle";
  for_each_stage_key([&](const char* name, auto, auto) { said_by_stages = said_by_stages || rule.key == name; });
  return said_by_stages && rule.key != "curriculum_stages";
}

/// Checks what stages say, each as a run of its own.
LORA_INLINE void validate_stages(const Config& config, Command command) {
  const StageConfigs stages(config);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (config.stages[i].finetuning_type && *config.stages[i].finetuning_type != config.finetuning_type)
      fail<ConfigError>(
          stage_name(config, i), ": key finetuning_type: given ", *config.stages[i].finetuning_type,
          " where the run has ", config.finetuning_type,
          "; allowed: the same in all stages; hint: a run of its own can go on from this one's final_model");
    try {
      validate(stages[i], command);
    } catch (const ConfigError& error) {
      fail<ConfigError>(stage_name(config, i), ": ", std::string_view(error.what()));
    }
  }
  const auto differ = [&](const Config& run) {
    const StageConfigs others(run);
    const auto text_of = [&](const Config& stage) { return io::to_text(to_json(stage, command), -1); };
    for (std::size_t i = 0; i < stages.size(); ++i)
      if (text_of(stages[i]) != text_of(others[i])) return true;
    return false;
  };
  const auto expect_effect = [&](std::string_view name) {
    const Key& key = *find_key(name);
    if (!config.from_command_line.contains(key.name) || !is_given(config, key)) return;
    Config without = config;
    reset(without, key);
    if (!differ(without))
      fail<ConfigError>("key ", name,
                        ": given, which has no effect here; allowed: where not every stage says otherwise");
  };
  for_each_stage_key([&](const std::string_view name, auto, auto) {
    if (name != "finetuning_type") expect_effect(name);  // without it, what the stages say would be refused
  });
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE void validate(const Config& config, Command command) {
  for (const Key& key : keys()) check(config, key);
  for (const Rule& rule : rules()) {
    if (detail::is_of_stages(rule, config) || !is_broken(rule, config, command)) continue;
    const Key& key = *find_key(rule.key);
    const std::string given = std::visit([&](auto member) { return detail::shown(config.*member); }, key.member);
    switch (rule.kind) {
      case Rule::Kind::required:
        fail<ConfigError>("key ", key.name, ": given nothing, allowed: ", rule.words);
      case Rule::Kind::excludes:
        fail<ConfigError>("key ", key.name, ": given together with ", rule.other, ", allowed: one of the two");
      case Rule::Kind::refused:
        fail<ConfigError>("key ", key.name, ": given ", given, ", allowed: ", rule.words);
      case Rule::Kind::idle:
        fail<ConfigError>("key ", key.name, ": given ", given, ", which has no effect here; allowed: ", rule.words);
    }
  }
  if (command == train_command && !config.stages.empty()) detail::validate_stages(config, command);
}

}  // namespace lora::settings
