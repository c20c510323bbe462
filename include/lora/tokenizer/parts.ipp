#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE void check_id(const AddedToken& token, const std::string& where) {
  if (token.id < 0 || token.id >= Vocabulary::max_id)
    fail<FormatError>(where, ": the added token \"", token.content, "\" has the id ", token.id, "; expected 0 to ",
                      Vocabulary::max_id - 1);
}

LORA_INLINE io::Json added_token_json(const AddedToken& token) {
  return io::json_object({{"id", token.id},
                          {"content", token.content},
                          {"single_word", token.single_word},
                          {"lstrip", token.lstrip},
                          {"rstrip", token.rstrip},
                          {"normalized", token.normalized},
                          {"special", token.special}});
}

LORA_INLINE std::optional<std::int32_t> TokenizerParts::find(std::string_view token) const {
  if (const auto found = added_ids.find(std::string(token)); found != added_ids.end()) return found->second;
  const std::int32_t id = model->find(token);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

LORA_INLINE Fingerprints TokenizerParts::fingerprints() const {
  Fingerprints all = model->fingerprints();
  FingerprintSum sum;
  for (const AddedToken* token : added_in_order()) {
    sum.add_number(token->id);
    sum.add(token->content);
    for (const bool flag : {token->special, token->normalized, token->lstrip, token->rstrip, token->single_word})
      sum.add_number(flag);
  }
  for (const auto* side : {&frame.before, &frame.after}) sum.add_numbers(std::span(*side));
  for (const auto& id : {bos, eos}) sum.add_number(id.value_or(-1));
  if (split_special_tokens) sum.add("split_special_tokens");
  all.added_tokens = sum.value();
  return all;
}

LORA_INLINE void TokenizerParts::declare(AddedToken token) {
  const std::int32_t given = token.id;
  if (token.content.empty()) fail<FormatError>(where, ": the added token \"\" has the id ", given, " and no content");
  const auto known = find(token.content);
  token.id = known ? *known : next_id();
  if (!known && model->has(token.id)) {  // the vocabulary has holes
    if (given < 0 || has(given))
      fail<FormatError>(where, ": the new token \"", token.content, "\" would get the id ", token.id,
                        ", the number of tokens, but in the vocabulary that is another token");
    token.id = given;
  }
  if (given >= 0 && given != token.id && renumbered_++ == 0)
    first_renumbered_ = concat("\"", token.content, "\" is declared with the id ", given, ", but has ", token.id);
  if (const auto before = added.find(token.id); before != added.end() && before->second.special) token.special = true;
  added_ids.insert_or_assign(token.content, token.id);
  highest_added_ = std::max(highest_added_, token.id);
  if (token.normalized && model->normalizer().changes(token.content))
    token.content = model->normalizer()(token.content).text;
  added.insert_or_assign(token.id, std::move(token));
}

LORA_INLINE void TokenizerParts::forget_added() {
  added.clear();
  added_ids.clear();
  highest_added_ = -1;
  renumbered_ = 0;
}

LORA_INLINE void TokenizerParts::make_special(std::optional<std::int32_t> id) {
  if (!id) return;
  const auto found = added.find(*id);
  if (found != added.end())
    found->second.special = true;
  else
    declare({.id = *id, .content = model->text_of(*id), .special = true});
}

LORA_INLINE io::Json TokenizerParts::added_tokens_json() const {
  io::Json tokens = io::Json::array();
  for (const AddedToken* token : added_in_order()) tokens.push_back(added_token_json(*token));
  return tokens;
}

LORA_INLINE void TokenizerParts::finish() {
  if (renumbered_ > 0)
    log::warn(where, ": the added token ", first_renumbered_, ", as in the tokenizers library",
              renumbered_ > 1 ? concat(" (and ", renumbered_ - 1, " more)") : "");
  size = model->end();
  for (const AddedToken* token : added_in_order()) {
    (token->normalized ? normalized : raw).add(*token);
    size = std::max<Index>(size, token->id + 1);
  }
  raw.finish(split_special_tokens);
  normalized.finish(split_special_tokens);
  settle_special();
  for (const auto* side : {&frame.before, &frame.after})
    for (const std::int32_t id : *side)
      if (!has(id))
        fail<FormatError>(where, ": the template of special tokens names the id ", id, ", which no token has");
}

/// The `tokenizers` library leaves a token out of what it decodes if a special one was declared with the text that it
/// has once it is normalized: if that is another text, it stays, although it is special.
LORA_INLINE void TokenizerParts::settle_special() {
  std::set<std::string_view> declared;
  for (const auto& [content, id] : added_ids)
    if (added.at(id).special) declared.insert(content);
  for (auto& [id, token] : added) token.special = token.special && declared.contains(token.content);
}

LORA_INLINE std::vector<const AddedToken*> TokenizerParts::added_in_order() const {
  std::vector<const AddedToken*> tokens;
  for (const auto& [id, token] : added) tokens.push_back(&token);
  std::sort(tokens.begin(), tokens.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  return tokens;
}

LORA_INLINE std::int32_t TokenizerParts::next_id() const {
  const std::int32_t count = model->count(), id = highest_added_ >= count ? highest_added_ + 1 : count;
  if (id >= Vocabulary::max_id) fail<FormatError>(where, ": more than ", Vocabulary::max_id, " tokens");
  return id;
}

LORA_INLINE std::unique_ptr<TokenizerParts> parts_of_document(TokenizerDocument&& document) {
  auto parts = std::make_unique<TokenizerParts>();
  parts->where = document.where;
  parts->settings = document.settings;
  auto model = bpe_model(std::move(document));
  parts->bpe = model.get();
  parts->model = std::move(model);
  const io::JsonView settings(parts->settings, parts->where);
  for (AddedToken& token : read_added_tokens(settings)) {
    check_id(token, parts->where);
    parts->declare(std::move(token));
  }
  read_post_processor(part_of(settings, "post_processor"), parts->frame);
  return parts;
}

/// Whether this is Llama 3's own tokenizer.model, in tiktoken's format: lines of base64, a space and a rank.
LORA_INLINE bool is_tiktoken(std::string_view content) {
  const auto line = content.substr(0, std::min(content.find('\n'), std::size_t{200}));
  const auto space = line.find(' ');
  if (space == line.npos || space == 0 || space + 1 == line.size()) return false;
  const auto all_of = [](std::string_view text, auto&& test) { return std::all_of(text.begin(), text.end(), test); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return all_of(line.substr(space + 1), [&](char c) { return is_digit(c) || c == '\r'; }) &&
         all_of(line.substr(0, space), [&](char c) {
           return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '+' || c == '/' || c == '=';
         });
}

LORA_INLINE std::unique_ptr<TokenizerParts> parts_of_pieces(std::string proto, const std::string& where,
                                                            SentencePiecePrefix prefix) {
  if (is_tiktoken(proto))
    fail<FormatError>(where, ": a vocabulary of the tiktoken library, without regular expression and special tokens; ",
                      "the tokenizer.json of the same model has them: put it into the same folder");
  auto parts = std::make_unique<TokenizerParts>();
  parts->where = where;
  auto model = std::make_unique<SentencePieceModel>(std::move(proto), where, prefix);
  const auto known = [](std::int32_t id) { return id >= 0 ? std::optional(id) : std::nullopt; };
  parts->bos = known(model->bos());
  parts->eos = known(model->eos());
  parts->pad = known(model->pad());
  if (parts->bos) parts->frame.before = {*parts->bos};
  parts->pieces = model.get();
  parts->model = std::move(model);
  for (AddedToken& token : parts->pieces->added_tokens()) parts->declare(std::move(token));
  return parts;
}

using NamedTemplates = std::map<std::string, std::string>;

/// "chat_template": a text, which is the default one, or several with names.
LORA_INLINE NamedTemplates templates_in(const io::JsonView& config) {
  const io::JsonView value = part_of(config, "chat_template");
  if (value.json().is_null()) return {};
  if (!value.json().is_array()) return {{"default", value.as<std::string>()}};
  NamedTemplates named;
  for (std::size_t i = 0; i < value.json().size(); ++i) {
    const io::JsonView item = value.element(i);
    named[item.at<std::string>("name")] = item.at<std::string>("template");
  }
  return named;
}

/// The .jinja files of a folder, by their names.
LORA_INLINE NamedTemplates templates_in(const io::Path& folder) {
  NamedTemplates named;
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none)) return named;
  for (const io::Path& file : io::entries_of(folder))
    if (file.extension() == ".jinja") named[file.stem().native()] = io::read_file(file);
  return named;
}

LORA_INLINE ChatTemplates read_chat_templates(const io::Path& folder, const io::JsonView& config) {
  NamedTemplates named = templates_in(folder / "additional_chat_templates");
  const bool plain_apart = named.contains("default"), others_apart = named.size() > (plain_apart ? 1u : 0u);
  if (const auto file = folder / "chat_template.jinja"; io::is_there(file))
    named.emplace("default", io::read_file(file));
  if (named.empty() && config.has("chat_template")) {
    named = templates_in(config);
  } else if (const auto file = folder / "chat_template.json"; named.empty() && io::is_there(file)) {
    named = templates_in(io::JsonFile(file).view());
  }
  const std::string plain = named["default"], with_tools = named["tool_use"];
  return {plain, !with_tools.empty() && with_tools != plain, plain_apart, others_apart};
}

LORA_INLINE std::string without_extra_spaces(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : rules)
    for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  return text;
}

