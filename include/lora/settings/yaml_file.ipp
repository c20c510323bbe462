#pragma once

#include "lora/core/config.hpp"
#include "lora/settings/yaml_file.hpp"

namespace lora::settings::detail {

/// A scalar as a value of this type; a text where it is none, to be refused as the text it is.
LORA_INLINE io::Json scalar_of(const io::YamlNode& node, ValueType type) {
  if (node.kind == io::YamlNode::Kind::null) return {};
  const auto number = [&]<class N>(N) -> io::Json {
    const auto digits = io::yaml_number(node.text);
    const auto value = digits ? parse_number<N>(*digits) : std::nullopt;
    return value ? io::Json(*value) : io::Json(node.text);
  };
  switch (type) {
    case ValueType::flag:
      if (const auto flag = io::yaml_flag(node)) return *flag;
      return node.text;
    case ValueType::integer:
      return number(Index{});
    case ValueType::number:
    case ValueType::numbers:
      return number(double{});
    default:
      return node.text;
  }
}

/// What a field of a stage takes, or of a file of dataset.
LORA_INLINE ValueType type_of_field(std::string_view name) {
  if (const Key* key = find_key(name)) return type_of(*key);
  for (const std::string_view text : {"path", "name", "split", "columns", "tags"})
    if (name == text) return ValueType::text;
  return name == "until_step" ? ValueType::integer : ValueType::number;
}

/// What all fields take of an object in such a field; nothing: each what follows from its name.
LORA_INLINE std::optional<ValueType> type_of_fields_in(std::string_view name) {
  if (name == "mix") return ValueType::number;
  return name == "columns" || name == "tags" ? std::optional(ValueType::text) : std::nullopt;
}

LORA_INLINE io::Json json_of(const io::YamlNode& node, ValueType type, std::optional<ValueType> of_fields,
                             bool outermost) {
  if (node.kind == io::YamlNode::Kind::list) {
    io::Json list = io::Json::array();
    for (const io::YamlNode& value : node.values) list.push_back(json_of(value, type, of_fields, false));
    return list;
  }
  if (node.kind == io::YamlNode::Kind::map) {
    io::Json object = io::Json::object();
    auto& fields = object.get_ref<io::Json::object_t&>();
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const std::string& name = node.keys[i].name;
      fields.emplace_back(name, json_of(node.values[i], of_fields ? *of_fields : type_of_field(name),
                                        of_fields ? std::nullopt : type_of_fields_in(name), false));
    }
    return object;
  }
  // Of numbers a text may hold several.
  return scalar_of(node, outermost && type == ValueType::numbers ? ValueType::text : type);
}

/// A value as the file has it, in one line, for a message.
LORA_INLINE std::string given_in(const io::YamlNode& node) {
  if (node.kind == io::YamlNode::Kind::null) return "null";
  if (node.kind == io::YamlNode::Kind::scalar) return node.text.empty() ? "nothing" : node.text;
  const bool map = node.kind == io::YamlNode::Kind::map;
  std::string text = map ? "{" : "[";
  for (std::size_t i = 0; i < node.values.size() && text.size() < 200; ++i) {
    if (i > 0) text += ", ";
    if (map) text += node.keys[i].name + ": ";
    text += map && is_secret(node.keys[i].name) ? "..." : given_in(node.values[i]);
  }
  return text + (map ? "}" : "]");
}

/// Whether a value, or one in it, holds an interpolation as OmegaConf has it.
LORA_INLINE bool interpolates(const io::YamlNode& node) {
  return node.text.find("${") != node.text.npos || std::any_of(node.values.begin(), node.values.end(), interpolates);
}

/// The keys of one document, which are set one by one; what cannot be honored is collected.
class YamlSettings {
 public:
  YamlSettings(Config& config, const io::YamlNode& document, const std::string& file, Command command)
      : config_(config), document_(document), file_(file), command_(command) {}

