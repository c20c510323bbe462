#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/sentencepiece.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE void ProtoWriter::put_integer(std::uint32_t field, std::uint64_t value) {
  put_varint(field << 3);
  put_varint(value);
}

LORA_INLINE void ProtoWriter::put_float(std::uint32_t field, float value) {
  put_varint(field << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(static_cast<unsigned char>(bits >> shift));
}

LORA_INLINE void ProtoWriter::put_bytes(std::uint32_t field, std::string_view value) {
  put_varint(field << 3 | 2);
  put_varint(value.size());
  bytes_ += value;
}

LORA_INLINE void ProtoWriter::put_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(static_cast<unsigned char>(value | 0x80));
  bytes_ += static_cast<char>(value);
}

LORA_INLINE std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

LORA_INLINE std::string with_spaces(std::string piece) { return replaced(std::move(piece), space_mark, " "); }
LORA_INLINE std::string with_space_marks(std::string text) { return replaced(std::move(text), " ", space_mark); }

}  // namespace lora::tokenizer::detail

namespace lora::tokenizer {

LORA_INLINE std::string sentencepiece_proto(const std::vector<SentencePiece>& pieces, bool add_leading_space) {
  constexpr std::uint64_t bpe = 2;
  detail::ProtoWriter model, trainer, normalizer;
  bool byte_fallback = false;
  for (const SentencePiece& piece : pieces) {
    detail::ProtoWriter item;
    item.put_bytes(1, piece.text);
    item.put_float(2, piece.score);
    item.put_integer(3, static_cast<std::uint64_t>(piece.kind));
    model.put_bytes(1, item.bytes());
    byte_fallback = byte_fallback || piece.kind == SentencePiece::Kind::byte;
  }
  trainer.put_integer(3, bpe);
  trainer.put_integer(35, byte_fallback);
  normalizer.put_bytes(1, "identity");
  normalizer.put_integer(3, add_leading_space);
  normalizer.put_integer(4, 0);  // white space stays as it is
  normalizer.put_integer(5, 1);  // a space is written as U+2581
  model.put_bytes(2, trainer.bytes());
  model.put_bytes(3, normalizer.bytes());
  return model.bytes();
}

LORA_INLINE SentencePieceModel::SentencePieceModel(std::string proto, const std::string& where,
                                                   SentencePiecePrefix prefix)
    : proto_(std::move(proto)), prefix_(prefix) {
  const detail::SentencePieceNormalizer normalizer = detail::sentencepiece_normalizer(proto_, where);
  if (prefix_ == SentencePiecePrefix::first_if_in_file)
    prefix_ = normalizer.adds_dummy_prefix ? SentencePiecePrefix::first : SentencePiecePrefix::as_in_file;
  // Of a message that comes twice the fields are joined: this one says that no space is put before texts.
  if (prefix_ != SentencePiecePrefix::as_in_file) proto_ += std::string_view("\x1A\x02\x18\x00", 4);
  const std::string checked = detail::SentencePieceCheck(where).read(proto_);
  try {
    const auto status = processor_.LoadFromSerializedProto(checked);
    if (!status.ok()) fail<FormatError>(where, ": not a sentencepiece model: ", std::string_view(status.message()));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail<FormatError>(where, ": not a sentencepiece model: ", std::string_view(error.what()));
  }
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> begins;
  encode_pieces("a", ids, begins);
  adds_leading_space_ = !ids.empty() && bytes_of(ids[0])[0] == ' ';
  is_bpe_ = detail::is_bpe_model(proto_, where);
  if (normalizer.has_charsmap) growth_ = detail::Charsmap::longest_text;
}

LORA_INLINE void SentencePieceModel::encode(std::string_view text, bool first, std::vector<std::int32_t>& ids,
                                            std::vector<std::size_t>& begins) const {
  if (text.starts_with(' ') || !wants_space_before(first)) return encode_pieces(text, ids, begins);
  const std::size_t from = begins.size();
  encode_pieces(" " + std::string(text), ids, begins);
  for (std::size_t i = from; i < begins.size(); ++i)
    if (begins[i] > 0) --begins[i];
}

LORA_INLINE void SentencePieceModel::encode_pieces(std::string_view text, std::vector<std::int32_t>& ids,
                                                   std::vector<std::size_t>& begins) const {
  sentencepiece::ImmutableSentencePieceText encoded;
  const auto status = processor_.Encode({text.data(), text.size()}, encoded.mutable_proto());
  if (!status.ok()) fail<FormatError>("the tokenizer cannot cut this text: ", std::string_view(status.message()));
  const std::size_t count = encoded.pieces_size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto piece = encoded.pieces(static_cast<int>(i));
    ids.push_back(static_cast<std::int32_t>(piece.id()));
    begins.push_back(piece.begin());
  }
}

LORA_INLINE std::int32_t SentencePieceModel::find(std::string_view token) const {
  if (token.empty() || token.find('\0') != token.npos) return -1;
  const std::string name(token);  // the library reads on to a zero byte
  const int id = processor_.PieceToId(name);
  return processor_.IdToPiece(id) == token ? id : -1;
}

LORA_INLINE std::string SentencePieceModel::bytes_of(std::int32_t id) const {
  const std::string& piece = processor_.IdToPiece(id);
  if (processor_.IsByte(id)) {  // <0x0A>
    unsigned value = 0;
    for (const char digit : std::string_view(piece).substr(3, 2))
      value = value * 16 + static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'A' + 10);
    return std::string(1, static_cast<char>(static_cast<unsigned char>(value)));
  }
  return detail::with_spaces(piece);
}

LORA_INLINE Fingerprints SentencePieceModel::fingerprints() const {
  Fingerprints all = detail::sentencepiece_fingerprints(proto_, "tokenizer.model");
  if (prefix_ == SentencePiecePrefix::first) all.splitting = text_hash(concat(all.splitting, " first"));
  if (prefix_ == SentencePiecePrefix::each) all.splitting = text_hash(concat(all.splitting, " each"));
  return all;
}

LORA_INLINE std::vector<AddedToken> SentencePieceModel::added_tokens() const {
  std::vector<AddedToken> tokens;
  for (std::int32_t id = 0; id < end(); ++id)
    if (is_special(id)) tokens.push_back(AddedToken{.id = id, .content = processor_.IdToPiece(id), .special = true});
  return tokens;
}

}  // namespace lora::tokenizer
