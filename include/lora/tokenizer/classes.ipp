#pragma once

#include "lora/core/config.hpp"
#include "lora/tokenizer/classes.hpp"

namespace lora::tokenizer::detail {

LORA_INLINE std::string_view without_fast(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  return name;
}

LORA_INLINE TokenizerClass tokenizer_class_of(std::string_view declared, std::string_view model_type) {
  declared = without_fast(declared);
  if (model_type == "qwen2" || (declared.empty() && model_type == "qwen3")) return TokenizerClass::qwen2;
  if (model_type == "mistral") return TokenizerClass::plain;
  if (declared == "Qwen2Tokenizer") return TokenizerClass::qwen2;
  if (declared == "GPTNeoXTokenizer") return TokenizerClass::gpt_neox;
  return declared == "GPT2Tokenizer" ? TokenizerClass::gpt2 : TokenizerClass::plain;
}

LORA_INLINE bool brings_unknown_parts(std::string_view declared) {
  constexpr std::string_view names =
      " BartTokenizer BlenderbotTokenizer CLIPTokenizer CodeLlamaTokenizer CohereTokenizer DebertaTokenizer "
      "EsmcTokenizer GemmaTokenizer LEDTokenizer LayoutLMv3Tokenizer LukeTokenizer MvpTokenizer NllbTokenizer "
      "NougatTokenizer OpenAIGPTTokenizer Qwen3_5Tokenizer ReformerTokenizer RobertaTokenizer SeamlessM4TTokenizer "
      "Siglip2Tokenizer Tipsv2Tokenizer WhisperTokenizer ";
  return !declared.empty() && names.find(concat(" ", without_fast(declared), " ")) != names.npos;
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

LORA_INLINE io::Json pre_tokenizer_of_class(TokenizerClass kind, bool prefix) {
  const bool splits = kind == TokenizerClass::qwen2;
  io::Json bytes = io::json_object({{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", !splits}});
  if (!splits) return bytes;
  io::Json regex = io::json_object({{"Regex", std::string(WordPattern::qwen2_regex)}});
  io::Json words = io::json_object({{"type", "Split"}, {"pattern", std::move(regex)}, {"behavior", "Isolated"}});
  return io::json_object({{"type", "Sequence"}, {"pretokenizers", std::vector{std::move(words), std::move(bytes)}}});
}

/// Whether two pre-tokenizers, of which this library knows the second, cut all texts alike.
LORA_INLINE bool cuts_alike(const io::Json& one, const io::Json& other) try {
  PreTokenizer first, second;
  return read_pre_tokenizer(io::JsonView(one, ""), first) && read_pre_tokenizer(io::JsonView(other, ""), second) &&
         first.fingerprint() == second.fingerprint();
} catch (const FormatError&) {
  return false;
}

LORA_INLINE bool is_nfc(const io::Json& normalizer) try {
  return read_normalizer(io::JsonView(normalizer, ""));
} catch (const FormatError&) {
  return false;
}

LORA_INLINE void take_parts_of_class(TokenizerDocument& document, TokenizerClass kind, bool prefix) {
  io::Json& settings = document.settings;
  std::vector<std::string_view> changed;
  const auto part = [&](const char* name) {
    const auto found = settings.find(name);
    return found == settings.end() ? io::Json() : *found;
  };
  io::Json found = part("pre_tokenizer"), own = pre_tokenizer_of_class(kind, prefix);
  set_prefix_space(found, prefix);
  if (!cuts_alike(found, own)) changed.push_back("pre_tokenizer");
  settings["pre_tokenizer"] = std::move(own);

  const bool nfc = kind != TokenizerClass::gpt2;
  found = part("normalizer");
  if (nfc ? !is_nfc(found) : !found.is_null()) changed.push_back("normalizer");
  settings["normalizer"] = nfc ? io::json_object({{"type", "NFC"}}) : io::Json();
  settings["decoder"] = io::json_object({{"type", "ByteLevel"}});

  if (const auto model = settings.find("model"); model != settings.end() && model->is_object()) {
    const auto ignores = model->find("ignore_merges");
    if (ignores != model->end() && ignores->is_boolean() && ignores->get<bool>())
      changed.push_back("model's ignore_merges");
    for (const char* key : {"ignore_merges", "unk_token", "fuse_unk", "byte_fallback", "dropout",
                            "continuing_subword_prefix", "end_of_word_suffix"})
      model->erase(key);
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