  std::string apply(const std::function<void()>& then) {
    if (document_.kind != io::YamlNode::Kind::map)
      fail<ConfigError>(io::place_in(file_, document_.place), ": found ",
                        document_.kind == io::YamlNode::Kind::list     ? "a list"
                        : document_.kind == io::YamlNode::Kind::scalar ? io::first_word(document_.text)
                                                                       : given_in(document_),
                        ", expected keys, each with a colon and its value");
    for (const io::YamlKey& key : document_.keys)
      if (key.name.starts_with("top."))
        fail<ConfigError>(
            place_of(key), "found ", std::string_view(shortened(key.name, 80)),
            ", a field of LLaMA Board's page; expected the keys of a run, as training_args.yaml has them, ",
            "which LLaMA Board writes beside such a file");
    // Keys that are those here come first: others may say the same of one, and nothing else.
    take(Kind::own);
    take(Kind::foreign);
    try {
      if (then) then();
    } catch (const ConfigError&) {
      if (reasons_.empty()) throw;
      refuse();
    }
    take(Kind::waiting);
    // Of a file that says nothing else it is what there is to evaluate.
    if (command_ == eval_command && config_.dataset.empty()) evaluate_eval_dataset();
    if (!reasons_.empty()) refuse();
    return note();
  }

 private:
  enum class Kind { own, foreign, waiting };  // for what other keys say

  struct Reason {
    Index line;
    std::string text;
  };

  // A key that another one's value set, to this value; and what the log says of it.
  struct Meant {
    const Key* key;
    std::string value, words;
  };

  Kind kind_of(std::string_view name) const {
    if (find_key(name) != nullptr) return Kind::own;
    return name == "packing" || name == "do_predict" || follows_from_keys(name) ? Kind::waiting : Kind::foreign;
  }

  void take(Kind kind) {
    for (std::size_t i = 0; i < document_.keys.size(); ++i) {
      const io::YamlKey& key = document_.keys[i];
      const io::YamlNode& value = document_.values[i];
      if (kind_of(key.name) != kind) continue;
      try {
        if (interpolates(value)) answer_with(key, value, "expected the value itself: interpolations are not read");
        if (kind == Kind::own)
          set_own(key, value);
        else
          take_foreign(key, value);
      } catch (const ConfigError& error) {
        reasons_.push_back({key.place.line, error.what()});
      }
    }
  }

  std::string place_of(const io::YamlKey& key) const {
    return concat(std::string_view(file_), ":", key.place.line, ": ");
  }

