#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/gguf_metadata.hpp"

namespace lora::tokenizer::detail {

/// The name of a pre-tokenizer that gives the same words. The normalizer is the name's, see GgufPreTokenizer.
LORA_INLINE std::string_view gguf_name_of(const TokenizerParts& parts) {
  const BpeModel& model = *parts.bpe;
  const BpeSteps& steps = model.steps();
  const bool nfc = steps.normalizer.is_nfc();
  if (!nfc && !steps.normalizer.empty())
    fail_gguf(parts, concat("the normalizer rewrites texts (", steps.normalizer.text(), ")"), "NFC or none");
  if (!steps.marks.empty()) fail_gguf(parts, "the pre-tokenizer Metaspace goes before ByteLevel", "no Metaspace");
  for (const GgufPreTokenizer& entry : gguf_pre_tokenizers) {
    if (entry.nfc != nfc || entry.ignores_merges != model.bpe().ignore_merges()) continue;
    const io::Json json = gguf_pre_tokenizer_json(entry.kind);
    BpeSteps same;
    read_pre_tokenizer(io::JsonView(json, "tokenizer.ggml.pre"), same);
    if (same.pre_tokenizer.fingerprint() == steps.pre_tokenizer.fingerprint()) return entry.name;
  }
  fail_gguf(parts,
            concat("the pre-tokenizer, ", nfc ? "with" : "without", " NFC and ",
                   model.bpe().ignore_merges() ? "with" : "without", " ignore_merges, has no name in llama.cpp"),
            concat("one of ", gguf_pre_tokenizer_names()));
}

/// The pieces of a sentencepiece model that was checked.
LORA_INLINE std::vector<SentencePiece> pieces_of(std::string_view proto, const std::string& where) {
  std::vector<SentencePiece> pieces;
  ProtoReader parts(proto, 0, where);
  while (const auto part = parts.next()) {
    if (part->number != 1) continue;
    SentencePiece piece{"", 0, SentencePiece::Kind::normal};
    ProtoReader fields(part->bytes, 0, where);
    while (const auto field = fields.next()) {
      if (field->number == 1) piece.text = field->bytes;
      if (field->number == 2) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
      if (field->number == 3) piece.kind = static_cast<SentencePiece::Kind>(field->value);
    }
    // There such pieces are found in text as it is written.
    if (piece.kind == SentencePiece::Kind::user_defined) piece.text = with_spaces(std::move(piece.text));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// Whether a token is a mark for llama.cpp's converter although its tokenizer does not call it special: text that looks
/// like it is never such a token.
LORA_INLINE bool looks_special(std::string_view text) {
  const auto within = [&](std::string_view begin, std::string_view end) {
    return text.starts_with(begin) && text.ends_with(end);
  };
  constexpr std::string_view names[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};  // Gemma's are the last three
  return std::find(std::begin(names), std::end(names), text) != std::end(names) || within("<|", "|>") ||
         within("<\uFF5C", "\uFF5C>") || within("<unused", ">");
}

/// What finds tokens where they stand, but for white space behind those of some models.
LORA_INLINE void check_flags(const TokenizerParts& parts, const AddedToken& token, std::string_view model_name) {
  if (token.lstrip || token.single_word || (token.rstrip && !takes_white_space_behind(model_name, token.content)))
    fail_gguf(parts,
              concat("the added token \"", token.content, "\" has ",
                     token.lstrip        ? "lstrip"
                     : token.single_word ? "single_word"
                                         : "rstrip"),
              concat("tokens that are found wherever they stand",
                     token.rstrip ? ", or a model with phi-3 in its name, whose tokens have rstrip in llama.cpp" : ""));
}

/// Warns of tokens, if there are any, the first of which is named.
template <class... What>
void warn_of_added(const TokenizerParts& parts, const std::vector<std::int32_t>& ids, const What&... what) {
  if (ids.empty()) return;
  const std::int32_t first = *std::min_element(ids.begin(), ids.end());
  log::warn(parts.where, ": the added token \"", parts.added.at(first).content, "\"",
            ids.size() > 1 ? concat(" (and ", ids.size() - 1, " more)") : "", what...);
}

/// `vocabulary`: what the model's own file has of each id; of a byte-level one all are normal.
LORA_INLINE std::vector<SentencePiece> gguf_tokens(const TokenizerParts& parts, Index size, std::string_view model_name,
                                                   std::vector<SentencePiece> vocabulary) {
  constexpr float added_score = -1000, hole_score = -10000;  // llama.cpp's converter's
  using Kind = SentencePiece::Kind;
  const std::size_t own = vocabulary.size();
  vocabulary.resize(static_cast<std::size_t>(size), {"", hole_score, Kind::unused});
  for (std::size_t i = own; i < vocabulary.size(); ++i) vocabulary[i].text = concat("[PAD", i, "]");
  std::vector<std::int32_t> outside, stays;
  const bool is_text = parts.pieces != nullptr || !parts.bpe->is_byte_level();
  for (const auto& [id, token] : parts.added) {
    check_flags(parts, token, model_name);
    if (id >= size) {
      outside.push_back(id);
      continue;
    }
    if (!token.rstrip && takes_white_space_behind(model_name, token.content)) stays.push_back(id);
    SentencePiece& piece = vocabulary[static_cast<std::size_t>(id)];
    if (piece.kind != Kind::normal && piece.kind != Kind::unused && piece.kind != Kind::user_defined) continue;
    if (parts.bpe != nullptr && is_text && is_made_of_spaces(token)) continue;
    const bool is_mark = token.special || looks_special(token.content);
    // Of text such tokens are found in what was normalized, there as they are written.
    piece = {is_text && !is_mark ? with_spaces(token.content) : token.content, added_score,
             is_mark ? Kind::control : Kind::user_defined};
  }
  warn_of_added(parts, outside, " is left out: the model's embedding has ", size, " rows");
  warn_of_added(parts, stays, " has no rstrip, but in llama.cpp tokens of a model called ", model_name,
                " have it: ids of white space behind may differ");
  return vocabulary;
}

LORA_INLINE void expect_gguf_text(const TokenizerParts& parts, std::string_view what, std::string_view text) {
  if (const auto place = unicode::find_invalid_utf8(text); place != text.npos)
    fail_gguf(parts, concat(what, " is not valid UTF-8 at byte ", place), "valid UTF-8");
  if (const auto place = text.find('\0'); place != text.npos)
    fail_gguf(parts, concat(what, " has a zero byte, byte ", place), "none");
}

LORA_INLINE std::vector<SentencePiece> add_byte_level(io::GgufMetadata& metadata, const TokenizerParts& parts,
                                                      Index size, std::string_view model_name) {
  const Bpe& bpe = parts.bpe->bpe();
  const Vocabulary& vocabulary = bpe.vocabulary();
  std::vector<SentencePiece> tokens;
  for (std::int32_t id = 0; id < vocabulary.end(); ++id) {
    const bool is_there = vocabulary.has(id);
    tokens.push_back({is_there ? vocabulary.text(id) : concat("[PAD", id, "]"), 0,
                      is_there ? SentencePiece::Kind::normal : SentencePiece::Kind::unused});
  }
  tokens = gguf_tokens(parts, size, model_name, std::move(tokens));
  metadata.add("tokenizer.ggml.model", "gpt2");
  metadata.add("tokenizer.ggml.pre", std::string(gguf_name_of(parts)));
  std::vector<std::string> merges;
  for (const Bpe::Merge& merge : bpe.merges())
    merges.push_back(concat(vocabulary.text(merge.left), " ", vocabulary.text(merge.right)));
  metadata.add("tokenizer.ggml.merges", merges);
  return tokens;
}

/// `adds_space`: where `prefix` is as in the file, whether a space is put before texts.
LORA_INLINE std::vector<SentencePiece> add_pieces(io::GgufMetadata& metadata, const TokenizerParts& parts,
                                                  std::vector<SentencePiece> tokens, SentencePiecePrefix prefix,
                                                  bool adds_space) {
  metadata.add("tokenizer.ggml.model", "llama");
  metadata.add("tokenizer.ggml.pre", "default");
  std::vector<float> scores;
  for (const SentencePiece& token : tokens) scores.push_back(token.score);
  metadata.add("tokenizer.ggml.scores", scores);
  const bool as_in_file = prefix == SentencePiecePrefix::as_in_file;
  metadata.add("tokenizer.ggml.add_space_prefix", as_in_file ? adds_space : prefix != SentencePiecePrefix::never);
  if (!as_in_file && prefix != SentencePiecePrefix::never)
    log::warn(parts.where, ": this tokenizer puts a space before ",
              prefix == SentencePiecePrefix::first ? "the first text alone" : "texts without one alone",
              ", a GGUF file's before every text behind a special token: ids there may differ");
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].kind != SentencePiece::Kind::unknown) continue;
    metadata.add("tokenizer.ggml.unknown_token_id", static_cast<std::uint32_t>(id));
    break;
  }
  return tokens;
}

