#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/json_view.hpp"
#include "lora/tokenizer/added.hpp"
#include "lora/tokenizer/model.hpp"

namespace lora::tokenizer {

/// The merges as written, by rank, until the vocabulary is complete.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right);
  std::size_t size() const { return parts_.size(); }

  std::vector<Bpe::Merge> resolve(const Vocabulary& vocabulary, const std::string& where) const;

 private:
  struct Part {
    std::size_t left, right;
  };
  std::string arena_;
  std::vector<Part> parts_;
};

/// The parts of a tokenizer.json: its model's vocabulary and merges, and the settings, which are everything else.
struct TokenizerDocument {
  std::string where;  ///< names the file in errors
  io::Json settings;
  Vocabulary vocabulary;
  MergeList merges;
};

namespace detail {

/// How many times as long a normalizer or a decoder may make a text: memory for all of it is asked for.
inline constexpr std::size_t most_growth = 64;

/// A part of the settings; null if absent.
io::JsonView part_of(const io::JsonView& object, std::string_view key);

/// The "type" of a part; "null" for null.
std::string type_of(const io::JsonView& part);

[[noreturn]] void fail_part(const std::string& where, std::string_view part, std::string_view found,
                            std::string_view known);

/// Adds the steps of a normalizer, none of null.
void read_normalizer(const io::JsonView& part, Normalizer& result);

/// Adds the stages of a pre-tokenizer, those of Metaspace to the marks, and returns whether it has ByteLevel, which
/// must come last since it turns text into bytes.
bool read_pre_tokenizer(const io::JsonView& part, BpeSteps& result);

/// Adds the steps of a decoder of vocabularies of text.
void read_decoder(const io::JsonView& part, TokenDecoder& result);

AddedToken read_added_token(const io::JsonView& item, std::int32_t id);

std::vector<AddedToken> read_added_tokens(const io::JsonView& settings);

}  // namespace detail

/// Ids added before and after a text if special tokens are requested.
struct SpecialFrame {
  std::vector<std::int32_t> before, after;
};

namespace detail {

void read_post_processor(const io::JsonView& part, SpecialFrame& frame);

}  // namespace detail

/// Reads the text of a tokenizer.json; `where` names it in errors.
TokenizerDocument parse_tokenizer_json(std::string_view text, std::string where);

/// The model that a document describes.
/// Throws   FormatError for an unsupported model, normalizer, pre-tokenizer or decoder
std::unique_ptr<BpeModel> bpe_model(TokenizerDocument&& document);

/// A tokenizer.json: the settings with the model's vocabulary and merges.
std::string tokenizer_json_text(const io::Json& settings, const Bpe& bpe);

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/json.ipp"
#endif
