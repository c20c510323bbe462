#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tokenizer/bpe.hpp"
#include "lora/tokenizer/charsmap.hpp"
#include "lora/tokenizer/fingerprints.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::tokenizer::detail {

/// How a field of a protocol buffer is written.
enum class Wire : std::uint8_t { varint = 0, eight_bytes = 1, bytes = 2, group = 3, end_of_group = 4, four_bytes = 5 };

struct ProtoField {
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;   ///< of a number, its bits
  std::string_view bytes{};  ///< of a text or a message
  std::string_view whole{};  ///< as it stands in the file, with its number
};

/// Reads the fields of a message, with bounds checks.
class ProtoReader {
 public:
  /// `begin` is where the bytes lie in the file that `where` names.
  ProtoReader(std::string_view bytes, std::size_t begin, const std::string& where)
      : bytes_(bytes), begin_(begin), where_(where) {}

  std::optional<ProtoField> next();

  /// Where in the file the last field's bytes begin.
  std::size_t place_of(const ProtoField& field) const;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<FormatError>(where_, ": not a sentencepiece model: byte ", begin_ + at_, ": ", parts...);
  }

 private:
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t size);
  std::string_view take(std::uint64_t size);

  std::string_view bytes_;
  std::size_t begin_;
  const std::string& where_;
  std::size_t at_ = 0;
};

/// Checks everything in a tokenizer.model that the sentencepiece library doesn't.
class SentencePieceCheck {
 public:
  explicit SentencePieceCheck(const std::string& where) : where_(where) {}

  /// Returns the content for the library, without its self-test samples, which it would run while loading.
  std::string read(std::string_view proto);

 private:
  static constexpr std::size_t longest_piece = 8000;  // as later versions of the library have it
  static constexpr std::size_t most_in_one = 64;      // the places that the library has for user-defined pieces

  ProtoReader message(const ProtoReader& reader, const ProtoField& field) const;
  static void expect(const ProtoReader& reader, const ProtoField& field, Wire wire);
  static std::string_view text(const ProtoReader& reader, const ProtoField& field);

  void read_piece(ProtoReader reader);

  void read_trainer(ProtoReader reader) const;

  void read_normalizer(ProtoReader reader) const;

  /// Of pieces that begin alike, each longer than the one before, the library finds all at once.
  void check_user_defined();

  const std::string& where_;
  std::size_t pieces_ = 0;
  std::vector<std::string_view> user_defined_;
};

/// Whether a tokenizer.model that was checked merges by byte-pair encoding.
bool is_bpe_model(std::string_view proto, const std::string& where);

/// What a model does to text before it cuts it.
struct SentencePieceNormalizer {
  bool has_charsmap = false;      ///< characters are rewritten
  bool adds_dummy_prefix = true;  ///< a space is put before it
  bool strips_spaces = true;      ///< those at its ends are removed, and those beside others
};
SentencePieceNormalizer sentencepiece_normalizer(std::string_view proto, const std::string& where);

/// Of what counts for texts in a tokenizer.model that was checked: the rest says how the model was trained.
Fingerprints sentencepiece_fingerprints(std::string_view proto, const std::string& where);

}  // namespace lora::tokenizer::detail

#ifndef LORA_COMPILED
#  include "lora/tokenizer/proto.ipp"
#endif
