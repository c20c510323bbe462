#pragma once

#include <cstddef>

#include "lora/core/config.hpp"
#include "lora/tokenizer/declared.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE TokenizerFolder::TokenizerFolder(const io::Path& folder) {
  const auto read = [&](const char* file, io::Json& content, std::string& name) {
    name = (folder / file).native();
    if (!io::is_there(folder / file)) return;
    content = io::read_json(folder / file);
    static_cast<void>(io::JsonView::of_object(content, name));
  };
  read("tokenizer_config.json", config, config_name);
  read("special_tokens_map.json", special_tokens_map, map_name);
  read("added_tokens.json", added_tokens, added_name);
  io::Json model;
  std::string name;
  read("config.json", model, name);
  const auto take = [&](std::string_view key, std::string& text) {
    const io::Json* value = model.is_object() ? io::json_find(model, key) : nullptr;
    if (value != nullptr && value->is_string()) text = value->get<std::string>();
  };
  take("model_type", model_type);
  take("tokenizer_class", models_class);
}

/// Whether an object has a key, even with null.
LORA_INLINE bool has_key(const io::Json& object, std::string_view key) { return object.find(key) != object.end(); }

LORA_INLINE AddedToken named_token(const io::JsonView& value) {
  if (!value.json().is_object())
    return AddedToken{.id = unnumbered, .content = value.as<std::string>(), .special = true};
  AddedToken token = read_added_token(value, unnumbered);
  if (!value.has("special")) token.special = !value.has("__type");
  if (!value.has("normalized")) token.normalized = !token.special;
  return token;
}

/// The special tokens that have names, and those of lists, in the order in which transformers adds them.
class SpecialTokens {
 public:
  static constexpr std::string_view standard[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};

  static bool is_standard(std::string_view key) {
    return std::find(std::begin(standard), std::end(standard), key) != std::end(standard);
  }

  void set(std::string_view key, AddedToken token) {
    if (token.content.empty()) return unset(key);
    put(named_, key, std::move(token));
  }
  void unset(std::string_view key) {
    std::erase_if(named_, [&](const auto& entry) { return entry.first == key; });
  }
  const AddedToken* find(std::string_view key) const {
    for (const auto& [name, token] : named_)
      if (name == key) return &token;
    return nullptr;
  }

  /// tokenizer_config.json, and special_tokens_map.json, which transformers reads where the former has no
  /// added_tokens_decoder, and then prefers.
  void read(const TokenizerFolder& folder) {
    read_config(folder.view());
    listed_early_ = extra_.size();
    if (folder.special_tokens_map.is_object() && !has_key(folder.config, "added_tokens_decoder"))
      read_map({folder.special_tokens_map, folder.map_name});
    for (auto& [key, token] : of_texts_) put(models_own_, key, std::move(token));
    for (auto& [key, token] : models_own_) set(key, std::move(token));
  }

  /// All of them, those with names first.
  std::vector<AddedToken> all() const {
    std::vector<AddedToken> tokens;
    for (const std::string_view key : standard)
      if (const AddedToken* token = find(key)) tokens.push_back(*token);
    for (const auto& [key, token] : named_)
      if (!is_standard(key)) tokens.push_back(token);
    for (AddedToken& token : tokens) token.special = true;
    tokens.insert(tokens.end(), extra_.begin(), extra_.end());
    return tokens;
  }
  bool names(std::string_view content) const {
    return std::any_of(named_.begin(), named_.end(),
                       [&](const auto& entry) { return entry.second.content == content; });
  }
  /// Whether added_tokens.json need not say that this token is special.
  bool makes_special(std::string_view content) const {
    for (const auto& [key, token] : named_)
      if (is_standard(key) && token.content == content) return true;
    return std::any_of(extra_.begin(), extra_.begin() + static_cast<std::ptrdiff_t>(listed_early_),
                       [&](const AddedToken& token) { return token.content == content; });
  }

 private:
  using Named = std::vector<std::pair<std::string, AddedToken>>;

  /// As in a Python dict: what has the key already keeps its place.
  static void put(Named& tokens, std::string_view key, AddedToken token) {
    for (auto& [name, known] : tokens)
      if (name == key) {
        known = std::move(token);
        return;
      }
    tokens.emplace_back(key, std::move(token));
  }

  /// NAME_token, for a name that is not a standard one.
  template <class F>
  static void for_each_models_own(const io::JsonView& file, F&& f) {
    file.for_each_field([&](const std::string& key, const io::JsonView& value) {
      const io::Json& json = value.json();
      if (is_standard(key) || !key.ends_with("_token")) return;
      if (json.is_string() || (json.is_object() && has_key(json, "content"))) f(key, value);
    });
  }

  /// The value of a key that is neither null nor empty.
  static const io::Json* filled(const io::Json& object, std::string_view key) {
    const io::Json* value = io::json_find(object, key);
    return value != nullptr && !(value->is_structured() && value->empty()) ? value : nullptr;
  }

