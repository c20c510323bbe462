#include "lora/tokenizer/classes.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "support/quiet.hpp"

namespace tokenizer_classes_test {

using namespace lora;
using io::Json;
using tokenizer::TokenizerDocument;
using tokenizer::WordPattern;
using tokenizer::detail::ClassSettings;
using tokenizer::detail::TokenizerClass;

namespace {

/// What a class makes of a document with these settings, and what it says of them.
struct Taken {
  Taken(const char* settings, TokenizerClass kind, const ClassSettings& given = {}) {
    TokenizerDocument document;
    document.where = "t.json";
    document.settings = io::parse_json(settings, "t.json");
    const test::Quiet quiet;
    tokenizer::detail::take_parts_of_class(document, kind, given);
    told = quiet.text;
    made = document.settings;
  }
  Json made;
  std::string told;
};

std::string text_of(const Json& json) { return io::to_text(json, -1); }

}  // namespace

TEST_CASE("tokenizer_classes: a folder's class follows from its name and from the model's type") {
  using tokenizer::detail::tokenizer_class_of;
  for (const std::string_view end : {"", "Fast"}) {
    const auto of = [&](const char* name, const char* type = "", bool is_byte_level = true) {
      return tokenizer_class_of(concat(name, end), type, is_byte_level);
    };
    CHECK(of("Qwen2Tokenizer") == TokenizerClass::qwen2);
    CHECK(of("GPTNeoXTokenizer") == TokenizerClass::gpt_neox);
    CHECK(of("GPT2Tokenizer") == TokenizerClass::gpt2);
    CHECK(of("PreTrainedTokenizer") == TokenizerClass::plain);
    CHECK(of("Qwen3Tokenizer") == TokenizerClass::plain);
    CHECK(of("GPT2Tokenizer", "qwen2") == TokenizerClass::qwen2);
    CHECK(of("GPT2Tokenizer", "qwen3") == TokenizerClass::gpt2);
    CHECK(of("GPT2Tokenizer", "mistral") == TokenizerClass::plain);
    CHECK(of("Qwen2Tokenizer", "mistral") == TokenizerClass::plain);
    CHECK(of("Qwen2Tokenizer", "llama") == TokenizerClass::qwen2);
    for (const char* const type : {"", "llama", "gemma", "qwen3"}) {
      CHECK(of("LlamaTokenizer", type) == TokenizerClass::plain);
      CHECK(of("LlamaTokenizer", type, false) == TokenizerClass::llama);
      CHECK(of("GemmaTokenizer", type) == TokenizerClass::gemma);
    }
    for (const char* const type : {"mistral", "mixtral", "phi3", "phimoe"}) {
      CHECK(of("LlamaTokenizer", type, false) == TokenizerClass::plain);
      CHECK(of("GemmaTokenizer", type, false) == TokenizerClass::plain);
    }
    CHECK(of("PreTrainedTokenizer", "gemma", false) == TokenizerClass::plain);
  }
  for (const char* const type : {"gemma", "gemma2", "gemma3", "gemma3_text"})
    CHECK(tokenizer_class_of("", type, false) == TokenizerClass::gemma);
  CHECK(tokenizer_class_of("", "phi3", false) == TokenizerClass::plain);
  CHECK(tokenizer_class_of("", "llama", false) == TokenizerClass::plain);
  CHECK(tokenizer_class_of("", "", true) == TokenizerClass::plain);
  CHECK(tokenizer_class_of("", "qwen2", true) == TokenizerClass::qwen2);
  CHECK(tokenizer_class_of("", "qwen3", true) == TokenizerClass::qwen2);
  CHECK(tokenizer_class_of("", "llama", true) == TokenizerClass::plain);
  CHECK(tokenizer_class_of("FastGPT2Tokenizer", "", true) == TokenizerClass::plain);
}

TEST_CASE("tokenizer_classes: the classes that bring parts which are not known here") {
  for (const std::string name :
       {"BartTokenizer",     "BlenderbotTokenizer", "CLIPTokenizer",        "CodeLlamaTokenizer",  "CohereTokenizer",
        "DebertaTokenizer",  "EsmcTokenizer",       "LEDTokenizer",         "LayoutLMv3Tokenizer", "LukeTokenizer",
        "MvpTokenizer",      "NllbTokenizer",       "NougatTokenizer",      "OpenAIGPTTokenizer",  "Qwen3_5Tokenizer",
        "ReformerTokenizer", "RobertaTokenizer",    "SeamlessM4TTokenizer", "Siglip2Tokenizer",    "Tipsv2Tokenizer",
        "WhisperTokenizer"}) {
    CAPTURE(name);
    CHECK(tokenizer::detail::brings_unknown_parts(name));
    CHECK(tokenizer::detail::brings_unknown_parts(name + "Fast"));
    CHECK_FALSE(tokenizer::detail::brings_unknown_parts(name.substr(1)));
    CHECK_FALSE(tokenizer::detail::brings_unknown_parts(name.substr(0, name.size() - 1)));
  }
  for (const char* const name :
       {"", "Fast", "GPT2Tokenizer", "LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast"})
    CHECK_FALSE(tokenizer::detail::brings_unknown_parts(name));
}

TEST_CASE("tokenizer_classes: the tokens that a class has of its own") {
  const auto told = [](TokenizerClass kind) {
    std::string text;
    for (const auto& entry : tokenizer::detail::own_tokens(kind)) text += concat(entry.first, "=", entry.second, ";");
    return text;
  };
  CHECK(told(TokenizerClass::plain).empty());
  CHECK(told(TokenizerClass::qwen2) == "unk_token=<|endoftext|>;eos_token=<|endoftext|>;pad_token=<|endoftext|>;");
  CHECK(told(TokenizerClass::gpt2) == "unk_token=<|endoftext|>;bos_token=<|endoftext|>;eos_token=<|endoftext|>;");
  CHECK(told(TokenizerClass::gpt_neox) ==
        "unk_token=<|endoftext|>;bos_token=<|endoftext|>;eos_token=<|endoftext|>;pad_token=<|padding|>;");
  CHECK(told(TokenizerClass::llama) == "unk_token=<unk>;bos_token=<s>;eos_token=</s>;");
  CHECK(told(TokenizerClass::gemma) ==
        "unk_token=<unk>;bos_token=<bos>;eos_token=<eos>;pad_token=<pad>;mask_token=<mask>;");
}

TEST_CASE("tokenizer_classes: Llama's and Gemma's of characters bring marks for spaces, byte tokens and a decoder") {
  const auto scheme = [](const ClassSettings& given) {
    const Taken taken("{}", TokenizerClass::llama, given);
    return concat(taken.made["pre_tokenizer"]["prepend_scheme"].get<std::string>(), " ",
                  taken.made["decoder"]["decoders"].size());
  };
  CHECK(scheme({}) == "never 3");
  CHECK(scheme({.legacy = true}) == "never 3");
  CHECK(scheme({.prefix = true}) == "first 4");
  CHECK(scheme({.prefix = true, .legacy = true}) == "always 4");
  const Taken llama(R"({"normalizer": {"type": "Prepend", "prepend": "\u2581"}, "pre_tokenizer": null,
                        "model": {"type": "BPE", "unk_token": "a"}})",
                    TokenizerClass::llama, {.prefix = true});
  CHECK(llama.told ==
        "t.json: its pre_tokenizer and normalizer do not count: transformers' class for this folder has its own\n");
  CHECK(text_of(llama.made["model"]) == R"({"type":"BPE","byte_fallback":true,"fuse_unk":true})");
  CHECK(llama.made["normalizer"].is_null());
  CHECK(text_of(llama.made["pre_tokenizer"]) ==
        "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\",\"split\":false}");
  CHECK(Taken(text_of(llama.made).c_str(), TokenizerClass::llama, {.prefix = true}).told.empty());

  const Taken gemma(
      R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"},
                        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                        "model": {"type": "BPE"}})",
      TokenizerClass::gemma, {.unknown = "<u>"});
  CHECK(gemma.told.empty());
  CHECK(text_of(gemma.made["model"]) == R"({"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":"<u>"})");
  CHECK(gemma.made["decoder"]["decoders"].size() == 3);
  CHECK(Taken("{}", TokenizerClass::gemma).told ==
        "t.json: its pre_tokenizer and normalizer do not count: transformers' class for this folder has its own\n");
}

