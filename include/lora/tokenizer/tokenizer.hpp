#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/formats/gguf.hpp"
#include "lora/io/formats/gguf_writer.hpp"
#include "lora/tokenizer/config_fields.hpp"
#include "lora/tokenizer/declared.hpp"
#include "lora/tokenizer/gguf.hpp"
#include "lora/tokenizer/gguf_metadata.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::tokenizer {

/// Turns text into token ids and back, with the same ids as the `tokenizers` and sentencepiece libraries. Copies share
/// their content; const members are thread-safe.
class Tokenizer {
 public:
  struct Encoding {
    std::vector<std::int32_t> ids;
    /// The byte offset of each token in the original (not the normalized) text; for a token that begins inside a code
    /// point, the offset of the code point.
    std::vector<std::size_t> begins;
  };

  /// A model folder, with tokenizer.json or tokenizer.model.
  /// Throws   IoError, FormatError
  static Tokenizer from_folder(const io::Path& folder);

  /// A tokenizer.json or tokenizer.model alone, ignoring the files next to it.
  /// Throws   IoError, FormatError
  static Tokenizer from_file(const io::Path& file);

  /// The text of a tokenizer.json; `where` names it in errors.
  /// Throws   FormatError
  static Tokenizer from_json(std::string_view text, const std::string& where);

  /// The tokenizer in a GGUF file's metadata.
  /// Throws   FormatError
  static Tokenizer from_gguf(const io::Gguf& file) { return finish(detail::parts_of_gguf(file)); }

  /// Throws   FormatError if the text is not valid UTF-8
  Encoding encode(std::string_view text, bool add_special_tokens = false) const;

  /// The special tokens that encode puts before and after a text.
  const std::vector<std::int32_t>& opening() const { return parts_->frame.before; }
  const std::vector<std::int32_t>& closing() const { return parts_->frame.after; }

  /// How many times its bytes a text may have before it is cut into tokens, which have a byte or more each.
  std::size_t growth() const { return parts_->model->growth(); }

  /// Invalid UTF-8 becomes U+FFFD. An id that no token has becomes nothing: of a head that is wider than the
  /// vocabulary, or of a hole in it. Throws   FormatError for a negative id
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  /// Whether what decode makes of a token, or of those before it, may be otherwise with those behind it: of bytes that
  /// are characters together or none of them is, and of what is nothing by itself.
  bool awaits_more(std::int32_t id, bool skip_special = false) const;

  /// The id of a token as written in the vocabulary: an added token, or one in the byte-level alphabet.
  std::optional<std::int32_t> id_of(std::string_view token) const { return parts_->find(token); }

  /// One more than the highest id. A model's head may be wider.
  Index vocab_size() const { return parts_->size; }

  /// The file that it is from, to name it in errors.
  const std::string& where() const { return parts_->where; }

  std::optional<std::int32_t> bos() const { return parts_->bos; }
  std::optional<std::int32_t> eos() const { return parts_->eos; }
  std::optional<std::int32_t> pad() const { return parts_->pad; }

  /// The texts of all tokens that decode can leave out, in the order of their ids.
  std::vector<std::string> special_tokens() const;

  /// Hashes by which another run tells whether its tokenizer gives the same ids, or what in it differs.
  Fingerprints fingerprint() const { return parts_->fingerprints(); }

  /// The model's own template; empty if it has none.
  const std::string& chat_template() const { return parts_->chat_template; }

  /// Whether transformers renders conversations with tools by another one.
  bool has_tool_template() const { return parts_->has_tool_template; }

  /// Adds the tokenizer to the metadata of a GGUF file for a model with a head of `size` rows.
  /// Throws   FormatError for what such metadata can't say
  void add_to(io::GgufMetadata& metadata, Index size, const GgufChat& chat) const {
    detail::add_tokenizer(metadata, *parts_, size, chat);
  }

  /// The size in bytes of what `save` writes: exact for copied files, else an estimate.
  std::uint64_t saved_bytes() const;

  /// Writes files from which this and other programs can load the tokenizer: copies of the original files, or files
  /// made from GGUF metadata.
  void save(const io::Path& folder) const;

 private:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerParts> parts) : parts_(std::move(parts)) {}

  static TokenizerDocument read_document(const io::Path& file);
  static Tokenizer finish(std::unique_ptr<detail::TokenizerParts> parts);

  /// A part of the text between added tokens, which begins at byte `offset`.
  void encode_segment(std::string_view text, std::size_t offset, Encoding& result) const;

  std::shared_ptr<const detail::TokenizerParts> parts_;
};

}  // namespace lora::tokenizer

#ifndef LORA_COMPILED
#  include "lora/tokenizer/tokenizer.ipp"
#endif