  void read_config(const io::JsonView& config) {
    read_standard(config);
    for_each_models_own(config, [&](const std::string& key, const io::JsonView& value) {
      if (value.json().is_string())
        put(of_texts_, key, named_token(value));
      else if (const io::Json* type = io::json_find(value.json(), "__type"); type && io::json_is(*type, "AddedToken"))
        put(models_own_, key, named_token(value));
      else
        log::warn(config.place(), ": \"", key,
                  "\" is an object without \"__type\": \"AddedToken\", and so no token, as ", "in transformers");
    });
    read_lists(config);
    read_model_specific(config);
  }
  void read_lists(const io::JsonView& config) {
    const io::Json* extra = filled(config.json(), "extra_special_tokens");
    const io::Json* additional = filled(config.json(), "additional_special_tokens");
    has_list_ = additional != nullptr || (has_key(config.json(), "extra_special_tokens") &&
                                          !config.json().at("extra_special_tokens").is_object());
    if (extra != nullptr) read_list(config, "extra_special_tokens");
    if (additional == nullptr) return;
    if (extra == nullptr || extra->is_object()) return read_list(config, "additional_special_tokens");
    log::warn(config.place(),
              ": \"additional_special_tokens\" does not count beside \"extra_special_tokens\", as in transformers");
  }
  /// Transformers puts tokens of texts and of a map of names in the place of this map, if there are any.
  void read_model_specific(const io::JsonView& config) {
    constexpr const char* key = "model_specific_special_tokens";
    const auto value = config.find(key);
    if (!value) return;
    if (!value->json().is_object()) config.fail("\"", key, "\" must be an object of tokens");
    Named tokens;
    value->for_each_field(
        [&](const std::string& name, const io::JsonView& item) { put(tokens, name, named_token(item)); });
    if (of_texts_.empty()) {
      of_texts_ = std::move(tokens);
      return;
    }
    for (const auto& [name, token] : tokens) {
      const auto same = [&, content = token.content](const auto& entry) { return entry.second.content == content; };
      if (std::none_of(of_texts_.begin(), of_texts_.end(), same))
        return log::warn(config.place(), ": \"", name, "\" of \"", key, "\" does not count beside \"",
                         of_texts_.front().first, "\", as in transformers");
    }
  }
  void read_map(const io::JsonView& map) {
    read_standard(map);
    for_each_models_own(
        map, [&](const std::string& key, const io::JsonView& value) { put(models_own_, key, named_token(value)); });
    if (const io::Json* extra = filled(map.json(), "extra_special_tokens")) {
      read_list(map, "extra_special_tokens");
      has_list_ = has_list_ || extra->is_array();
      listed_early_ = extra_.size();
    }
    if (filled(map.json(), "additional_special_tokens") != nullptr && !has_list_)
      read_list(map, "additional_special_tokens");
  }
  void read_list(const io::JsonView& file, const char* key) {
    const io::JsonView value(file.json().at(key), file.place(), key);
    if (value.json().is_object()) {
      has_list_ = false;
      value.for_each_field(
          [&](const std::string& name, const io::JsonView& item) { put(of_texts_, name, named_token(item)); });
    } else if (value.json().is_array()) {
      for (std::size_t i = 0; i < value.json().size(); ++i) add_extra(named_token(value.element(i)));
    } else {
      value.fail("must be a list or an object of tokens");
    }
  }
  void add_extra(AddedToken token) {
    const auto same = [&](const AddedToken& known) { return known.content == token.content; };
    if (!token.content.empty() && std::none_of(extra_.begin(), extra_.end(), same)) extra_.push_back(std::move(token));
  }
  void read_standard(const io::JsonView& file) {
    for (const std::string_view key : standard) {
      if (const auto value = file.find(key))
        set(key, named_token(*value));
      else if (has_key(file.json(), key))
        unset(key);
    }
  }

  Named named_;
  Named models_own_;  // those that are not standard: first of objects and of special_tokens_map.json,
  Named of_texts_;    // then of texts and of maps of names
  std::vector<AddedToken> extra_;
  bool has_list_ = false;         // beside which special_tokens_map.json's additional_special_tokens do not count
  std::size_t listed_early_ = 0;  // of extra_, those known when added_tokens.json is read
};

/// The tokens with ids: of added_tokens_decoder or, where tokenizer_config.json has none, of added_tokens.json and
/// tokenizer.json.
LORA_INLINE std::map<std::int32_t, AddedToken> numbered_tokens(const TokenizerFolder& folder,
                                                               const SpecialTokens& special,
                                                               const std::vector<AddedToken>& of_vocabulary) {
  std::map<std::int32_t, AddedToken> tokens;
  if (has_key(folder.config, "added_tokens_decoder")) {
    const auto decoder = folder.view().find("added_tokens_decoder");
    if (!decoder) return tokens;
    if (!decoder->json().is_object()) folder.view().fail("\"added_tokens_decoder\" must be an object");
    decoder->for_each_field([&](const std::string& key, const io::JsonView& item) {
      const io::Json number = io::parse_json(key, folder.config_name);
      const auto id = io::JsonView(number, folder.config_name, decoder->name()).as<std::int32_t>();
      AddedToken token = read_added_token(item, id);
      if (!item.has("normalized")) token.normalized = !token.special;
      check_id(token, folder.config_name);
      tokens.insert_or_assign(id, std::move(token));
    });
    return tokens;
  }
  if (folder.added_tokens.is_object())
    io::JsonView(folder.added_tokens, folder.added_name)
        .for_each_field([&](const std::string& content, const io::JsonView& value) {
          const auto id = value.as<std::int32_t>();
          const bool is_special = special.makes_special(content);
          AddedToken token{.id = id, .content = content, .special = is_special, .normalized = !is_special};
          check_id(token, folder.added_name);
          tokens.insert_or_assign(id, std::move(token));
        });
  for (const AddedToken& token : of_vocabulary) tokens.insert_or_assign(token.id, token);
  return tokens;
}

