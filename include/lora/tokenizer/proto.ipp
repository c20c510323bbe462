#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/proto.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE std::optional<ProtoField> ProtoReader::next() {
  if (at_ == bytes_.size()) return std::nullopt;
  const std::size_t first = at_;
  ProtoField field;
  const std::uint64_t tag = varint();
  if (tag >> 3 == 0 || tag >> 32 != 0 || (tag & 7) > 5) refuse("no field begins here");
  field.number = static_cast<std::uint32_t>(tag >> 3);
  field.wire = static_cast<Wire>(tag & 7);
  switch (field.wire) {
    case Wire::varint:
      field.value = varint();
      break;
    case Wire::eight_bytes:
      field.value = fixed(8);
      break;
    case Wire::four_bytes:
      field.value = fixed(4);
      break;
    case Wire::bytes:
      field.bytes = take(varint());
      break;
    default:
      refuse("field ", field.number, " is a group, which such a file does not have");
  }
  field.whole = bytes_.substr(first, at_ - first);
  return field;
}

LORA_INLINE std::size_t ProtoReader::place_of(const ProtoField& field) const {
  return begin_ + static_cast<std::size_t>(field.bytes.data() - bytes_.data());
}

LORA_INLINE std::uint64_t ProtoReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == bytes_.size()) refuse("a number is cut short");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number has more than ten bytes");
}

LORA_INLINE std::uint64_t ProtoReader::fixed(std::size_t size) {
  const std::string_view raw = take(size);
  std::uint64_t value = 0;
  std::memcpy(&value, raw.data(), raw.size());
  return value;
}

LORA_INLINE std::string_view ProtoReader::take(std::uint64_t size) {
  if (size > bytes_.size() - at_) refuse("a field of ", size, " bytes, but only ", bytes_.size() - at_, " are left");
  const auto part = bytes_.substr(at_, size);
  at_ += part.size();
  return part;
}

LORA_INLINE std::string SentencePieceCheck::read(std::string_view proto) {
  std::string kept;
  kept.reserve(proto.size());
  ProtoReader reader(proto, 0, where_);
  while (const auto field = reader.next()) {
    if (field->number == 4) continue;
    kept += field->whole;
    if (field->number == 1) {
      read_piece(message(reader, *field));
    } else if (field->number == 2) {
      read_trainer(message(reader, *field));
    } else if (field->number == 3 || field->number == 5) {
      read_normalizer(message(reader, *field));
    }
  }
  if (pieces_ == 0) fail<FormatError>(where_, ": not a sentencepiece model: it has no pieces");
  check_user_defined();
  return kept;
}

LORA_INLINE ProtoReader SentencePieceCheck::message(const ProtoReader& reader, const ProtoField& field) const {
  expect(reader, field, Wire::bytes);
  return {field.bytes, reader.place_of(field), where_};
}

LORA_INLINE void SentencePieceCheck::expect(const ProtoReader& reader, const ProtoField& field, Wire wire) {
  if (field.wire != wire) reader.refuse("field ", field.number, " is not of the type that it has in such a file");
}

LORA_INLINE std::string_view SentencePieceCheck::text(const ProtoReader& reader, const ProtoField& field) {
  expect(reader, field, Wire::bytes);
  if (field.bytes.find('\0') != field.bytes.npos || unicode::find_invalid_utf8(field.bytes) != field.bytes.npos)
    reader.refuse("a text is not valid UTF-8, or has a zero byte");
  return field.bytes;
}

LORA_INLINE void SentencePieceCheck::read_piece(ProtoReader reader) {
  if (++pieces_ > static_cast<std::size_t>(Vocabulary::max_id))
    reader.refuse("more than ", Vocabulary::max_id, " pieces");
  std::string_view piece;
  std::uint64_t kind = 1;
  while (const auto field = reader.next()) {
    if (field->number == 1) {
      piece = text(reader, *field);
    } else if (field->number == 2) {
      expect(reader, *field, Wire::four_bytes);
      const float score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
      if (!std::isfinite(score)) reader.refuse("piece ", pieces_ - 1, " has the score ", score);
    } else if (field->number == 3) {
      expect(reader, *field, Wire::varint);
      kind = field->value;
      if (kind < 1 || kind > 6) reader.refuse("piece ", pieces_ - 1, " is of kind ", kind, "; expected 1 to 6");
    }
  }
  if (piece.empty() || piece.size() >= longest_piece)
    reader.refuse("piece ", pieces_ - 1, " has ", piece.size(), " bytes; expected 1 to ", longest_piece - 1);
  if (kind == 4) user_defined_.push_back(piece);
}

