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
#include "lora/io/file.hpp"
#include "lora/io/gguf.hpp"
#include "lora/io/mapped_file.hpp"
#include "lora/tokenizer/gguf.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::tokenizer {

/// Turns text into token ids and back, with the same ids as the `tokenizers` and sentencepiece libraries. Copies share
/// their content; const members are thread-safe.
class Tokenizer {
 public:
  struct Encoding {
    std::vector<std::int32_t> ids;
    /// The byte offset of each token in the original (not the normalised) text; for a token that begins inside a code
    /// point, the offset of the code point.
    std::vector<std::size_t> begins;
  };

  /// A model folder, with tokenizer.json or tokenizer.model.
  /// Throws   IoError, FormatError
  static Tokenizer from_folder(const std::filesystem::path& folder) {
    const bool json = io::is_there(folder / "tokenizer.json");
    const bool pieces = io::is_there(folder / "tokenizer.model");
    if (!json && !pieces) fail<IoError>("no tokenizer.json and no tokenizer.model in ", folder.native());
    auto parts = load(folder / (json ? "tokenizer.json" : "tokenizer.model"));
    detail::read_beside_vocabulary(*parts, folder);
    for (const char* name : tokenizer_files)
      if (io::is_there(folder / name)) parts->sources.push_back(folder / name);
    return finish(std::move(parts));
  }

  /// A tokenizer.json or tokenizer.model alone, ignoring the files next to it.
  /// Throws   IoError, FormatError
  static Tokenizer from_file(const std::filesystem::path& file) {
    auto parts = load(file);
    parts->sources = {file};
    return finish(std::move(parts));
  }

  /// The text of a tokenizer.json; `where` names it in errors.
  /// Throws   FormatError
  static Tokenizer from_json(std::string_view text, const std::string& where) {
    return finish(detail::parts_of_document(parse_tokenizer_json(text, where)));
  }

  /// The tokenizer in a GGUF file's metadata.
  /// Throws   FormatError
  static Tokenizer from_gguf(const io::Gguf& file) { return finish(detail::parts_of_gguf(file)); }

  /// Throws   FormatError if the text is not valid UTF-8
  Encoding encode(std::string_view text, bool add_special_tokens = false) const {
    if (const std::size_t place = unicode::find_invalid_utf8(text); place != text.npos)
      fail<FormatError>("text is not valid UTF-8 at byte ", place);
    Encoding result;
    result.ids.reserve(text.size() / 3 + 8);
    result.begins.reserve(text.size() / 3 + 8);
    const auto add_specials = [&](const std::vector<std::int32_t>& ids, std::size_t place) {
      if (!add_special_tokens) return;
      result.ids.insert(result.ids.end(), ids.begin(), ids.end());
      result.begins.resize(result.ids.size(), place);
    };
    add_specials(parts_->frame.before, 0);
    parts_->raw.split(
        text,
        [&](std::size_t begin, std::size_t end) { encode_segment(text.substr(begin, end - begin), begin, result); },
        [&](std::int32_t id, std::size_t begin, std::size_t) {
          result.ids.push_back(id);
          result.begins.push_back(begin);
        });
    add_specials(parts_->frame.after, text.size());
    return result;
  }

  /// The special tokens that encode puts before and after a text.
  const std::vector<std::int32_t>& opening() const { return parts_->frame.before; }
  const std::vector<std::int32_t>& closing() const { return parts_->frame.after; }