  [[noreturn]] void refuse() {
    std::stable_sort(reasons_.begin(), reasons_.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
    std::string lines;
    for (const Reason& reason : reasons_) lines += (lines.empty() ? "" : "\n") + reason.text;
    throw FileError(lines);
  }

  // "run.yaml: nothing to do for stage, do_train; bf16 true is dtype bfloat16"
  std::string note() const {
    std::string text;
    for (const std::string& name : idle_) text += (text.empty() ? "nothing to do for " : ", ") + name;
    for (const auto& [key, value, words] : meant_)
      if (io::to_text(value_of(config_, *key), -1) == value)
        text += (text.empty() ? "" : "; ") + words;  // else the command line says another
    return text.empty() ? text : printable(concat(std::string_view(file_), ": ", std::string_view(text)));
  }

  void set_own(const io::YamlKey& name, const io::YamlNode& node) {
    const Key& key = *find_key(name.name);
    if (is_idle(name, node)) return idle_.push_back(name.name);
    if (const ForeignValue* other = meaning_of(name, node)) return mean(name, node, *other);
    const bool word = type_of(key) == ValueType::flag && node.kind == io::YamlNode::Kind::scalar && !node.plain;
    set_from_json(config_, key, settings::json_of(node, key), place_of(name),
                  word ? concat("\"", std::string_view(node.text), "\" in quotes") : given_in(node));
    if (node.kind == io::YamlNode::Kind::null) return;
    // Others train with it; here a record has its own, or the template.
    if (key.name == "system" && (command_ & of_training)) idle_.push_back(name.name);
    own_.push_back(key.name);
    given_.push_back(key.name);
  }

  void take_foreign(const io::YamlKey& name, const io::YamlNode& node) {
    const bool known = find_foreign(name.name) != nullptr;
    if (known && node.kind == io::YamlNode::Kind::null) return;  // not given, as of every key
    const bool cuts = name.name == "packing" && config_.stage == "pt";
    if (follows_from_others(name.name, word_of(node)) || (is_idle(name, node) && !cuts)) {
      if (name.name == "stage") {
        config_.stage = node.text;
        config_.stage_place = place_of(name);
      }
      if (name.name == "do_predict" && command_ == eval_command && word_of(node) == "true") evaluate_eval_dataset();
      return idle_.push_back(name.name);
    }
    if (const ForeignValue* other = meaning_of(name, node)) return mean(name, node, *other);
    if (const ForeignAnswer* answer = answer_to(name, node)) answer_with(name, node, concat("here: ", answer->here));
    answer_with(name, node, meant(name.name, ~0u));
  }

  // Of a list, each of its values, where none of them is a value as well.
  bool is_idle(const io::YamlKey& name, const io::YamlNode& node) const {
    if (node.kind == io::YamlNode::Kind::list && !node.values.empty())
      return is_idle(name, {.kind = io::YamlNode::Kind::list}) &&
             std::all_of(node.values.begin(), node.values.end(),
                         [&](const io::YamlNode& value) { return is_idle(name, value); });
    return find_value(name, node, false) != nullptr;
  }
  const ForeignValue* meaning_of(const io::YamlKey& name, const io::YamlNode& node) const {
    return find_value(name, node, true);
  }
  const ForeignValue* find_value(const io::YamlKey& name, const io::YamlNode& node, bool means_a_key) const {
    for (const ForeignValue& other : llama_factory_values)
      if (other.name == name.name && (other.commands & command_) && other.key.empty() != means_a_key &&
          (other.value.empty()   ? node.kind == io::YamlNode::Kind::scalar
           : other.value == "{}" ? node.kind == io::YamlNode::Kind::map
                                 : is(node, other.value)))
        return &other;
    return nullptr;
  }
  static const ForeignAnswer* answer_to(const io::YamlKey& name, const io::YamlNode& node) {
    for (const ForeignAnswer& answer : llama_factory_answers)
      if (answer.name == name.name && is(node, answer.value)) return &answer;
    return nullptr;
  }
  // "no" is false unless it stands in quotes.
  static bool is(const io::YamlNode& node, std::string_view value) {
    const std::string word = word_of(node);
    return word == value || (value == "no" && word == "false");
  }

  static bool has_values(std::string_view name) {
    return follows_from_keys(name) || std::any_of(std::begin(llama_factory_values), std::end(llama_factory_values),
                                                  [&](const ForeignValue& other) { return other.name == name; });
  }

  static bool says_when_to_evaluate(std::string_view name) {
    return name == "eval_strategy" || name == "evaluation_strategy" || name == "do_eval";
  }

  static bool follows_from_keys(std::string_view name) {
    return says_when_to_evaluate(name) || name == "data_seed" || name == "do_sample" || name == "greater_is_better" ||
           name == "logging_dir";
  }

  // Whether a value says what follows from other keys, of the command line as well.
  bool follows_from_others(std::string_view name, std::string_view value) const {
    if (name == "data_seed") return value == concat(config_.seed);
    if (name == "logging_dir") return !config_.reports_to("tensorboard");
    if (name == "greater_is_better") return value == (config_.metric_for_best_model == "eval_loss" ? "false" : "true");
    if (name == "do_sample") {
      const bool talks = (command_ & (generate_command | chat_command)) != 0;
      const bool answers = talks || (command_ == eval_command ? config_.predict : config_.eval_predict);
      return !answers ? value == "true" || value == "false" : value == (talks && config_.draws() ? "true" : "false");
    }
    if (!says_when_to_evaluate(name)) return false;
    const bool trains = (command_ & of_training) != 0;
    const bool never = value == "no" || value == "false";
    if (name != "do_eval" && value == "steps") return config_.eval_steps || !trains;
    return (never && (!config_.evaluates() || !trains)) ||
           (name == "do_eval" && value == "true" && (config_.evaluates() || !trains));
  }

  // LLaMA-Factory predicts the answers of eval_dataset, whether there are records to train on or not.
  void evaluate_eval_dataset() {
    if (config_.eval_dataset.empty() || config_.from_command_line.contains("dataset")) return;
    const Key& key = *find_key("dataset");
    config_.dataset = std::exchange(config_.eval_dataset, {});
    meant_.push_back({&key, io::to_text(value_of(config_, key), -1), "eval_dataset is dataset"});
  }

  // Sets the key that another one's value means.
  void mean(const io::YamlKey& name, const io::YamlNode& node, const ForeignValue& other) {
    const Key& key = *find_key(other.key);
    const std::string meaning = concat(other.value.empty() ? std::string_view(node.text) : "", other.meaning);
    Config told;
    try {
      set_from_json(told, key, scalar_of({.kind = io::YamlNode::Kind::scalar, .text = meaning}, type_of(key)), {});
    } catch (const ConfigError&) {  // which tells what nobody wrote
      answer_with(name, node, meant(name.name, ~0u));
    }
    const io::Json has = value_of(config_, key), says = value_of(told, key);
    const bool same = io::to_text(has, -1) == io::to_text(says, -1);
    if (other.denies ? same && is_in(own_, key.name) : !same && is_in(given_, key.name))
      fail<ConfigError>(place_of(name), "key ", std::string_view(name.name), ": given ",
                        std::string_view(given_in(node)), ", which is ", other.denies ? "not " : "", key.name, " ",
                        std::string_view(meaning), " here, but the file has ", key.name, " ",
                        std::string_view(io::shown(has)));
    if (other.denies) return idle_.push_back(name.name);
    given_.push_back(key.name);
    const bool itself = name.name == key.name;  // of which the file has another value than the one that counts
    const bool is_own_text = key.name == "template" && meaning == "auto";
    if (same && !itself) return idle_.push_back(name.name);
    std::visit([&](auto member) { config_.*member = told.*member; }, key.member);
    if (is_own_text) {
      config_.template_family = node.text;
      config_.template_place = place_of(name);
    }
    meant_.push_back({&key, io::to_text(says, -1),
                      concat(std::string_view(name.name), " ", std::string_view(given_in(node)), " is ", other.key, " ",
                             std::string_view(meaning), is_own_text ? ", the model's own" : "")});
  }

  static bool is_in(const std::vector<std::string_view>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  [[noreturn]] void answer_with(const io::YamlKey& name, const io::YamlNode& node, std::string_view hint) const {
    const std::string given =
        is_secret(name.name) ? "" : concat("given ", std::string_view(shortened(given_in(node), 80)));
    // A key of which other values are taken is no unknown one.
    const bool known = find_key(name.name) != nullptr || has_values(name.name);
    fail<ConfigError>(place_of(name), known ? "key " : "unknown key ", std::string_view(shortened(name.name, 80)),
                      given.empty() && hint.empty() ? "" : ": ", std::string_view(given),
                      given.empty() || hint.empty() ? "" : "; ", hint);
  }

  // A switch's value as true or false, that of a list without values as [], any other as it stands there; of other
  // lists and maps nothing.
  static std::string word_of(const io::YamlNode& node) {
    if (const auto flag = io::yaml_flag(node)) return *flag ? "true" : "false";
    return node.kind == io::YamlNode::Kind::list && node.values.empty() ? "[]" : node.text;
  }

  Config& config_;
  const io::YamlNode& document_;
  const std::string& file_;
  const Command command_;
  std::vector<std::string_view> own_{}, given_{};  // keys that the file sets: by their names, and in any way
  std::vector<std::string> idle_{};
  std::vector<Meant> meant_{};
  std::vector<Reason> reasons_{};
};

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE io::Json json_of(const io::YamlNode& node, const Key& key) {
  return detail::json_of(node, type_of(key), std::nullopt, true);
}

LORA_INLINE std::string read_settings(Config& config, const io::YamlNode& document, const std::string& file,
                                      Command command, const std::function<void()>& then) {
  return detail::YamlSettings(config, document, file, command).apply(then);
}

}  // namespace lora::settings