TEST_CASE(
    "tokenizer_classes: each brings its pre-tokenizer, normalizer and decoder, and says nothing where they agree") {
  const char* const bytes = R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}, "normalizer": null})";
  const Taken gpt2(bytes, TokenizerClass::gpt2);
  CHECK(gpt2.told.empty());
  CHECK(text_of(gpt2.made["pre_tokenizer"]) == R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})");
  CHECK(gpt2.made["normalizer"].is_null());
  CHECK(text_of(gpt2.made["decoder"]) == R"({"type":"ByteLevel"})");
  const Taken prefixed(bytes, TokenizerClass::gpt2, {.prefix = true});
  CHECK(prefixed.told.empty());
  CHECK(text_of(prefixed.made["pre_tokenizer"]) == R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})");

  const Taken neox(R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]},
                       "normalizer": {"type": "NFC"}, "post_processor": {"type": "ByteLevel"}})",
                   TokenizerClass::gpt_neox);
  CHECK(neox.told.empty());
  CHECK(text_of(neox.made["normalizer"]) == R"({"type":"NFC"})");
  CHECK(neox.made["post_processor"].is_null());

  const Taken qwen2(bytes, TokenizerClass::qwen2);
  CHECK(qwen2.told ==
        "t.json: its pre_tokenizer and normalizer do not count: transformers' class for this folder has its own\n");
  const Json& parts = qwen2.made["pre_tokenizer"]["pretokenizers"];
  CHECK(qwen2.made["pre_tokenizer"]["type"] == "Sequence");
  CHECK(text_of(parts[1]) == R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})");
  CHECK(parts[0]["type"] == "Split");
  CHECK(parts[0]["behavior"] == "Isolated");
  CHECK(parts[0]["pattern"]["Regex"].get<std::string>() == WordPattern::qwen2_regex);
  const Taken again(text_of(qwen2.made).c_str(), TokenizerClass::qwen2);
  CHECK(again.told.empty());
  CHECK(text_of(again.made) == text_of(qwen2.made));
  Json words = qwen2.made;  // cut alike, but into characters instead of bytes
  words["pre_tokenizer"] = parts[0];
  CHECK(Taken(text_of(words).c_str(), TokenizerClass::qwen2).told ==
        "t.json: its pre_tokenizer does not count: transformers' class for this folder has its own\n");
}

