#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/file.hpp"
#include "lora/io/json_view.hpp"
#include "lora/tokenizer/added.hpp"
#include "lora/tokenizer/json.hpp"
#include "lora/tokenizer/model.hpp"
#include "lora/tokenizer/sentencepiece.hpp"
#include "lora/tokenizer/unicode_nfc.hpp"

namespace lora::tokenizer::detail {

/// The content of a Tokenizer.
struct TokenizerParts {
  std::string where;  ///< names the file in errors
  std::unique_ptr<TokenModel> model;
  std::unordered_map<std::int32_t, AddedToken> added;
  std::unordered_map<std::string, std::int32_t> added_ids;
  AddedTokenFinder raw, normalized;  ///< find added tokens in the original and the normalised text
  SpecialFrame frame;
  std::optional<std::int32_t> bos, eos, pad;
  std::string chat_template;
  Index size = 0;

  /// What to save: files to copy or, without any, a tokenizer.json with these settings or a tokenizer.model.
  std::vector<std::filesystem::path> sources;
  io::Json settings;
  const ByteLevelModel* byte_level = nullptr;
  const SentencePieceModel* pieces = nullptr;

  std::optional<std::int32_t> find(std::string_view token) const {
    if (const auto found = added_ids.find(std::string(token)); found != added_ids.end()) return found->second;
    const std::int32_t id = model->find(token);
    return id >= 0 ? std::optional(id) : std::nullopt;
  }
  bool has(std::int32_t id) const { return model->has(id) || added.count(id) > 0; }

