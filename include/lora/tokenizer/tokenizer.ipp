#pragma once

#include <map>

#include "lora/core/config.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::tokenizer {

LORA_INLINE Tokenizer Tokenizer::from_folder(const io::Path& folder) {
  const bool json = io::is_there(folder / "tokenizer.json");
  const bool pieces = io::is_there(folder / "tokenizer.model");
  if (!json && !pieces) fail<IoError>("no tokenizer.json and no tokenizer.model in ", folder.native());
  const detail::TokenizerFolder beside(folder);
  std::unique_ptr<detail::TokenizerParts> parts;
  std::vector<AddedToken> of_vocabulary;
  auto kind = detail::TokenizerClass::plain;
  if (json) {
    auto document = read_document(folder / "tokenizer.json");
    kind = detail::apply_class(document, beside);
    of_vocabulary = detail::read_added_tokens(io::JsonView(document.settings, document.where));
    parts = detail::parts_of_document(std::move(document));
  } else {
    const auto file = folder / "tokenizer.model";
    parts = detail::parts_of_pieces(io::read_file(file), file.native(), detail::piece_prefix(beside));
  }
  detail::declare_tokens(*parts, beside, kind, of_vocabulary);
  detail::read_config_fields(*parts, beside);
  const auto templates = detail::read_chat_templates(folder, beside.view());
  parts->chat_template = templates.plain;
  parts->has_tool_template = templates.one_for_tools;
  parts->template_apart = templates.plain_apart;
  if (templates.others_apart)
    log::warn((folder / "additional_chat_templates").native(),
              ": none but the default template is used and taken along");
  for (const char* name : tokenizer_files)
    if (io::is_there(folder / name)) parts->sources.push_back(folder / name);
  return finish(std::move(parts));
}

LORA_INLINE Tokenizer Tokenizer::from_file(const io::Path& file) {
  auto parts = file.extension() == ".model" ? detail::parts_of_pieces(io::read_file(file), file.native())
                                            : detail::parts_of_document(read_document(file));
  parts->sources = {file};
  return finish(std::move(parts));
}

LORA_INLINE Tokenizer Tokenizer::from_json(std::string_view text, const std::string& where) {
  return finish(detail::parts_of_document(parse_tokenizer_json(text, where)));
}

LORA_INLINE Tokenizer::Encoding Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
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
      text, [&](std::size_t begin, std::size_t end) { encode_segment(text.substr(begin, end - begin), begin, result); },
      [&](std::int32_t id, std::size_t begin, std::size_t) {
        result.ids.push_back(id);
        result.begins.push_back(begin);
      });
  add_specials(parts_->frame.after, text.size());
  return result;
}

LORA_INLINE std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  const TokenModel& model = *parts_->model;
  const auto for_each = [&](auto&& take_added, auto&& take_own) {
    for (const std::int32_t id : ids) {
      if (id < 0) fail<FormatError>("no token has the id ", id);
      if (const auto added = parts_->added.find(id); added != parts_->added.end()) {
        if (!(skip_special && added->second.special)) take_added(added->second.content);
      } else if (model.has(id)) {
        take_own(id);
      }
    }
  };
  std::string bytes;
  if (const TokenDecoder* decoder = model.decoder()) {
    std::vector<std::string> tokens;
    for_each([&](const std::string& content) { tokens.push_back(content); },
             [&](std::int32_t id) { tokens.push_back(model.text_of(id)); });
    bytes = (*decoder)(std::move(tokens));
  } else {
    for_each([&](const std::string& content) { bytes += model.bytes_of_added(content); },
             [&](std::int32_t id) { bytes += model.bytes_of(id); });
    if (model.adds_leading_space() && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
    bytes = unicode::replace_invalid_utf8(std::move(bytes));
  }
  return parts_->cleans_up_spaces ? detail::without_extra_spaces(std::move(bytes)) : bytes;
}

LORA_INLINE bool Tokenizer::awaits_more(std::int32_t id, bool skip_special) const {
  const TokenModel& model = *parts_->model;
  const TokenDecoder* const decoder = model.decoder();
  if (decoder == nullptr) return false;
  if (const auto added = parts_->added.find(id); added != parts_->added.end())
    return (skip_special && added->second.special) || decoder->awaits_more(added->second.content);
  return !model.has(id) || decoder->awaits_more(model.text_of(id));
}

LORA_INLINE std::vector<std::string> Tokenizer::special_tokens() const {
  std::map<std::int32_t, std::string> tokens;
  for (const auto& [id, token] : parts_->added)
    if (token.special) tokens.emplace(id, token.content);
  std::vector<std::string> texts;
  for (auto& entry : tokens) texts.push_back(std::move(entry.second));
  return texts;
}

LORA_INLINE std::uint64_t Tokenizer::saved_bytes() const {
  constexpr std::uint64_t bytes_of_token = 64;
  std::uint64_t bytes = 0;
  for (const auto& source : parts_->sources) {
    std::error_code gone;
    if (const auto size = std::filesystem::file_size(source, gone); !gone) bytes += size;
  }
  return parts_->sources.empty() ? bytes_of_token * static_cast<std::uint64_t>(vocab_size()) : bytes;
}

LORA_INLINE void Tokenizer::save(const io::Path& folder) const {
  io::create_folders(folder);
  for (const auto& source : parts_->sources) io::copy_file(source, folder / source.filename());
  if (parts_->template_apart) io::write_file(folder / "chat_template.jinja", std::string_view(parts_->chat_template));
  if (!parts_->sources.empty()) return;
  if (parts_->bpe)
    io::write_file(folder / "tokenizer.json", tokenizer_json_text(parts_->settings, parts_->bpe->bpe()));
  else
    io::write_file(folder / "tokenizer.model", parts_->pieces->proto());
  io::write_json(folder / "tokenizer_config.json", detail::tokenizer_config_json(*parts_));
}

LORA_INLINE TokenizerDocument Tokenizer::read_document(const io::Path& file) {
  const io::MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  return parse_tokenizer_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.native());
}

LORA_INLINE Tokenizer Tokenizer::finish(std::unique_ptr<detail::TokenizerParts> parts) {
  parts->finish();
  return Tokenizer(std::move(parts));
}

LORA_INLINE void Tokenizer::encode_segment(std::string_view text, std::size_t offset, Encoding& result) const {
  const Normalizer& normalizer = parts_->model->normalizer();
  unicode::Normalized changed;
  const bool changes = normalizer.changes(text);
  if (changes) changed = normalizer(text);
  const std::string_view normal = changes ? std::string_view(changed.text) : text;
  const std::size_t first = result.begins.size();
  const auto encode_piece = [&](std::size_t begin, std::size_t end) {
    const std::size_t from = result.begins.size();
    const bool is_first = offset + (changes ? changed.begins[begin] : begin) == 0;
    parts_->model->encode(normal.substr(begin, end - begin), is_first, result.ids, result.begins);
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
      // A token of white space that the vocabulary puts behind a text begins at its end.
      while (begin > 0 && begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    }
    begin += offset;
  }
}

}  // namespace lora::tokenizer
