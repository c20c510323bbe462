#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/gguf.hpp"

namespace lora::tokenizer::detail {

/// The vocabulary of a GGUF file.
struct GgufTokens {
  std::vector<std::string> texts;
  std::vector<SentencePiece::Kind> kinds;
};

LORA_INLINE GgufTokens read_gguf_tokens(const io::Gguf& file) {
  GgufTokens tokens;
  tokens.texts = file.at<std::vector<std::string>>("tokenizer.ggml.tokens");
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (unicode::find_invalid_utf8(tokens.texts[id]) != std::string_view::npos)
      fail<FormatError>(file.name(), ": tokenizer.ggml.tokens[", id, "] is not valid UTF-8");
  const auto kinds = file.get<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  if (kinds && kinds->size() != tokens.texts.size())
    fail<FormatError>(file.name(), ": tokenizer.ggml.token_type has ", kinds->size(), " items, but there are ",
                      tokens.texts.size(), " tokens");
  tokens.kinds.resize(tokens.texts.size(), SentencePiece::Kind::normal);
  for (std::size_t id = 0; kinds && id < kinds->size(); ++id) {
    const std::int32_t kind = (*kinds)[id];
    if (kind < 1 || kind > 6)
      fail<FormatError>(file.name(), ": tokenizer.ggml.token_type[", id, "] is ", kind, "; expected 1 to 6");
    tokens.kinds[id] = static_cast<SentencePiece::Kind>(kind);
  }
  return tokens;
}

LORA_INLINE std::string gguf_pre_tokenizer_names() {
  std::string names;
  for (const auto& entry : gguf_pre_tokenizers) names += concat(names.empty() ? "" : ", ", entry.name);
  return names;
}

LORA_INLINE io::Json gguf_pre_tokenizer_json(GgufPreTokenizer::Kind kind) {
  using Kind = GgufPreTokenizer::Kind;
  const bool own_regex = kind == Kind::gpt2 || kind == Kind::digits_gpt2;
  const io::Json byte_level = io::json_object(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own_regex}});
  if (kind == Kind::gpt2) return byte_level;
  io::Json first = io::json_object({{"type", "Digits"}, {"individual_digits", true}});
  if (!own_regex) {
    const auto regex = kind == Kind::qwen2 ? WordPattern::qwen2_regex : WordPattern::llama3_regex;
    first = io::json_object({{"type", "Split"},
                             {"pattern", io::json_object({{"Regex", std::string(regex)}})},
                             {"behavior", "Isolated"},
                             {"invert", false}});
  }
  return io::json_object({{"type", "Sequence"}, {"pretokenizers", io::Json::array({first, byte_level})}});
}

/// A template that puts tokens before and after a text, each an id with its name.
LORA_INLINE io::Json frame_template_json(const std::vector<std::pair<std::int32_t, std::string>>& before,
                                         const std::vector<std::pair<std::int32_t, std::string>>& after) {
  const auto item = [](std::string_view kind, const std::string& name, int type_id) {
    return io::json_object({{kind, io::json_object({{"id", name}, {"type_id", type_id}})}});
  };
  io::Json single = io::Json::array(), pair = io::Json::array(), tokens = io::Json::object();
  for (int type_id = 0; type_id < 2; ++type_id) {
    const auto put = [&](io::Json part) {
      if (type_id == 0) single.push_back(part);
      pair.push_back(std::move(part));
    };
    for (const auto& [id, name] : before) put(item("SpecialToken", name, type_id));
    put(item("Sequence", type_id == 0 ? "A" : "B", type_id));
    for (const auto& [id, name] : after) put(item("SpecialToken", name, type_id));
  }
  for (const auto* side : {&before, &after})
    for (const auto& [id, name] : *side)
      tokens[name] =
          io::json_object({{"id", name}, {"ids", io::Json::array({id})}, {"tokens", io::Json::array({name})}});
  return io::json_object({{"type", "TemplateProcessing"},
                          {"single", std::move(single)},
                          {"pair", std::move(pair)},
                          {"special_tokens", std::move(tokens)}});
}

