#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/tokenizer/json.hpp"
#include "lora/tokenizer/split.hpp"

// Classes of transformers 5 that take a tokenizer.json's vocabulary, merges and post_processor, and bring the rest
// themselves (docs/tokenizers.md).

namespace lora::tokenizer::detail {

enum class TokenizerClass { plain, qwen2, gpt2, gpt_neox, llama, gemma };

/// The class that transformers makes of a folder with a tokenizer.json, which is byte-level or not.
TokenizerClass tokenizer_class_of(std::string_view declared, std::string_view model_type, bool is_byte_level);

/// Whether a tokenizer.json names ByteLevel anywhere: then transformers doesn't take it for LlamaTokenizer's.
bool names_byte_level(const io::Json& settings);

/// Whether models of this type take a tokenizer.json as it is, whatever class the folder names.
bool takes_file_as_it_is(std::string_view model_type);

/// Whether a class is one of those that are not known here in full.
bool brings_unknown_parts(std::string_view declared);

/// The special tokens that a class has where a folder does not say otherwise.
std::vector<std::pair<std::string_view, std::string_view>> own_tokens(TokenizerClass kind);

/// What a folder says of its class's parts.
struct ClassSettings {
  bool prefix = false;           ///< add_prefix_space, which replaces that of the file without a word
  bool legacy = false;           ///< of llama: before each part between added tokens, not only before the first
  std::string unknown{"<unk>"};  ///< unk_token, of gemma
};

/// What a class has in the place of a tokenizer.json's "pre_tokenizer".
io::Json pre_tokenizer_of_class(TokenizerClass kind, const ClassSettings& given);

/// Puts the parts that a class brings in the place of those of a tokenizer.json, and warns where they differ.
void take_parts_of_class(TokenizerDocument& document, TokenizerClass kind, const ClassSettings& given);

}  // namespace lora::tokenizer::detail

#ifndef LORA_COMPILED
#  include "lora/tokenizer/classes.ipp"
#endif
