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

/// What a field of an object takes: of a file of dataset, a stage, a mix.
LORA_INLINE ValueType type_of_field(std::string_view name) {
  if (const Key* key = find_key(name)) return type_of(*key);
  for (const std::string_view text : {"path", "name", "columns", "tags"})
    if (name == text) return ValueType::text;
  return name == "until_step" ? ValueType::integer : ValueType::number;
}

LORA_INLINE io::Json json_of(const io::YamlNode& node, ValueType type, bool outermost) {
  if (node.kind == io::YamlNode::Kind::list) {
    io::Json list = io::Json::array();
    for (const io::YamlNode& value : node.values) list.push_back(json_of(value, type, false));
    return list;
  }
  if (node.kind == io::YamlNode::Kind::map) {
    io::Json object = io::Json::object();
    auto& fields = object.get_ref<io::Json::object_t&>();
    const bool texts = type == ValueType::text && !outermost;  // columns and tags of a file
    for (std::size_t i = 0; i < node.keys.size(); ++i)
      fields.emplace_back(node.keys[i].name,
                          json_of(node.values[i], texts ? type : type_of_field(node.keys[i].name), false));
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
    text += given_in(node.values[i]);
  }
  return text + (map ? "}" : "]");
}

/// The keys of one document, which are set one by one; what cannot be honoured is collected.
class YamlSettings {
 public:
  YamlSettings(Config& config, const io::YamlNode& document, const std::string& file)
      : config_(config), document_(document), file_(file) {}

  std::string apply() {
    if (document_.kind != io::YamlNode::Kind::map)
      fail<ConfigError>(io::place_in(file_, document_.place), ": found ",
                        document_.kind == io::YamlNode::Kind::list ? "a list" : std::string_view(given_in(document_)),
                        ", expected keys, each with a colon and its value");
    // Keys that are those here come first: others may say the same of one, and nothing else.
    for (const bool own : {true, false})
      for (std::size_t i = 0; i < document_.keys.size(); ++i) {
        const io::YamlKey& key = document_.keys[i];
        if ((find_key(key.name) != nullptr) != own) continue;
        try {
          if (own)
            set_own(key, document_.values[i]);
          else
            take_foreign(key, document_.values[i]);
        } catch (const ConfigError& error) {
          reasons_.push_back({key.place.line, error.what()});
        }
      }
    if (!reasons_.empty()) refuse();
    return note();
  }

