#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/bpe.hpp"
#include "lora/tokenizer/fingerprints.hpp"
#include "lora/tokenizer/split.hpp"

namespace lora::tokenizer {

/// Turns text without added tokens into ids: the interface of the kinds of vocabularies.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  /// Appends the tokens of a text to `ids`, and the byte offset of each to `begins`.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids,
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

  /// Whether encoding adds a space before a text, which decoding must remove.
  virtual bool adds_leading_space() const = 0;
  /// Whether the caller puts a space before a part of a text, the first or another, that begins with none.
  virtual bool wants_space_before(bool /*first*/) const { return false; }
  /// Whether text is normalised to NFC first.
  virtual bool wants_nfc() const = 0;
  /// How many times its bytes a text may have before it is cut into tokens, which have a byte or more each.
  virtual std::size_t growth() const = 0;

  /// Of everything but the added tokens.
  virtual Fingerprints fingerprints() const = 0;
};

/// Byte-level byte-pair encoding: text is cut into words, the bytes of each merge.
class ByteLevelModel final : public TokenModel {
 public:
  ByteLevelModel(Bpe bpe, PreTokenizer pre_tokenizer, bool nfc)
      : bpe_(std::move(bpe)), pre_tokenizer_(std::move(pre_tokenizer)), nfc_(nfc) {}

  void encode(std::string_view text, std::vector<std::int32_t>& ids, std::vector<std::size_t>& begins) const override;

  std::int32_t find(std::string_view token) const override { return bpe_.vocabulary().find(token); }
  bool has(std::int32_t id) const override { return bpe_.vocabulary().has(id); }
  std::int32_t end() const override { return bpe_.vocabulary().end(); }
  std::int32_t count() const override { return static_cast<std::int32_t>(bpe_.vocabulary().count()); }
  std::string text_of(std::int32_t id) const override { return bpe_.vocabulary().text(id); }
  std::string bytes_of(std::int32_t id) const override { return std::string(bpe_.vocabulary().bytes(id)); }
  std::string bytes_of_added(std::string_view content) const override;
  bool adds_leading_space() const override { return false; }
  bool wants_nfc() const override { return nfc_; }
  std::size_t growth() const override { return nfc_ ? 3 : 1; }  // UAX #15: at most 3 times in UTF-8

  Fingerprints fingerprints() const override;

  const Bpe& bpe() const { return bpe_; }
  const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }

 private:
  Bpe bpe_;
  PreTokenizer pre_tokenizer_;
  bool nfc_;
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/model.ipp"
#endif
