#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/io/formats/gguf_writer.hpp"
#include "lora/tokenizer/gguf.hpp"
#include "lora/tokenizer/gguf_pieces.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::tokenizer {

/// What a GGUF file says of conversations, of which a tokenizer alone does not know all.
struct GgufChat {
  std::string chat_template{};           ///< empty: none
  std::vector<std::int32_t> stop_ids{};  ///< where answers end, the first as eos
  std::optional<std::int32_t> bos_id{};  ///< of the model, where the tokenizer names none
  std::string model_name{};  ///< general.name, which says how tokens are found, see takes_white_space_behind
};

namespace detail {

/// Adds a tokenizer's keys, "tokenizer.ggml.…", as llama.cpp's own converter does: `size` tokens, as many as the
/// model's head has rows. Throws   FormatError for what the keys can't say: another pre-tokenizer than those of
/// gguf_pre_tokenizers, a
///          unigram model, merges that scores can't say, added tokens that take spaces with them, …
void add_tokenizer(io::GgufMetadata& metadata, const TokenizerParts& parts, Index size, const GgufChat& chat);

}  // namespace detail

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/gguf_metadata.ipp"
#endif