 private:
  struct Reason {
    Index line;
    std::string text;
  };

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
    for (const std::string& words : meant_) text += (text.empty() ? "" : "; ") + words;
    return text.empty() ? text : printable(concat(std::string_view(file_), ": ", std::string_view(text)));
  }

  void set_own(const io::YamlKey& name, const io::YamlNode& node) {
    const Key& key = *find_key(name.name);
    if (const ForeignAnswer* answer = answer_to(name, node)) answer_with(name, node, concat("here: ", answer->here));
    if (const ForeignValue* other = meaning_of(name, node)) return mean(name, node, *other);
    set_from_json(config_, key, settings::json_of(node, key), place_of(name), given_in(node));
    if (node.kind != io::YamlNode::Kind::null) given_.push_back(key.name);
  }

  void take_foreign(const io::YamlKey& name, const io::YamlNode& node) {
    if (node.kind == io::YamlNode::Kind::null) return;  // not given, as of every key
    if (follows_from_others(name.name, word_of(node)) || is_idle(name, node)) return idle_.push_back(name.name);
    if (const ForeignValue* other = meaning_of(name, node)) return mean(name, node, *other);
    if (const ForeignAnswer* answer = answer_to(name, node)) answer_with(name, node, concat("here: ", answer->here));
    answer_with(name, node, meant(name.name, ~0u));
  }

  // Of a list, each of its values.
  static bool is_idle(const io::YamlKey& name, const io::YamlNode& node) {
    if (node.kind == io::YamlNode::Kind::list)
      return !node.values.empty() && std::all_of(node.values.begin(), node.values.end(),
                                                 [&](const io::YamlNode& value) { return is_idle(name, value); });
    return node.kind == io::YamlNode::Kind::scalar &&
           std::any_of(
               std::begin(llama_factory_values), std::end(llama_factory_values), [&](const ForeignValue& other) {
                 return other.name == name.name && other.key.empty() && (other.value.empty() || is(node, other.value));
               });
  }
  static const ForeignValue* meaning_of(const io::YamlKey& name, const io::YamlNode& node) {
    for (const ForeignValue& other : llama_factory_values)
      if (other.name == name.name && !other.key.empty() && is(node, other.value)) return &other;
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
    return node.kind == io::YamlNode::Kind::scalar && (word == value || (value == "no" && word == "false"));
  }

  // Whether a value is that of evaluations which follow from other keys.
  bool follows_from_others(std::string_view name, std::string_view value) const {
    if (name == "eval_strategy" || name == "evaluation_strategy") {
      if (value == "steps") return gives("eval_steps");
      return (value == "no" || value == "false") && !config_.evaluates();
    }
    return name == "do_eval" && value == (config_.evaluates() ? "true" : "false");
  }

  // Sets the key that another one's value means.
  void mean(const io::YamlKey& name, const io::YamlNode& node, const ForeignValue& other) {
    const Key& key = *find_key(other.key);
    Config told;
    set_from_json(told, key,
                  scalar_of({.kind = io::YamlNode::Kind::scalar, .text = std::string(other.meaning)}, type_of(key)),
                  place_of(name));
    const io::Json has = value_of(config_, key), says = value_of(told, key);
    if (gives(key.name) && io::to_text(has, -1) != io::to_text(says, -1))
      fail<ConfigError>(place_of(name), "key ", std::string_view(name.name), ": given ",
                        std::string_view(given_in(node)), ", which is ", key.name, " ", other.meaning,
                        " here, but the file has ", key.name, " ", std::string_view(io::shown(has)));
    std::visit([&](auto member) { config_.*member = told.*member; }, key.member);
    given_.push_back(key.name);
    meant_.push_back(concat(std::string_view(name.name), " ", std::string_view(given_in(node)), " is ", other.key, " ",
                            other.meaning));
  }

  bool gives(std::string_view key) const { return std::find(given_.begin(), given_.end(), key) != given_.end(); }

  [[noreturn]] void answer_with(const io::YamlKey& name, const io::YamlNode& node, std::string_view hint) const {
    const std::string given =
        is_secret(name.name) ? "" : concat("given ", std::string_view(shortened(given_in(node), 80)));
    fail<ConfigError>(place_of(name), find_key(name.name) ? "key " : "unknown key ",
                      std::string_view(shortened(name.name, 80)), given.empty() && hint.empty() ? "" : ": ",
                      std::string_view(given), given.empty() || hint.empty() ? "" : "; ", hint);
  }

  // Of which a value is not to be seen in a log.
  static bool is_secret(std::string_view name) {
    return name.ends_with("_token") || name.ends_with("_key") || name.ends_with("_secret") || name.ends_with("_url");
  }

  // A switch's value as true or false, any other as it stands there; of a list or map nothing.
  static std::string word_of(const io::YamlNode& node) {
    if (const auto flag = io::yaml_flag(node)) return *flag ? "true" : "false";
    return node.text;
  }

  Config& config_;
  const io::YamlNode& document_;
  const std::string& file_;
  std::vector<std::string_view> given_{};  // keys that the file sets
  std::vector<std::string> idle_{}, meant_{};
  std::vector<Reason> reasons_{};
};

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE io::Json json_of(const io::YamlNode& node, const Key& key) {
  return detail::json_of(node, type_of(key), true);
}

LORA_INLINE std::string read_settings(Config& config, const io::YamlNode& document, const std::string& file) {
  return detail::YamlSettings(config, document, file).apply();
}

}  // namespace lora::settings