LORA_INLINE bool takes_white_space_behind(std::string_view model_name, std::string_view token) {
  const std::string name = ascii_lower(std::string(model_name));
  const bool is_phi3 = name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
  return is_phi3 && token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
}

/// Whether a token is found in texts as it is written.
LORA_INLINE bool is_found_as_written(SentencePiece::Kind kind) {
  using Kind = SentencePiece::Kind;
  return kind == Kind::control || kind == Kind::unknown || kind == Kind::user_defined;
}

/// The document of which a GGUF file with a byte-level vocabulary was made, as far as the file tells.
LORA_INLINE TokenizerDocument document_from_gguf(const io::Gguf& file) {
  TokenizerDocument document;
  document.where = file.name();
  const auto name = file.at<std::string>("tokenizer.ggml.pre");
  const auto* const pre = std::find_if(std::begin(gguf_pre_tokenizers), std::end(gguf_pre_tokenizers),
                                       [&](const GgufPreTokenizer& entry) { return entry.name == name; });
  if (pre == std::end(gguf_pre_tokenizers))
    fail_part(file.name(), "pre-tokenizer (tokenizer.ggml.pre)", name, concat("one of ", gguf_pre_tokenizer_names()));

  const GgufTokens tokens = read_gguf_tokens(file);
  io::Json added = io::Json::array();
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const SentencePiece::Kind token_kind = tokens.kinds[i];
    if (token_kind == SentencePiece::Kind::unused) continue;  // fills the vocabulary up to the width of the head
    document.vocabulary.add(tokens.texts[i], id, file.name());
    if (!is_found_as_written(token_kind)) continue;
    const bool special = token_kind != SentencePiece::Kind::user_defined;
    added.push_back(added_token_json({.id = id, .content = tokens.texts[i], .special = special}));
  }
  const auto merges = file.at<std::vector<std::string>>("tokenizer.ggml.merges");
  for (const std::string& merge : merges) {
    const auto space = merge.find(' ', 1);
    if (unicode::find_invalid_utf8(merge) != std::string_view::npos || space == merge.npos || merge.size() < 3)
      fail<FormatError>(file.name(), ": tokenizer.ggml.merges[", document.merges.size(),
                        "] must be two tokens, found \"", unicode::replace_invalid_utf8(merge), "\"");
    document.merges.add(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1));
  }

  const auto framing = [&](std::string_view which, bool otherwise) {
    std::vector<std::pair<std::int32_t, std::string>> side;
    const auto id = file.get<std::int32_t>(concat("tokenizer.ggml.", which, "_token_id"));
    const bool adds = file.get<bool>(concat("tokenizer.ggml.add_", which, "_token")).value_or(otherwise);
    if (adds && id && document.vocabulary.has(*id)) side.emplace_back(*id, tokens.texts[static_cast<std::size_t>(*id)]);
    return side;
  };
  const auto before = framing("bos", pre->ignores_merges), after = framing("eos", false);
  io::Json post_processor = nullptr;
  if (!before.empty() || !after.empty()) post_processor = frame_template_json(before, after);
  document.settings = io::json_object(
      {{"version", "1.0"},
       {"truncation", nullptr},
       {"padding", nullptr},
       {"added_tokens", std::move(added)},
       {"normalizer", pre->nfc ? io::json_object({{"type", "NFC"}}) : io::Json()},
       {"pre_tokenizer", gguf_pre_tokenizer_json(pre->kind)},
       {"post_processor", std::move(post_processor)},
       {"decoder",
        io::json_object(
            {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}})},
       {"model", io::json_object({{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", false},
                                  {"byte_fallback", false},
                                  {"ignore_merges", pre->ignores_merges}})}});
  return document;
}