LORA_INLINE std::vector<SentencePiece> add_sentencepiece(io::GgufMetadata& metadata, const TokenizerParts& parts,
                                                         Index size, std::string_view model_name) {
  const SentencePieceModel& model = *parts.pieces;
  if (!model.is_bpe()) fail_gguf(parts, "the sentencepiece model is no BPE model", "one that merges pieces");
  const auto normalizer = sentencepiece_normalizer(model.proto(), parts.where);
  if (normalizer.has_charsmap) fail_gguf(parts, "the sentencepiece model rewrites characters", "normalizer identity");
  if (normalizer.strips_spaces)
    fail_gguf(parts, "the sentencepiece model strips spaces", "remove_extra_whitespaces false");
  return add_pieces(metadata, parts, gguf_tokens(parts, size, model_name, pieces_of(model.proto(), parts.where)),
                    model.prefix(), normalizer.adds_dummy_prefix);
}

LORA_INLINE std::vector<SentencePiece> add_characters(io::GgufMetadata& metadata, const TokenizerParts& parts,
                                                      Index size, std::string_view model_name) {
  return add_pieces(metadata, parts, gguf_tokens(parts, size, model_name, pieces_of_merges(parts)),
                    prefix_of_merges(parts), true);
}

LORA_INLINE void add_tokenizer(io::GgufMetadata& metadata, const TokenizerParts& parts, Index size,
                               const GgufChat& chat) {
  if (parts.model->end() > size)
    fail<FormatError>(parts.where, ": has ", parts.model->end(), " tokens, but the model's embedding ", size, " rows");
  expect_gguf_text(parts, "the chat template", chat.chat_template);
  const auto add_vocabulary = parts.bpe == nullptr         ? add_sentencepiece
                              : parts.bpe->is_byte_level() ? add_byte_level
                                                           : add_characters;
  const auto tokens = add_vocabulary(metadata, parts, size, chat.model_name);
  std::vector<std::string> texts;
  std::vector<std::int32_t> kinds;
  for (const SentencePiece& token : tokens) {
    expect_gguf_text(parts, concat("the token ", texts.size()), token.text);
    texts.push_back(token.text);
    kinds.push_back(static_cast<std::int32_t>(token.kind));
  }
  metadata.add("tokenizer.ggml.tokens", texts);
  metadata.add("tokenizer.ggml.token_type", kinds);

  const auto add_id = [&](std::string_view name, std::optional<std::int32_t> id) {
    if (!id) return;
    if (*id < 0 || *id >= size)
      fail<FormatError>(parts.where, ": the id ", *id, " of ", name, " is none of the ", size, " tokens");
    metadata.add(concat("tokenizer.ggml.", name, "_token_id"), static_cast<std::uint32_t>(*id));
  };
  const SpecialFrame& frame = parts.frame;
  const auto first = [](const std::vector<std::int32_t>& ids) {
    return ids.empty() ? std::nullopt : std::optional(ids[0]);
  };
  const auto bos = parts.bos ? parts.bos : frame.before.empty() ? chat.bos_id : first(frame.before);
  const auto eos = chat.stop_ids.empty() ? parts.eos : first(chat.stop_ids);
  const auto adds = [&](std::string_view name, const std::vector<std::int32_t>& side, std::optional<std::int32_t> id) {
    if (side.size() > 1 || (side.size() == 1 && side[0] != id))
      fail_gguf(parts, concat("the tokenizer puts other tokens than ", name, " around texts"),
                concat("none, or ", name));
    metadata.add(concat("tokenizer.ggml.add_", name, "_token"), !side.empty());
  };
  add_id("bos", bos);
  add_id("eos", eos);
  add_id("padding", parts.pad);
  adds("bos", frame.before, bos);
  adds("eos", frame.after, eos);
  // Every other end of an answer: of a turn, and of a message.
  constexpr std::string_view others[] = {"eot", "eom"};
  for (std::size_t i = 1; i < chat.stop_ids.size(); ++i) {
    if (i <= std::size(others))
      add_id(others[i - 1], chat.stop_ids[i]);
    else
      log::warn(parts.where, ": answers also end with the token ", chat.stop_ids[i], ", for which GGUF has no key");
  }
  if (!chat.chat_template.empty()) metadata.add("tokenizer.chat_template", chat.chat_template);
}

}  // namespace lora::tokenizer::detail
