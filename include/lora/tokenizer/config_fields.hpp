#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/tokenizer/declared.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::tokenizer::detail {

/// Makes a document what the folder's class makes of it, warns of what in it then does not count, and returns the
/// class.
TokenizerClass apply_class(TokenizerDocument& document, const TokenizerFolder& folder);

/// What tokenizer_config.json says about the space that a tokenizer.model puts before texts.
SentencePiecePrefix piece_prefix(const TokenizerFolder& folder);

/// Takes over what tokenizer_config.json says about a text's ids besides tokens.
/// Throws   FormatError for a setting that cannot be followed
void read_config_fields(TokenizerParts& parts, const TokenizerFolder& folder);

}  // namespace lora::tokenizer::detail

#ifndef LORA_COMPILED
#  include "lora/tokenizer/config_fields.ipp"
#endif
