#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/tokenizer/added.hpp"
#include "lora/tokenizer/classes.hpp"
#include "lora/tokenizer/parts.hpp"

// Which tokens the files beside a vocabulary declare, in all the ways in which published folders do, and in what order
// they get ids. All of it is as transformers 5 has it (docs/tokenizers.md), which the fixtures of
// tests/make/declared_tokens.py show.

namespace lora::tokenizer::detail {

/// In place of the id of a token that has none, and of one that no file names.
constexpr std::int32_t unnumbered = -1, of_class = -2;

/// The files beside a vocabulary; null where there is none.
struct TokenizerFolder {
  io::Json config = io::Json::object(), special_tokens_map, added_tokens;
  std::string config_name, map_name, added_name;  ///< of the files, in errors
  std::string model_type, models_class;           ///< of config.json

  explicit TokenizerFolder(const io::Path& folder);

  io::JsonView view() const { return {config, config_name}; }
  /// Of config.json where tokenizer_config.json has none.
  std::string class_name() const { return view().get<std::string>("tokenizer_class").value_or(models_class); }
};

/// A token given as a text, or as an object with "content"; its id is not known.
AddedToken named_token(const io::JsonView& value);

/// Forgets the added tokens of tokenizer.json: transformers takes only those that `numbered` has.
void forget_added(TokenizerParts& parts, const TokenizerFolder& folder,
                  const std::map<std::int32_t, AddedToken>& numbered);

/// Adds every token that the files beside a vocabulary declare. `of_vocabulary`: those of a tokenizer.json as it has
/// them, which are added already.
void declare_tokens(TokenizerParts& parts, const TokenizerFolder& folder, TokenizerClass kind,
                    const std::vector<AddedToken>& of_vocabulary);

}  // namespace lora::tokenizer::detail

#ifndef LORA_COMPILED
#  include "lora/tokenizer/declared.ipp"
#endif