TEST_CASE("tokenizer_classes: what of a document does not count is told, one part or several") {
  const auto told = [](const char* settings, TokenizerClass kind) { return Taken(settings, kind).told; };
  const std::string end = " not count: transformers' class for this folder has its own\n";
  CHECK(told(R"({"pre_tokenizer": {"type": "Digits"}})", TokenizerClass::gpt2) ==
        "t.json: its pre_tokenizer does" + end);
  CHECK(told("{}", TokenizerClass::gpt2) == "t.json: its pre_tokenizer does" + end);
  CHECK(told(R"({"pre_tokenizer": {"type": "ByteLevel"}, "normalizer": {"type": "NFC"}})", TokenizerClass::gpt2) ==
        "t.json: its normalizer does" + end);
  CHECK(told(R"({"pre_tokenizer": {"type": "ByteLevel"}, "normalizer": {"type": "Lowercase"}})",
             TokenizerClass::gpt_neox) == "t.json: its normalizer does" + end);
  CHECK(told(R"({"pre_tokenizer": {"type": "Whitespace"}})", TokenizerClass::gpt_neox) ==
        "t.json: its pre_tokenizer and normalizer do" + end);
  CHECK(told(R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"ignore_merges": true}})", TokenizerClass::gpt2) ==
        "t.json: its model's ignore_merges does" + end);
  CHECK(told(R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"byte_fallback": true}})", TokenizerClass::gpt2) ==
        "t.json: its model's byte_fallback does" + end);
  CHECK(told(R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"byte_fallback": false}})", TokenizerClass::gpt2)
            .empty());
  for (const bool has_bytes : {false, true}) {
    const std::string document = concat(R"({"model": {"byte_fallback": )", has_bytes ? "true" : "false", "}}");
    const auto said = told(document.c_str(), TokenizerClass::llama);
    CHECK((said.find("byte_fallback") == said.npos) == has_bytes);
  }
  CHECK(told(R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"ignore_merges": false}})", TokenizerClass::gpt2)
            .empty());
  for (const char* const model : {R"({"ignore_merges": 1})", "5", "null"})
    CHECK(
        told(concat(R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": )", model, "}").c_str(), TokenizerClass::gpt2)
            .empty());
  const char* const framed = R"({"pre_tokenizer": {"type": "ByteLevel"}, "normalizer": {"type": "NFC"},
      "post_processor": {"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [1]}},
                         "single": [{"Sequence": {}}, {"SpecialToken": {"id": "x"}}]}})";
  const Taken neox(framed, TokenizerClass::gpt_neox);
  CHECK(neox.told == "t.json: its post_processor does" + end);
  CHECK(neox.made["post_processor"].is_null());
  CHECK(Taken(framed, TokenizerClass::gpt2).made["post_processor"].is_object());
}

TEST_CASE("tokenizer_classes: of the model only vocabulary and merges stay") {
  const Taken taken(R"({"model": {"type": "BPE", "ignore_merges": false, "unk_token": "a", "fuse_unk": true,
      "byte_fallback": true, "dropout": 0.1, "continuing_subword_prefix": "c", "end_of_word_suffix": "e", "own": 1}})",
                    TokenizerClass::gpt2);
  CHECK(text_of(taken.made["model"]) == R"({"type":"BPE","own":1})");
}

}  // namespace tokenizer_classes_test