LORA_INLINE void SentencePieceCheck::read_trainer(ProtoReader reader) const {
  while (const auto field = reader.next()) {
    if (field->number == 3) {
      expect(reader, *field, Wire::varint);
      if (field->value < 1 || field->value > 4) reader.refuse("model_type is ", field->value, "; expected 1 to 4");
    } else if (field->number == 24 || field->number == 35) {
      expect(reader, *field, Wire::varint);
    } else if (field->number >= 44 && field->number <= 48) {
      (void)text(reader, *field);  // the names of special pieces
    }
  }
}

LORA_INLINE void SentencePieceCheck::read_normalizer(ProtoReader reader) const {
  while (const auto field = reader.next()) {
    if (field->number == 2) {
      expect(reader, *field, Wire::bytes);
      check_charsmap(field->bytes, where_);
    } else if (field->number >= 3 && field->number <= 5) {
      expect(reader, *field, Wire::varint);
    }
  }
}

LORA_INLINE void SentencePieceCheck::check_user_defined() {
  std::sort(user_defined_.begin(), user_defined_.end());
  std::vector<std::string_view> nested;
  for (const std::string_view piece : user_defined_) {
    while (!nested.empty() && !piece.starts_with(nested.back())) nested.pop_back();
    nested.push_back(piece);
    if (nested.size() > most_in_one)
      fail<FormatError>(where_, ": not a sentencepiece model: more than ", most_in_one,
                        " of its user-defined pieces begin with each other, the last of them \"", piece, "\"");
  }
}

LORA_INLINE bool is_bpe_model(std::string_view proto, const std::string& where) {
  bool is_bpe = false;
  ProtoReader parts(proto, 0, where);
  while (const auto part = parts.next()) {
    if (part->number != 2) continue;
    ProtoReader trainer(part->bytes, 0, where);
    while (const auto field = trainer.next())
      if (field->number == 3) is_bpe = field->value == 2;
  }
  return is_bpe;
}

LORA_INLINE SentencePieceNormalizer sentencepiece_normalizer(std::string_view proto, const std::string& where) {
  SentencePieceNormalizer found;
  ProtoReader parts(proto, 0, where);
  while (const auto part = parts.next()) {
    if (part->number != 3) continue;
    ProtoReader normalizer(part->bytes, 0, where);
    while (const auto field = normalizer.next()) {
      if (field->number == 2) found.has_charsmap = !field->bytes.empty();
      if (field->number == 3) found.adds_dummy_prefix = field->value != 0;
      if (field->number == 4) found.strips_spaces = field->value != 0;
    }
  }
  return found;
}

LORA_INLINE Fingerprints sentencepiece_fingerprints(std::string_view proto, const std::string& where) {
  FingerprintSum vocabulary, merges, normalizer, splitting;
  const auto add_field = [](FingerprintSum& sum, const ProtoField& field) {
    sum.add_number(field.number);
    sum.add_number(static_cast<std::int64_t>(field.value));
    sum.add(field.bytes);
  };
  const auto read = [&](std::string_view message, std::size_t begin, auto&& take) {
    ProtoReader reader(message, begin, where);
    while (const auto field = reader.next()) take(*field);
  };
  read(proto, 0, [&](const ProtoField& part) {
    const auto each = [&](auto&& take) { read(part.bytes, 0, take); };
    if (part.number == 1) {
      each([&](const ProtoField& field) { add_field(field.number == 2 ? merges : vocabulary, field); });
    } else if (part.number == 2) {
      each([&](const ProtoField& field) {  // kind of model, where white space belongs, bytes, names of special pieces
        if (field.number == 3 || field.number == 24 || field.number == 35 || (field.number >= 44 && field.number <= 48))
          add_field(splitting, field);
      });
    } else if (part.number == 3) {
      each([&](const ProtoField& field) {
        if (field.number >= 2 && field.number <= 5) add_field(normalizer, field);
      });
    }
  });
  return {vocabulary.value(), merges.value(), 0, normalizer.value(), splitting.value()};
}

}  // namespace lora::tokenizer::detail