LORA_INLINE std::set<std::string_view> contents_of(const std::map<std::int32_t, AddedToken>& tokens) {
  std::set<std::string_view> contents;
  for (const auto& [id, token] : tokens) contents.insert(token.content);
  return contents;
}

LORA_INLINE void forget_added(TokenizerParts& parts, const TokenizerFolder& folder,
                              const std::map<std::int32_t, AddedToken>& numbered) {
  std::vector<std::string> left;
  const auto kept = contents_of(numbered);
  for (const auto& known : parts.added_ids)
    if (!kept.count(known.first)) left.push_back(known.first);
  if (!left.empty())
    log::warn(parts.where, ": the added token \"", *std::min_element(left.begin(), left.end()), "\"",
              left.size() > 1 ? concat(" and ", left.size() - 1, " more") : "", " is not in added_tokens_decoder of ",
              folder.config_name, ", and so does not count, as in transformers' class for this model");
  parts.forget_added();
}

/// Warns of what special_tokens_map.json and added_tokens.json would change if transformers read them.
LORA_INLINE void warn_of_unread(const TokenizerParts& parts, const TokenizerFolder& folder,
                                const SpecialTokens& special) {
  if (!has_key(folder.config, "added_tokens_decoder")) return;
  const auto warn = [&](const std::string& file, const auto&... what) {
    log::warn(file, ": ", what...,
              ": beside \"added_tokens_decoder\" of tokenizer_config.json it does not count, as in ", "transformers");
  };
  for (const std::string_view key : SpecialTokens::standard) {
    const io::Json* value =
        folder.special_tokens_map.is_object() ? io::json_find(folder.special_tokens_map, key) : nullptr;
    if (value == nullptr) continue;
    const std::string content = named_token(io::JsonView(*value, folder.map_name, std::string(key))).content;
    const AddedToken* known = special.find(key);
    if (known == nullptr || known->content != content)
      warn(folder.map_name, "\"", key, "\" is \"", content, "\", in tokenizer_config.json ",
           known ? concat("\"", known->content, "\"") : "none");
  }
  if (!folder.added_tokens.is_object()) return;
  for (const auto& [content, id] : io::json_fields(folder.added_tokens))
    if (!parts.added_ids.count(content)) return warn(folder.added_name, "the token \"", content, "\" is added");
}

LORA_INLINE void declare_tokens(TokenizerParts& parts, const TokenizerFolder& folder, TokenizerClass kind,
                                const std::vector<AddedToken>& of_vocabulary) {
  SpecialTokens special;
  for (const auto& [key, content] : own_tokens(kind))
    special.set(key, {.id = of_class, .content = std::string(content), .special = true});
  const auto set_piece = [&](std::string_view key, std::optional<std::int32_t> id) {
    if (id) special.set(key, {.id = unnumbered, .content = parts.model->text_of(*id), .special = true});
  };
  set_piece("bos_token", parts.bos);
  set_piece("eos_token", parts.eos);
  set_piece("pad_token", parts.pad);
  special.read(folder);

  const auto numbered = numbered_tokens(folder, special, of_vocabulary);
  if (kind != TokenizerClass::plain) forget_added(parts, folder, numbered);
  std::vector<AddedToken> others;
  const auto has_number = contents_of(numbered);
  for (AddedToken& token : special.all())
    if (!parts.added_ids.count(token.content) && !has_number.count(token.content)) others.push_back(std::move(token));
  for (auto [id, token] : numbered) {
    token.special = token.special || special.names(token.content);
    parts.declare(std::move(token));
  }
  // A token of the class that the vocabulary lacks takes an id in transformers, but is in no text that a model has
  // seen.
  std::set<std::string> left;
  for (AddedToken& token : others) {
    if (token.id != of_class || parts.find(token.content))
      parts.declare(std::move(token));
    else if (left.insert(token.content).second)
      parts.leave_id();
  }
  if (kind == TokenizerClass::qwen2)
    for (const AddedToken& token : special.all())
      if (parts.find(token.content)) parts.declare({.id = unnumbered, .content = token.content, .special = true});

  warn_of_unread(parts, folder, special);
  const auto id_of = [&](std::string_view key) {
    const AddedToken* token = special.find(key);
    return token ? parts.find(token->content) : std::nullopt;
  };
  parts.bos = id_of("bos_token");
  parts.eos = id_of("eos_token");
  parts.pad = id_of("pad_token");
  parts.unk = id_of("unk_token");
}

}  // namespace lora::tokenizer::detail
