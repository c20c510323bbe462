#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/gguf.hpp"
#include "lora/io/json.hpp"
#include "lora/tokenizer/json.hpp"
#include "lora/tokenizer/parts.hpp"
#include "lora/tokenizer/sentencepiece.hpp"

namespace lora::tokenizer::detail {

/// The tokenizer in a GGUF file's metadata, with the names of its special tokens and its template.
std::unique_ptr<TokenizerParts> parts_of_gguf(const io::Gguf& file);

}  // namespace lora::tokenizer::detail

#ifndef LORA_COMPILED
#  include "lora/tokenizer/gguf.ipp"
#endif
