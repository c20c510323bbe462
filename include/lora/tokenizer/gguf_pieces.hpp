#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tokenizer/classes.hpp"
#include "lora/tokenizer/parts.hpp"
#include "lora/tokenizer/sentencepiece.hpp"

namespace lora::tokenizer::detail {

[[noreturn]] void fail_gguf(const TokenizerParts& parts, std::string_view what, std::string_view expected);

/// Whether an added token is spaces as vocabularies of text write them, which normalized text has where a text has
/// spaces: then merges make it, and finding it as it is written does not.
bool is_made_of_spaces(const AddedToken& token);

/// The tokens of a tokenizer.json of characters as pieces of a sentencepiece model. There any two neighbors that
/// together are a piece merge, those first whose piece has the highest score; here merges are listed, by rank. Scores
/// count down in the order in which merges make pieces. Both give the same ids if
///   - every two tokens that together are one have a merge, and
///   - all merges that make a token follow each other, but for runs of spaces, which had one score in some
///     sentencepiece models: there all of theirs together do.
/// So it is with files that were made of a sentencepiece model. Which of two merges that make the same token comes
/// first matters only where they overlap, as in "aaaa": a score can't say it, and the model they were made of did not.
/// Added tokens are found before anything merges, and no piece is made of them.
/// Throws   FormatError where that is not so, or characters without a token don't become bytes
std::vector<SentencePiece> pieces_of_merges(const TokenizerParts& parts);

/// How such a tokenizer puts spaces before texts; as_in_file is before each part between added tokens.
/// Throws   FormatError for one that does anything else to a text before it is merged
SentencePiecePrefix prefix_of_merges(const TokenizerParts& parts);

}  // namespace lora::tokenizer::detail

#ifndef LORA_COMPILED
#  include "lora/tokenizer/gguf_pieces.ipp"
#endif
