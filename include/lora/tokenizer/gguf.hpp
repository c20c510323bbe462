#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/io/formats/gguf.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/tokenizer/json.hpp"
#include "lora/tokenizer/parts.hpp"
#include "lora/tokenizer/sentencepiece.hpp"

namespace lora::tokenizer::detail {

/// What tokenizer.ggml.pre names. Only the regular expressions are the name's in llama.cpp; the normalizer of the
/// tokenizers that are called so is not in the file.
struct GgufPreTokenizer {
  std::string_view name;
  enum class Kind { gpt2, digits_gpt2, qwen2, llama3 } kind;
  bool nfc = false;             ///< text is normalized
  bool ignores_merges = false;  ///< a word that is a token stays whole; texts begin with bos unless the file says no
};

/// The first of a kind is the one to write.
inline constexpr GgufPreTokenizer gguf_pre_tokenizers[] = {
    {"smollm", GgufPreTokenizer::Kind::digits_gpt2},
    {"gpt-2", GgufPreTokenizer::Kind::gpt2},
    {"qwen2", GgufPreTokenizer::Kind::qwen2, true},
    {"deepseek-r1-qwen", GgufPreTokenizer::Kind::qwen2, true},
    {"stablelm2", GgufPreTokenizer::Kind::qwen2},
    {"llama-bpe", GgufPreTokenizer::Kind::llama3, false, true},
    {"llama3", GgufPreTokenizer::Kind::llama3, false, true},
    {"llama-v3", GgufPreTokenizer::Kind::llama3, false, true},
    {"smaug-bpe", GgufPreTokenizer::Kind::llama3},
};

/// The names, to be listed.
std::string gguf_pre_tokenizer_names();

/// A pre-tokenizer as tokenizer.json has it.
io::Json gguf_pre_tokenizer_json(GgufPreTokenizer::Kind kind);

/// Whether llama.cpp takes white space behind a token that is found as it is written along with it: it knows Phi-3's
/// tokens by the model's name, general.name.
bool takes_white_space_behind(std::string_view model_name, std::string_view token);

/// The tokenizer in a GGUF file's metadata, with the names of its special tokens and its template.
std::unique_ptr<TokenizerParts> parts_of_gguf(const io::Gguf& file);

}  // namespace lora::tokenizer::detail

#ifndef LORA_COMPILED
#  include "lora/tokenizer/gguf.ipp"
#endif
