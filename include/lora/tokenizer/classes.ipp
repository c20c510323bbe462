#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/classes.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE std::string_view without_fast(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  return name;
}

LORA_INLINE bool is_among(std::string_view words, std::string_view word) {
  return !word.empty() && words.find(concat(" ", word, " ")) != words.npos;
}

LORA_INLINE bool takes_file_as_it_is(std::string_view model_type) {
  return is_among(" granite ministral ministral3 mistral mistral3 mixtral olmo2 olmo3 phi3 phi3_v phimoe stablelm ",
                  model_type);
}

LORA_INLINE bool names_byte_level(const io::Json& settings) {
  return io::to_text(settings, -1).find("\"ByteLevel\"") != std::string::npos;
}

LORA_INLINE TokenizerClass tokenizer_class_of(std::string_view declared, std::string_view model_type,
                                              bool is_byte_level) {
  declared = without_fast(declared);
  if (model_type == "qwen2" || (declared.empty() && model_type == "qwen3")) return TokenizerClass::qwen2;
  if (takes_file_as_it_is(model_type)) return TokenizerClass::plain;
  if (declared == "LlamaTokenizer" && !is_byte_level) return TokenizerClass::llama;
  const bool is_gemma = is_among(" gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text ", model_type);
  if (declared == "GemmaTokenizer" || (declared.empty() && is_gemma)) return TokenizerClass::gemma;
  if (declared == "Qwen2Tokenizer") return TokenizerClass::qwen2;
  if (declared == "GPTNeoXTokenizer") return TokenizerClass::gpt_neox;
  return declared == "GPT2Tokenizer" ? TokenizerClass::gpt2 : TokenizerClass::plain;
}

LORA_INLINE bool brings_unknown_parts(std::string_view declared) {
  constexpr std::string_view names =
      " BartTokenizer BlenderbotTokenizer CLIPTokenizer CodeLlamaTokenizer CohereTokenizer DebertaTokenizer "
      "EsmcTokenizer LEDTokenizer LayoutLMv3Tokenizer LukeTokenizer MvpTokenizer NllbTokenizer "
      "NougatTokenizer OpenAIGPTTokenizer Qwen3_5Tokenizer ReformerTokenizer RobertaTokenizer SeamlessM4TTokenizer "
      "Siglip2Tokenizer Tipsv2Tokenizer WhisperTokenizer ";
  return is_among(names, without_fast(declared));
}