LORA_INLINE io::Json tokenizer_config_json(const TokenizerParts& parts) {
  io::Json config = io::Json::object();
  const auto name_token = [&](const char* key, std::optional<std::int32_t> id) {
    if (!id) return;
    const auto added = parts.added.find(*id);
    config[key] = added != parts.added.end() ? added->second.content : parts.model->text_of(*id);
  };
  name_token("bos_token", parts.bos);
  name_token("eos_token", parts.eos);
  name_token("pad_token", parts.pad);
  if (parts.pieces) {
    // Those that only names make special, which a tokenizer.model does not tell.
    std::vector<std::string> more;
    io::Json with_flags = io::Json::object();  // that it does not tell either
    for (const auto& [id, token] : parts.added) {
      if (token.rstrip) {
        io::Json& entry = with_flags[concat(id)] = added_token_json(token);
        entry.erase("id");
      } else if (!parts.pieces->is_special(id) && id != parts.bos && id != parts.eos && id != parts.pad) {
        more.push_back(token.content);
      }
    }
    if (!with_flags.empty()) config["added_tokens_decoder"] = std::move(with_flags);
    std::sort(more.begin(), more.end());
    if (!more.empty()) config["additional_special_tokens"] = io::json_array(more);
    config["add_bos_token"] = !parts.frame.before.empty();
    config["add_eos_token"] = !parts.frame.after.empty();
    config["legacy"] = true;
    if (!parts.pieces->adds_leading_space()) config["add_prefix_space"] = false;
  }
  config["clean_up_tokenization_spaces"] = false;
  config["tokenizer_class"] = parts.pieces ? "LlamaTokenizer" : "PreTrainedTokenizerFast";
  if (!parts.chat_template.empty()) config["chat_template"] = parts.chat_template;
  return config;
}

}  // namespace lora::tokenizer::detail
