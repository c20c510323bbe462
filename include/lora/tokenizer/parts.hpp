#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/tokenizer/added.hpp"
#include "lora/tokenizer/json.hpp"
#include "lora/tokenizer/model.hpp"
#include "lora/tokenizer/sentencepiece.hpp"
#include "lora/tokenizer/unicode_nfc.hpp"

namespace lora::tokenizer::detail {

/// Throws   FormatError for an id that no vocabulary has
void check_id(const AddedToken& token, const std::string& where);

io::Json added_token_json(const AddedToken& token);

/// The content of a Tokenizer.
struct TokenizerParts {
  std::string where;  ///< names the file in errors
  std::unique_ptr<TokenModel> model;
  std::unordered_map<std::int32_t, AddedToken> added;
  std::unordered_map<std::string, std::int32_t> added_ids;
  AddedTokenFinder raw, normalized;  ///< find added tokens in the original and the normalized text
  SpecialFrame frame;
  std::optional<std::int32_t> bos, eos, pad, unk;
  bool split_special_tokens = false;  ///< special tokens in a text are cut like other words
  bool cleans_up_spaces = false;      ///< decode takes spaces before punctuation away
  std::string chat_template;
  bool has_tool_template = false;  ///< records with tools have another one
  bool template_apart = false;     ///< it is in none of the sources
  Index size = 0;

  /// What to save: files to copy or, without any, a tokenizer.json with these settings or a tokenizer.model.
  std::vector<io::Path> sources;
  io::Json settings;
  const BpeModel* bpe = nullptr;
  const SentencePieceModel* pieces = nullptr;

  std::optional<std::int32_t> find(std::string_view token) const;
  bool has(std::int32_t id) const { return model->has(id) || added.count(id) > 0; }

  Fingerprints fingerprints() const;

  /// Adds a token or, where it is there already, changes how it is found. Its id is the vocabulary's or the next free
  /// one, as in the `tokenizers` library; the id that a file gives it (below 0: none) only tells whether they agree.
  void declare(AddedToken token);

  /// Forgets the tokens that were declared so far.
  void forget_added();

  /// Leaves an id to a token that transformers would add.
  void leave_id() { highest_added_ = next_id(); }

  /// Makes a token of the vocabulary, if there is one, a special token.
  void make_special(std::optional<std::int32_t> id);
  io::Json added_tokens_json() const;

  /// Call after declaring all tokens.
  void finish();

 private:
  std::vector<const AddedToken*> added_in_order() const;
  void settle_special();
  std::int32_t next_id() const;

  std::int32_t highest_added_ = -1;
  std::size_t renumbered_ = 0;  // tokens whose id is another one than a file gives, of which one is named
  std::string first_renumbered_;
};

std::unique_ptr<TokenizerParts> parts_of_document(TokenizerDocument&& document);

std::unique_ptr<TokenizerParts> parts_of_pieces(std::string proto, const std::string& where,
                                                SentencePiecePrefix prefix = SentencePiecePrefix::as_in_file);

/// A model's templates.
struct ChatTemplates {
  std::string plain{};         ///< empty: none, or several of which none is the default
  bool one_for_tools = false;  ///< another takes its place for records with tools
  bool plain_apart = false;    ///< it is one of additional_chat_templates
  bool others_apart = false;   ///< others are
};

/// Those of the files, chat_template.jinja and what lies in additional_chat_templates, or where there are none of the
/// entry in tokenizer_config.json.
/// Source   transformers 5, PreTrainedTokenizerBase._from_pretrained, get_chat_template
ChatTemplates read_chat_templates(const io::Path& folder, const io::JsonView& config);

/// Takes the spaces away that tokenizers of words put before punctuation, as transformers does.
std::string without_extra_spaces(std::string text);

/// A tokenizer_config.json for a tokenizer without one.
io::Json tokenizer_config_json(const TokenizerParts& parts);

}  // namespace lora::tokenizer::detail

namespace lora::tokenizer {

/// The files of a tokenizer in a model folder.
inline constexpr const char* tokenizer_files[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json"};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/parts.ipp"
#endif
