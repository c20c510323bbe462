#pragma once

#include <sentencepiece_processor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tokenizer/added.hpp"
#include "lora/tokenizer/bpe.hpp"
#include "lora/tokenizer/model.hpp"
#include "lora/tokenizer/proto.hpp"

namespace lora::tokenizer {

namespace detail {

/// Writes the fields of a protocol buffer.
class ProtoWriter {
 public:
  void put_integer(std::uint32_t field, std::uint64_t value);
  void put_float(std::uint32_t field, float value);
  void put_bytes(std::uint32_t field, std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  void put_varint(std::uint64_t value);

  std::string bytes_;
};

/// How pieces write a space, U+2581.
inline constexpr std::string_view space_mark = Bpe::space_mark;

/// A piece's text as it stands in texts, and the other way.
std::string with_spaces(std::string piece);
std::string with_space_marks(std::string text);

}  // namespace detail

/// A piece of a sentencepiece vocabulary; the numbers of its kinds are the file format's.
struct SentencePiece {
  enum class Kind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text;
  float score;
  Kind kind;
};

/// The bytes of a tokenizer.model for a vocabulary whose text is merged by score, as a GGUF file has it.
std::string sentencepiece_proto(const std::vector<SentencePiece>& pieces, bool add_leading_space);

/// Where a space is put before text: as the file says, which is before each part between added tokens; so unless it
/// begins with one; before the first part alone unless it begins with one, always or if the file puts any; or nowhere.
enum class SentencePiecePrefix : std::uint8_t { as_in_file, each, first, first_if_in_file, never };

/// A sentencepiece model. Control and user-defined pieces are no text to it: they are found as added tokens.
class SentencePieceModel final : public TokenModel {
 public:
  /// `proto` is the content of a tokenizer.model.
  /// Throws   FormatError
  SentencePieceModel(std::string proto, const std::string& where,
                     SentencePiecePrefix prefix = SentencePiecePrefix::as_in_file);

  void encode(std::string_view text, bool first, std::vector<std::int32_t>& ids,
              std::vector<std::size_t>& begins) const override;

  std::int32_t find(std::string_view token) const override;
  bool has(std::int32_t id) const override { return id >= 0 && id < end(); }
  std::int32_t end() const override { return processor_.GetPieceSize(); }
  std::int32_t count() const override { return end(); }

  std::string text_of(std::int32_t id) const override { return processor_.IdToPiece(id); }
  std::string bytes_of(std::int32_t id) const override;
  std::string bytes_of_added(std::string_view content) const override { return std::string(content); }
  bool adds_leading_space() const override { return adds_leading_space_ || wants_space_before(true); }
  std::size_t growth() const override { return growth_; }
  /// Whether a space is put before a part of a text, the first or another, that begins with none.
  bool wants_space_before(bool first) const {
    return prefix_ == SentencePiecePrefix::each || (first && prefix_ == SentencePiecePrefix::first);
  }
  Fingerprints fingerprints() const override;

  bool is_special(std::int32_t id) const { return processor_.IsControl(id) || processor_.IsUnknown(id); }

  /// The pieces that never come of text, but are found in it as they are written.
  std::vector<AddedToken> added_tokens() const;

  std::int32_t bos() const { return processor_.bos_id(); }
  std::int32_t eos() const { return processor_.eos_id(); }
  std::int32_t pad() const { return processor_.pad_id(); }
  const std::string& proto() const { return proto_; }
  bool is_bpe() const { return is_bpe_; }
  SentencePiecePrefix prefix() const { return prefix_; }

 private:
  void encode_pieces(std::string_view text, std::vector<std::int32_t>& ids, std::vector<std::size_t>& begins) const;

  std::string proto_;
  sentencepiece::SentencePieceProcessor processor_;
  SentencePiecePrefix prefix_;
  bool adds_leading_space_ = false, is_bpe_ = false;
  std::size_t growth_ = 3;  // a space becomes a mark of three bytes
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/sentencepiece.ipp"
#endif