  Fingerprints fingerprints() const {
    Fingerprints all = model->fingerprints();
    std::vector<const AddedToken*> tokens;
    for (const auto& [id, token] : added) tokens.push_back(&token);
    std::sort(tokens.begin(), tokens.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
    FingerprintSum sum;
    for (const AddedToken* token : tokens) {
      sum.add_number(token->id);
      sum.add(token->content);
      for (const bool flag : {token->special, token->normalized, token->lstrip, token->rstrip, token->single_word})
        sum.add_number(flag);
    }
    for (const auto* side : {&frame.before, &frame.after}) sum.add_numbers(std::span(*side));
    for (const auto& id : {bos, eos}) sum.add_number(id.value_or(-1));
    all.added_tokens = sum.value();
    return all;
  }

  /// An added token may also be in the vocabulary, but then under the same id.
  void add(const AddedToken& token) {
    const auto fail_token = [&](const auto&... reason) {
      fail<FormatError>(where, ": the added token \"", token.content, "\" has the id ", token.id, reason...);
    };
    if (token.id < 0 || token.id >= Vocabulary::max_id) fail_token("; expected 0 to ", Vocabulary::max_id - 1);
    if (token.content.empty()) fail_token(" and no content");
    const std::int32_t in_vocabulary = model->find(token.content);
    if (in_vocabulary >= 0 && in_vocabulary != token.id) fail_token(", but in the vocabulary it is ", in_vocabulary);
    if (in_vocabulary < 0 && model->has(token.id)) fail_token(", but in the vocabulary that is another token");
    AddedToken found = token;
    if (token.normalized && model->wants_nfc()) found.content = unicode::to_nfc(token.content).text;
    if (!added.emplace(token.id, found).second) fail_token(", but another added token has it too");
    if (!added_ids.emplace(token.content, token.id).second) fail_token(" and a second one");
    (token.normalized ? normalized : raw).add(std::move(found));
  }

  /// Call after adding all tokens.
  void finish() {
    raw.finish();
    normalized.finish();
    size = model->end();
    for (const auto& [id, token] : added) size = std::max<Index>(size, id + 1);
    for (const auto* side : {&frame.before, &frame.after})
      for (const std::int32_t id : *side)
        if (!has(id))
          fail<FormatError>(where, ": the template of special tokens names the id ", id, ", which no token has");
  }
};

inline std::unique_ptr<TokenizerParts> parts_of_document(TokenizerDocument&& document) {
  auto parts = std::make_unique<TokenizerParts>();
  parts->where = document.where;
  parts->settings = document.settings;
  auto model = byte_level_model(std::move(document));
  parts->byte_level = model.get();
  parts->model = std::move(model);
  const io::JsonView settings(parts->settings, parts->where);
  for (const AddedToken& token : read_added_tokens(settings)) parts->add(token);
  read_post_processor(part_of(settings, "post_processor"), parts->frame);
  return parts;
}

/// Whether this is Llama 3's own tokenizer.model, in tiktoken's format: lines of base64, a space and a rank.
inline bool is_tiktoken(std::string_view content) {
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

inline std::unique_ptr<TokenizerParts> parts_of_pieces(std::string proto, const std::string& where) {
  if (is_tiktoken(proto))
    fail<FormatError>(where, ": a vocabulary of the tiktoken library, without regular expression and special tokens; ",
                      "the tokenizer.json of the same model has them: put it into the same folder");
  auto parts = std::make_unique<TokenizerParts>();
  parts->where = where;
  auto model = std::make_unique<SentencePieceModel>(std::move(proto), where);
  const auto known = [](std::int32_t id) { return id >= 0 ? std::optional(id) : std::nullopt; };
  parts->bos = known(model->bos());
  parts->eos = known(model->eos());
  parts->pad = known(model->pad());
  if (parts->bos) parts->frame.before = {*parts->bos};
  parts->pieces = model.get();
  parts->model = std::move(model);
  for (const AddedToken& token : parts->pieces->added_tokens()) parts->add(token);
  return parts;
}

/// The value of "eos_token" and the like: a string, or an object with "content".
inline std::optional<std::string> token_name(const io::JsonView& config, std::string_view key) {
  const auto value = config.find(key);
  if (value && value->json().is_object()) return value->at<std::string>("content");
  return config.get<std::string>(key);
}

/// "chat_template": a text, or of several named ones the default; empty if there is none.
inline std::string template_text(const io::JsonView& config) {
  const io::JsonView value = part_of(config, "chat_template");
  if (value.json().is_null()) return {};
  if (!value.json().is_array()) return value.as<std::string>();
  for (std::size_t i = 0; i < value.json().size(); ++i)
    if (const io::JsonView item = value.element(i); item.at<std::string>("name") == "default")
      return item.at<std::string>("template");
  config.fail("\"chat_template\" holds several templates, but none is called default");
}

/// The model's template: chat_template.jinja takes precedence over the entry in tokenizer_config.json.
inline std::string read_chat_template(const std::filesystem::path& folder, const io::JsonView& config) {
  if (io::is_there(folder / "chat_template.jinja")) return io::read_file(folder / "chat_template.jinja");
  if (config.has("chat_template")) return template_text(config);
  const auto file = folder / "chat_template.json";
  return io::is_there(file) ? template_text(io::JsonFile(file).view()) : std::string();
}

/// Reads tokenizer_config.json: further added tokens, the names of special tokens, the chat template.
inline void read_tokenizer_config(TokenizerParts& parts, const io::JsonView& config) {
  if (const auto decoder = config.find("added_tokens_decoder")) {
    if (!decoder->json().is_object()) config.fail("\"added_tokens_decoder\" must be an object");
    decoder->for_each_field([&](const std::string& key, const io::JsonView& item) {
      const io::Json number = io::parse_json(key, config.place());
      const auto id = io::JsonView(number, config.place(), decoder->name()).as<std::int32_t>();
      if (!parts.added.count(id)) parts.add(read_added_token(item, id));
    });
  }
  const auto read_id = [&](std::string_view key, std::optional<std::int32_t>& id) {
    const auto name = token_name(config, key);
    if (!name) return;
    id = parts.find(*name);
    if (!id) config.fail("the ", key, " \"", *name, "\" is not in the vocabulary");
  };
  read_id("bos_token", parts.bos);
  read_id("eos_token", parts.eos);
  read_id("pad_token", parts.pad);
  if (parts.pieces) {
    parts.frame = {};
    if (parts.bos && config.get<bool>("add_bos_token").value_or(true)) parts.frame.before = {*parts.bos};
    if (parts.eos && config.get<bool>("add_eos_token").value_or(false)) parts.frame.after = {*parts.eos};
  }
}

/// Reads the files next to a vocabulary, if there are any.
inline void read_beside_vocabulary(TokenizerParts& parts, const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer_config.json";
  const io::Json content = io::is_there(file) ? io::read_json(file) : io::Json::object();
  const auto config = io::JsonView::of_object(content, file.native());
  read_tokenizer_config(parts, config);
  parts.chat_template = read_chat_template(folder, config);
}

/// A tokenizer_config.json for a tokenizer without one.
inline io::Json tokenizer_config_json(const TokenizerParts& parts) {
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
    config["add_bos_token"] = !parts.frame.before.empty();
    config["add_eos_token"] = !parts.frame.after.empty();
    config["legacy"] = true;
  }
  config["clean_up_tokenization_spaces"] = false;
  config["tokenizer_class"] = parts.pieces ? "LlamaTokenizer" : "PreTrainedTokenizerFast";
  if (!parts.chat_template.empty()) config["chat_template"] = parts.chat_template;
  return config;
}

}  // namespace lora::tokenizer::detail

namespace lora::tokenizer {

/// The files of a tokenizer in a model folder.
inline constexpr const char* tokenizer_files[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json"};

}  // namespace lora::tokenizer
