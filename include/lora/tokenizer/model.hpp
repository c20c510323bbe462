#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/bpe.hpp"
#include "lora/tokenizer/fingerprints.hpp"
#include "lora/tokenizer/normalizer.hpp"
#include "lora/tokenizer/split.hpp"
#include "lora/tokenizer/token_decoder.hpp"

namespace lora::tokenizer {

/// Turns text without added tokens into ids: the interface of the kinds of vocabularies.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  /// Appends the tokens of a text, which is not empty, to `ids`, and the byte offset of each to `begins`. `first`: it
  /// is the first part of a whole, before which some put a space.
  virtual void encode(std::string_view text, bool first, std::vector<std::int32_t>& ids,
                      std::vector<std::size_t>& begins) const = 0;

  /// The id of a token as in the file, or -1.
  virtual std::int32_t find(std::string_view token) const = 0;
  virtual bool has(std::int32_t id) const = 0;
  /// One more than the highest id.
  virtual std::int32_t end() const = 0;
  /// The number of tokens.
  virtual std::int32_t count() const = 0;

  /// A token of the vocabulary as in the file.
  virtual std::string text_of(std::int32_t id) const = 0;
  /// The bytes that a token of the vocabulary, or an added one, decodes to.
  virtual std::string bytes_of(std::int32_t id) const = 0;
  virtual std::string bytes_of_added(std::string_view content) const = 0;

  /// What makes a text of tokens as they are written; null: their bytes follow each other.
  virtual const TokenDecoder* decoder() const { return nullptr; }

  /// Whether encoding adds a space before a text, which decoding without a decoder must remove.
  virtual bool adds_leading_space() const = 0;
  /// What is done to a text before added tokens that are `normalized` are found in it.
  virtual const Normalizer& normalizer() const;
  /// How many times its bytes a text may have before it is cut into tokens, which have a byte or more each.
  virtual std::size_t growth() const = 0;

  /// Of everything but the added tokens.
  virtual Fingerprints fingerprints() const = 0;
};

/// How a tokenizer.json with merges prepares a text, and what it makes of tokens.
struct BpeSteps {
  Normalizer normalizer{};
  Normalizer marks{};  ///< of each part between added tokens; where spaces become marks
  PreTokenizer pre_tokenizer{};
  std::optional<TokenDecoder> decoder{};  ///< of vocabularies of text
};

/// Byte-pair encoding: text is cut into words, and the bytes of each merge, or its characters if the vocabulary is
/// text.
class BpeModel final : public TokenModel {
 public:
  BpeModel(Bpe bpe, BpeSteps steps) : bpe_(std::move(bpe)), steps_(std::move(steps)) {}

  void encode(std::string_view text, bool first, std::vector<std::int32_t>& ids,
              std::vector<std::size_t>& begins) const override;

  std::int32_t find(std::string_view token) const override { return bpe_.vocabulary().find(token); }
  bool has(std::int32_t id) const override { return bpe_.vocabulary().has(id); }
  std::int32_t end() const override { return bpe_.vocabulary().end(); }
  std::int32_t count() const override { return static_cast<std::int32_t>(bpe_.vocabulary().count()); }
  std::string text_of(std::int32_t id) const override { return bpe_.vocabulary().text(id); }
  std::string bytes_of(std::int32_t id) const override { return std::string(bpe_.vocabulary().bytes(id)); }
  std::string bytes_of_added(std::string_view content) const override;
  const TokenDecoder* decoder() const override { return steps_.decoder ? &*steps_.decoder : nullptr; }
  bool adds_leading_space() const override { return false; }
  const Normalizer& normalizer() const override { return steps_.normalizer; }
  std::size_t growth() const override { return steps_.marks.growth(steps_.normalizer.growth()); }

  Fingerprints fingerprints() const override;

  const Bpe& bpe() const { return bpe_; }
  const BpeSteps& steps() const { return steps_; }
  bool is_byte_level() const { return !bpe_.vocabulary().is_text(); }

 private:
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids, std::vector<std::size_t>& begins) const;

  Bpe bpe_;
  BpeSteps steps_;
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/model.ipp"
#endif