/// The sentencepiece model of a GGUF file whose vocabulary has scores.
LORA_INLINE std::string sentencepiece_from_gguf(const io::Gguf& file) {
  const GgufTokens tokens = read_gguf_tokens(file);
  const auto scores = file.at<std::vector<float>>("tokenizer.ggml.scores");
  if (scores.size() != tokens.texts.size())
    fail<FormatError>(file.name(), ": tokenizer.ggml.scores has ", scores.size(), " items, but there are ",
                      tokens.texts.size(), " tokens");
  // What fills the vocabulary up to the width of the head is no token, which an answer could have.
  std::size_t count = scores.size();
  while (count > 0 && tokens.kinds[count - 1] == SentencePiece::Kind::unused) --count;
  std::vector<SentencePiece> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(scores[i]))
      fail<FormatError>(file.name(), ": tokenizer.ggml.scores[", i, "] is ", scores[i], "; expected a finite number");
    const bool as_in_texts = tokens.kinds[i] == SentencePiece::Kind::user_defined;
    pieces.push_back({as_in_texts ? with_space_marks(tokens.texts[i]) : tokens.texts[i], scores[i], tokens.kinds[i]});
  }
  return sentencepiece_proto(pieces, file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(true));
}

LORA_INLINE std::unique_ptr<TokenizerParts> parts_of_gguf(const io::Gguf& file) {
  const auto kind = file.at<std::string>("tokenizer.ggml.model");
  if (kind != "gpt2" && kind != "llama")
    fail_part(file.name(), "tokenizer (tokenizer.ggml.model)", kind, "gpt2 or llama");
  auto parts = kind == "gpt2" ? parts_of_document(document_from_gguf(file))
                              : parts_of_pieces(sentencepiece_from_gguf(file), file.name());
  const auto read_id = [&](std::string_view key, std::optional<std::int32_t>& id) {
    const auto given = file.get<std::int32_t>(key);
    if (!given) return;
    if (!parts->has(*given)) fail<FormatError>(file.name(), ": ", key, " is ", *given, ", which no token has");
    id = given;
  };
  read_id("tokenizer.ggml.bos_token_id", parts->bos);
  read_id("tokenizer.ggml.eos_token_id", parts->eos);
  read_id("tokenizer.ggml.padding_token_id", parts->pad);
  std::optional<std::int32_t> others[6];
  const char* names[] = {"unknown", "seperator", "cls", "mask", "eot", "eom"};  // as the format spells them
  for (std::size_t i = 0; i < std::size(names); ++i)
    read_id(concat("tokenizer.ggml.", names[i], "_token_id"), others[i]);
  for (const auto& id : {parts->bos, parts->eos, parts->pad}) parts->make_special(id);
  for (const auto& id : others) parts->make_special(id);
  const auto model_name = file.get<std::string>("general.name").value_or("");
  const GgufTokens tokens = read_gguf_tokens(file);
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    // One with a space is a piece with its mark instead, which no text is called.
    if (is_found_as_written(tokens.kinds[i]) && takes_white_space_behind(model_name, tokens.texts[i]) &&
        parts->find(tokens.texts[i]) == id)
      parts->declare({.id = id,
                      .content = tokens.texts[i],
                      .special = tokens.kinds[i] != SentencePiece::Kind::user_defined,
                      .rstrip = true});
  }
  if (parts->bpe) parts->settings["added_tokens"] = parts->added_tokens_json();
  if (parts->pieces) {
    parts->frame = {};
    if (parts->bos && file.get<bool>("tokenizer.ggml.add_bos_token").value_or(true))
      parts->frame.before = {*parts->bos};
    if (parts->eos && file.get<bool>("tokenizer.ggml.add_eos_token").value_or(false))
      parts->frame.after = {*parts->eos};
  }
  parts->chat_template = file.get<std::string>("tokenizer.chat_template").value_or("");
  const auto with_tools = file.get<std::string>("tokenizer.chat_template.tool_use");
  parts->has_tool_template = with_tools && !with_tools->empty() && *with_tools != parts->chat_template;
  return parts;
}

}  // namespace lora::tokenizer::detail