LORA_INLINE std::vector<std::pair<std::string_view, std::string_view>> own_tokens(TokenizerClass kind) {
  constexpr std::string_view end = "<|endoftext|>";
  switch (kind) {
    case TokenizerClass::qwen2:
      return {{"unk_token", end}, {"eos_token", end}, {"pad_token", end}};
    case TokenizerClass::gpt2:
      return {{"unk_token", end}, {"bos_token", end}, {"eos_token", end}};
    case TokenizerClass::gpt_neox:
      return {{"unk_token", end}, {"bos_token", end}, {"eos_token", end}, {"pad_token", "<|padding|>"}};
    case TokenizerClass::llama:
      return {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
    case TokenizerClass::gemma:
      return {{"unk_token", "<unk>"},
              {"bos_token", "<bos>"},
              {"eos_token", "<eos>"},
              {"pad_token", "<pad>"},
              {"mask_token", "<mask>"}};
    default:
      return {};
  }
}

/// Sets whether ByteLevel puts a space before a text.
LORA_INLINE void set_prefix_space(io::Json& pre_tokenizer, bool prefix) {
  if (!pre_tokenizer.is_object()) return;
  if (const auto list = pre_tokenizer.find("pretokenizers"); list != pre_tokenizer.end() && list->is_array())
    for (io::Json& part : *list) set_prefix_space(part, prefix);
  if (const auto type = pre_tokenizer.find("type"); type != pre_tokenizer.end() && *type == "ByteLevel")
    pre_tokenizer["add_prefix_space"] = prefix;
}

LORA_INLINE io::Json pre_tokenizer_of_class(TokenizerClass kind, const ClassSettings& given) {
  if (kind == TokenizerClass::llama)
    return io::json_object({{"type", "Metaspace"},
                            {"replacement", std::string(Bpe::space_mark)},
                            {"prepend_scheme", !given.prefix  ? "never"
                                               : given.legacy ? "always"
                                                              : "first"},
                            {"split", false}});
  if (kind == TokenizerClass::gemma)
    return io::json_object({{"type", "Split"},
                            {"pattern", io::json_object({{"String", " "}})},
                            {"behavior", "MergedWithPrevious"},
                            {"invert", false}});
  const bool splits = kind == TokenizerClass::qwen2;
  io::Json bytes = io::json_object({{"type", "ByteLevel"}, {"add_prefix_space", given.prefix}, {"use_regex", !splits}});
  if (!splits) return bytes;
  io::Json regex = io::json_object({{"Regex", std::string(WordPattern::qwen2_regex)}});
  io::Json words = io::json_object({{"type", "Split"}, {"pattern", std::move(regex)}, {"behavior", "Isolated"}});
  return io::json_object({{"type", "Sequence"}, {"pretokenizers", std::vector{std::move(words), std::move(bytes)}}});
}

LORA_INLINE io::Json normalizer_of_class(TokenizerClass kind) {
  if (kind == TokenizerClass::gpt2 || kind == TokenizerClass::llama) return nullptr;
  if (kind == TokenizerClass::gemma)
    return io::json_object({{"type", "Replace"},
                            {"pattern", io::json_object({{"String", " "}})},
                            {"content", std::string(Bpe::space_mark)}});
  return io::json_object({{"type", "NFC"}});
}

LORA_INLINE io::Json decoder_of_class(TokenizerClass kind, const ClassSettings& given) {
  if (kind != TokenizerClass::llama && kind != TokenizerClass::gemma) return io::json_object({{"type", "ByteLevel"}});
  std::vector<io::Json> steps;
  steps.push_back(io::json_object({{"type", "Replace"},
                                   {"pattern", io::json_object({{"String", std::string(Bpe::space_mark)}})},
                                   {"content", " "}}));
  for (const char* type : {"ByteFallback", "Fuse"}) steps.push_back(io::json_object({{"type", type}}));
  if (kind == TokenizerClass::llama && given.prefix)
    steps.push_back(io::json_object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  return io::json_object({{"type", "Sequence"}, {"decoders", steps}});
}

/// Whether two pre-tokenizers, of which this library knows the second, cut all texts alike.
LORA_INLINE bool cuts_alike(const io::Json& one, const io::Json& other) try {
  BpeSteps first, second;
  return read_pre_tokenizer(io::JsonView(one, ""), first) == read_pre_tokenizer(io::JsonView(other, ""), second) &&
         first.pre_tokenizer.fingerprint() == second.pre_tokenizer.fingerprint() &&
         first.marks.text() == second.marks.text();
} catch (const FormatError&) {
  return false;
}

LORA_INLINE bool normalizes_alike(const io::Json& one, const io::Json& other) try {
  Normalizer first, second;
  read_normalizer(io::JsonView(one, ""), first);
  read_normalizer(io::JsonView(other, ""), second);
  return first.text() == second.text();
} catch (const FormatError&) {
  return false;
}

LORA_INLINE void take_parts_of_class(TokenizerDocument& document, TokenizerClass kind, const ClassSettings& given) {
  io::Json& settings = document.settings;
  std::vector<std::string_view> changed;
  const auto part = [&](const char* name) {
    const auto found = settings.find(name);
    return found == settings.end() ? io::Json() : *found;
  };
  io::Json found = part("pre_tokenizer"), own = pre_tokenizer_of_class(kind, given);
  set_prefix_space(found, given.prefix);
  if (!cuts_alike(found, own)) changed.push_back("pre_tokenizer");
  settings["pre_tokenizer"] = std::move(own);

  found = part("normalizer"), own = normalizer_of_class(kind);
  if (own.is_null() ? !found.is_null() : !normalizes_alike(found, own)) changed.push_back("normalizer");
  settings["normalizer"] = std::move(own);
  settings["decoder"] = decoder_of_class(kind, given);

  if (const auto model = settings.find("model"); model != settings.end() && model->is_object()) {
    const auto ignores = model->find("ignore_merges");
    if (ignores != model->end() && ignores->is_boolean() && ignores->get<bool>())
      changed.push_back("model's ignore_merges");
    const bool has_fallback = kind == TokenizerClass::llama || kind == TokenizerClass::gemma;
    if (const auto fallback = model->find("byte_fallback");
        fallback != model->end() && fallback->is_boolean() && fallback->get<bool>() != has_fallback)
      changed.push_back("model's byte_fallback");
    for (const char* key : {"ignore_merges", "unk_token", "fuse_unk", "byte_fallback", "dropout",
                            "continuing_subword_prefix", "end_of_word_suffix"})
      model->erase(key);
    if (has_fallback)
      for (const char* key : {"byte_fallback", "fuse_unk"}) (*model)[key] = true;
    if (kind == TokenizerClass::gemma) (*model)["unk_token"] = given.unknown;
  }
  if (kind == TokenizerClass::gpt_neox) {  // which adds add_bos_token and add_eos_token, false beside a tokenizer.json
    SpecialFrame frame;
    const io::JsonView view(settings, document.where);
    read_post_processor(part_of(view, "post_processor"), frame);
    if (!frame.before.empty() || !frame.after.empty()) changed.push_back("post_processor");
    settings["post_processor"] = io::Json();
  }
  std::string text;
  for (const std::string_view name : changed) text += concat(text.empty() ? "" : " and ", name);
  if (!text.empty())
    log::warn(document.where, ": its ", text, changed.size() > 1 ? " do" : " does", " not count: transformers' class ",
              "for this folder has its own");
}

}  // namespace lora::tokenizer::detail