  /// Invalid UTF-8 becomes U+FFFD.
  /// Throws   FormatError for an id that no token has
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const {
    std::string bytes;
    for (const std::int32_t id : ids) {
      if (const auto added = parts_->added.find(id); added != parts_->added.end()) {
        if (!(skip_special && added->second.special)) bytes += parts_->model->bytes_of_added(added->second.content);
      } else if (parts_->model->has(id)) {
        bytes += parts_->model->bytes_of(id);
      } else {
        fail<FormatError>("no token has the id ", id, "; the vocabulary of ", parts_->where, " ends at ",
                          parts_->size - 1);
      }
    }
    if (parts_->model->adds_leading_space() && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
    return unicode::replace_invalid_utf8(std::move(bytes));
  }

  /// The id of a token as written in the vocabulary: an added token, or one in the byte-level alphabet.
  std::optional<std::int32_t> id_of(std::string_view token) const { return parts_->find(token); }

  /// One more than the highest id. A model's head may be wider.
  Index vocab_size() const { return parts_->size; }

  std::optional<std::int32_t> bos() const { return parts_->bos; }
  std::optional<std::int32_t> eos() const { return parts_->eos; }

  /// Hashes by which another run tells whether its tokenizer gives the same ids, or what in it differs.
  Fingerprints fingerprint() const { return parts_->fingerprints(); }

  /// The model's own template; empty if it has none.
  const std::string& chat_template() const { return parts_->chat_template; }

  /// The size in bytes of what `save` writes: exact for copied files, else an estimate.
  std::uint64_t saved_bytes() const {
    constexpr std::uint64_t bytes_of_token = 64;
    std::uint64_t bytes = 0;
    for (const auto& source : parts_->sources) {
      std::error_code gone;
      if (const auto size = std::filesystem::file_size(source, gone); !gone) bytes += size;
    }
    return parts_->sources.empty() ? bytes_of_token * static_cast<std::uint64_t>(vocab_size()) : bytes;
  }

  /// Writes files from which this and other programs can load the tokenizer: copies of the original files, or files
  /// made from GGUF metadata.
  void save(const std::filesystem::path& folder) const {
    io::create_folders(folder);
    for (const auto& source : parts_->sources) io::copy_file(source, folder / source.filename());
    if (!parts_->sources.empty()) return;
    if (parts_->byte_level)
      io::write_file(folder / "tokenizer.json", tokenizer_json_text(parts_->settings, parts_->byte_level->bpe()));
    else
      io::write_file(folder / "tokenizer.model", parts_->pieces->proto());
    io::write_json(folder / "tokenizer_config.json", detail::tokenizer_config_json(*parts_));
  }

 private:
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerParts> parts) : parts_(std::move(parts)) {}

  static std::unique_ptr<detail::TokenizerParts> load(const std::filesystem::path& file) {
    if (file.extension() == ".model") return detail::parts_of_pieces(io::read_file(file), file.native());
    const io::MappedFile mapped(file);
    const auto bytes = mapped.bytes();
    return detail::parts_of_document(
        parse_tokenizer_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.native()));
  }
  static Tokenizer finish(std::unique_ptr<detail::TokenizerParts> parts) {
    parts->finish();
    return Tokenizer(std::move(parts));
  }

  /// A part of the text between added tokens, which begins at byte `offset`.
  void encode_segment(std::string_view text, std::size_t offset, Encoding& result) const {
    unicode::Normalized changed;
    const bool changes = parts_->model->wants_nfc() && !unicode::is_plainly_nfc(text);
    if (changes) changed = unicode::to_nfc(text);
    const std::string_view normal = changes ? std::string_view(changed.text) : text;
    const std::size_t first = result.begins.size();
    const auto encode_piece = [&](std::size_t begin, std::size_t end) {
      const std::size_t from = result.begins.size();
      parts_->model->encode(normal.substr(begin, end - begin), result.ids, result.begins);
      for (std::size_t i = from; i < result.begins.size(); ++i) result.begins[i] += begin;
    };
    parts_->normalized.split(normal, encode_piece, [&](std::int32_t id, std::size_t begin, std::size_t) {
      result.ids.push_back(id);
      result.begins.push_back(begin);
    });
    for (std::size_t i = first; i < result.begins.size(); ++i) {
      std::size_t& begin = result.begins[i];
      if (changes) {
        begin = changed.begins[begin];
      } else {
        while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
      }
      begin += offset;
    }
  }

  std::shared_ptr<const detail::TokenizerParts> parts_;
};

}  // namespace lora::tokenizer
