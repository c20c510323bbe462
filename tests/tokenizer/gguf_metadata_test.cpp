// Tokenizers in the metadata of GGUF files: what is written, that it is read back as the same tokenizer, and what such
// keys can't say.

#include "lora/tokenizer/gguf_metadata.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/sentencepiece_file.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace gguf_metadata_test {

using namespace lora;
using test::holds;
using test::message_of;
using tokenizer::GgufChat;
using tokenizer::Tokenizer;

namespace {

/// The metadata of a tokenizer, alone in a file.
io::Gguf written(const Tokenizer& tokenizer, Index size, const GgufChat& chat = {}) {
  const test::TempFolder temp;
  io::GgufMetadata metadata;
  tokenizer.add_to(metadata, size, chat);
  io::GgufWriter writer(temp / "t.gguf", metadata, {});
  writer.commit();
  return io::Gguf::open(temp / "t.gguf");
}

io::Json bytes_json() { return io::parse_json(test::byte_tokenizer_json(), "bytes"); }

Tokenizer tokenizer_of(const io::Json& json) { return Tokenizer::from_json(io::to_text(json), "tokenizer.json"); }

std::string refused(const io::Json& json, Index size = 300, const GgufChat& chat = {}) {
  return message_of<FormatError>([&] { written(tokenizer_of(json), size, chat); });
}

io::Json digits_and_words() {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Digits"}, {"individual_digits", true}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}}}};
}

void check_same_ids(const Tokenizer& a, const Tokenizer& b) {
  for (const char* text :
       {"Hello, world's 12345 \n\n  end", "  two <|im_start|>user\n\u00e9 <think>\t9", "ab aab 00"}) {
    CAPTURE(text);
    CHECK(a.encode(text, true).ids == b.encode(text, true).ids);
  }
}

const std::string pre_key = "tokenizer.ggml.pre";

}  // namespace

TEST_CASE("gguf metadata: the pre-tokenizer is named by what it does, with its normalizer and ignore_merges") {
  const auto name_of = [](const io::Json& json) {
    const auto own = tokenizer_of(json);
    const auto file = written(own, 300);
    check_same_ids(own, Tokenizer::from_gguf(file));
    CHECK_FALSE(file.has("tokenizer.ggml.scores"));
    return file.at<std::string>(pre_key);
  };
  io::Json json = bytes_json();
  CHECK(name_of(json) == "qwen2");
  json["normalizer"] = nullptr;
  CHECK(name_of(json) == "stablelm2");
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = std::string(tokenizer::WordPattern::llama3_regex);
  CHECK(name_of(json) == "smaug-bpe");
  json["model"]["ignore_merges"] = true;
  CHECK(name_of(json) == "llama-bpe");
  CHECK(holds(refused([&] {
                io::Json nfc = json;
                nfc["normalizer"] = {{"type", "NFC"}};
                return nfc;
              }()),
              "tokenizer.json: the pre-tokenizer, with NFC and with ignore_merges, has no name in llama.cpp, which a "
              "GGUF file can't say; expected one of smollm, gpt-2, qwen2, deepseek-r1-qwen, stablelm2, llama-bpe, "
              "llama3, llama-v3, smaug-bpe"));
  json["model"]["ignore_merges"] = false;
  json["pre_tokenizer"] = digits_and_words();
  CHECK(name_of(json) == "smollm");
  json["pre_tokenizer"] = digits_and_words()["pretokenizers"][1];
  CHECK(name_of(json) == "gpt-2");
  json["pre_tokenizer"]["add_prefix_space"] = true;
  CHECK(holds(refused(json), "without NFC and without ignore_merges, has no name in llama.cpp"));
}

TEST_CASE("gguf metadata: a vocabulary with holes is written with its merges, and marks are told by their looks") {
  io::Json json = io::parse_json(R"({"added_tokens": [{"id": 7, "content": "<x>"}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
      "model": {"vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 4, "\u0120ab": 5}, "merges": ["a b", "\u0120 ab"]}})",
                                 "small");
  using Strings = std::vector<std::string>;
  const auto file = written(tokenizer_of(json), 9);
  CHECK(file.at<Strings>("tokenizer.ggml.tokens") ==
        Strings{"a", "b", "\u0120", "[PAD3]", "ab", "\u0120ab", "[PAD6]", "<x>", "[PAD8]"});
  CHECK(file.at<std::vector<std::int32_t>>("tokenizer.ggml.token_type") ==
        std::vector<std::int32_t>{1, 1, 1, 5, 1, 1, 5, 4, 5});
  CHECK(file.at<Strings>("tokenizer.ggml.merges") == Strings{"a b", "\u0120 ab"});
  CHECK_FALSE(file.at<bool>("tokenizer.ggml.add_eos_token"));
  for (const char* const key : {"bos", "eos", "padding", "eot", "eom", "unknown"})
    CHECK_FALSE(file.has(concat("tokenizer.ggml.", key, "_token_id")));

  const std::pair<const char*, std::int32_t> looks[] = {
      {"<pad>", 3},     {"<mask>", 3},   {"<|x|>", 3},     {"<\uFF5Cx\uFF5C>", 3},
      {"<unused7>", 3}, {"<pad", 4},     {"<mask>x", 4},   {"mask>", 4},
      {"<|x", 4},       {"x|>", 4},      {"<\uFF5Cx", 4},  {"x\uFF5C>", 4},
      {"<unused7", 4},  {"unused7>", 4}, {"<|x\uFF5C>", 4}};
  for (const auto& look : looks) {
    const std::string content = look.first;
    CAPTURE(content);
    json["added_tokens"][0]["content"] = content;
    CHECK(written(tokenizer_of(json), 8).at<std::vector<std::int32_t>>("tokenizer.ggml.token_type")[7] == look.second);
  }
}

TEST_CASE("gguf metadata: tokens have their kinds, and holes are filled up to the head's rows") {
  io::Json json = bytes_json();
  for (const auto& [id, content] : {std::pair(260, "<|fim_prefix|>"), {261, "<tool_call>"}})
    json["added_tokens"].push_back({{"id", id},
                                    {"content", content},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", false}});
  const auto file = written(tokenizer_of(json), 264, {.stop_ids = {257}});
  const auto tokens = file.at<std::vector<std::string>>("tokenizer.ggml.tokens");
  const auto kinds = file.at<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  REQUIRE(tokens.size() == 264);
  CHECK(kinds[0] == 1);
  CHECK(tokens[256] == "<|im_start|>");
  CHECK(kinds[256] == 3);
  CHECK(kinds[260] == 3);  // as llama.cpp's converter, by its looks
  CHECK(kinds[261] == 4);
  CHECK(tokens[263] == "[PAD263]");
  CHECK(kinds[263] == 5);
  CHECK(file.at<std::string>("tokenizer.ggml.model") == "gpt2");
  CHECK_FALSE(file.at<bool>("tokenizer.ggml.add_bos_token"));
  CHECK(holds(refused(json, 255), "has 256 tokens, but the model's embedding 255 rows"));
  const test::Quiet quiet;
  CHECK(written(tokenizer_of(json), 261).at<std::vector<std::string>>("tokenizer.ggml.tokens").size() == 261);
  CHECK(quiet.text ==
        "tokenizer.json: the added token \"<tool_call>\" is left out: the model's embedding has 261 rows\n");
}

TEST_CASE("gguf metadata: ends of answers are eos, eot and eom, and one more is told") {
  const test::Quiet quiet;
  const auto file = written(tokenizer_of(bytes_json()), 260,
                            {.chat_template = "{{ x }}", .stop_ids = {257, 256, 258, 259}, .bos_id = 5});
  const auto id = [&](const char* name) {
    return file.get<std::int32_t>(concat("tokenizer.ggml.", name, "_token_id")).value_or(-1);
  };
  CHECK(id("bos") == 5);
  CHECK(id("eos") == 257);
  CHECK(id("eot") == 256);
  CHECK(id("eom") == 258);
  CHECK(id("padding") == -1);
  CHECK(file.at<std::string>("tokenizer.chat_template") == "{{ x }}");
  CHECK(quiet.text == "tokenizer.json: answers also end with the token 259, for which GGUF has no key\n");
  written(tokenizer_of(bytes_json()), 260, {.stop_ids = {257, 256, 258, 3, 259}});
  CHECK(quiet.text ==
        "tokenizer.json: answers also end with the token 259, for which GGUF has no key\n"
        "tokenizer.json: answers also end with the token 3, for which GGUF has no key\n"
        "tokenizer.json: answers also end with the token 259, for which GGUF has no key\n");
  CHECK(refused(bytes_json(), 260, {.stop_ids = {260}}) ==
        "tokenizer.json: the id 260 of eos is none of the 260 tokens");
  CHECK(refused(bytes_json(), 300, {.stop_ids = {257, 300}}) ==
        "tokenizer.json: the id 300 of eot is none of the 300 tokens");
  CHECK(refused(bytes_json(), 300, {.stop_ids = {257, 299, -1}}) ==
        "tokenizer.json: the id -1 of eom is none of the 300 tokens");
  CHECK(refused(bytes_json(), 260, {.bos_id = 260}) == "tokenizer.json: the id 260 of bos is none of the 260 tokens");
  CHECK_FALSE(written(tokenizer_of(bytes_json()), 260).has("tokenizer.chat_template"));
}

TEST_CASE("gguf metadata: tokens around texts are bos and eos, or refused") {
  io::Json json = bytes_json();
  const auto frame = [&](const std::vector<int>& before, const std::vector<int>& after) {
    io::Json single = io::Json::array(), tokens = io::Json::object();
    const auto put = [&](int id) {
      const std::string name = "t" + std::to_string(id);
      single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
      tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
    };
    for (const int id : before) put(id);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    for (const int id : after) put(id);
    json["post_processor"] = {
        {"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", tokens}};
  };
  frame({256}, {257});
  const auto own = tokenizer_of(json);
  const auto file = written(own, 260, {.stop_ids = {257}, .bos_id = 5});
  CHECK(file.at<std::int32_t>("tokenizer.ggml.bos_token_id") == 256);  // the tokenizer's word counts
  CHECK(file.at<bool>("tokenizer.ggml.add_bos_token"));
  CHECK(file.at<bool>("tokenizer.ggml.add_eos_token"));
  const auto read = Tokenizer::from_gguf(file);
  CHECK(read.opening() == std::vector<std::int32_t>{256});
  CHECK(read.closing() == std::vector<std::int32_t>{257});
  check_same_ids(own, read);
  CHECK(holds(
      refused(json, 260, {.stop_ids = {258}}),
      "the tokenizer puts other tokens than eos around texts, which a GGUF file can't say; expected none, or eos"));
  frame({256, 257}, {});
  const std::string other =
      "the tokenizer puts other tokens than bos around texts, which a GGUF file can't say; expected none, or bos";
  CHECK(refused(json, 260) == "tokenizer.json: " + other);
  frame({256}, {});
  const test::TempFolder temp;
  io::write_json(temp / "tokenizer.json", json);
  io::write_file(temp / "tokenizer_config.json", R"({"bos_token": "<|im_end|>"})");
  CHECK(message_of<FormatError>([&] { written(Tokenizer::from_folder(temp.path()), 260); }) ==
        (temp / "tokenizer.json").native() + ": " + other);
  io::write_file(temp / "tokenizer_config.json", R"({"bos_token": "<|im_start|>", "pad_token": "<think>"})");
  const auto named = written(Tokenizer::from_folder(temp.path()), 260, {.bos_id = 5});
  CHECK(named.at<std::int32_t>("tokenizer.ggml.bos_token_id") == 256);
  CHECK(named.at<std::int32_t>("tokenizer.ggml.padding_token_id") == 258);
  CHECK_FALSE(named.at<bool>("tokenizer.ggml.add_eos_token"));
}

TEST_CASE("gguf metadata: a template or a token that is no text, and tokens that take spaces, are refused") {
  CHECK(holds(refused(bytes_json(), 260, {.chat_template = "a\xFF"}),
              "the chat template is not valid UTF-8 at byte 1, which a GGUF file can't say"));
  CHECK(holds(refused(bytes_json(), 260, {.chat_template = std::string("a\0b", 3)}),
              "the chat template has a zero byte, byte 1"));
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    io::Json json = bytes_json();
    json["added_tokens"][1][flag] = true;
    CHECK(holds(refused(json), concat("tokenizer.json: the added token \"<|im_end|>\" has ", flag,
                                      ", which a GGUF file can't say; expected tokens that are found wherever they "
                                      "stand")));
  }
  io::Json json = bytes_json();
  json["added_tokens"][3]["content"] = std::string("a\0b", 3);
  CHECK(refused(json) ==
        "tokenizer.json: the token 259 has a zero byte, byte 1, which a GGUF file can't say; expected none");
}

TEST_CASE("gguf metadata: a sentencepiece model that merges keeps pieces, scores and its first space") {
  using Kind = tokenizer::SentencePiece::Kind;
  const auto model = [](bool leading_space) {
    return tokenizer::sentencepiece_proto({{"<unk>", 0, Kind::unknown},
                                           {"<s>", 0, Kind::control},
                                           {"</s>", 0, Kind::control},
                                           {"c", -5, Kind::normal},
                                           {"\u2581a", -1.5f, Kind::normal},
                                           {"\u2581", -2, Kind::normal},
                                           {"a", -3, Kind::normal},
                                           {"b", -4, Kind::normal},
                                           {"b\u2581a", 0, Kind::user_defined}},
                                          leading_space);
  };
  const test::TempFolder temp;
  for (const bool leading_space : {true, false}) {
    io::write_file(temp / "tokenizer.model", std::string_view(model(leading_space)));
    const auto own = Tokenizer::from_file(temp / "tokenizer.model");
    const auto file = written(own, 12, {.bos_id = 5});
    CHECK(file.at<std::string>("tokenizer.ggml.model") == "llama");
    CHECK(file.at<std::string>(pre_key) == "default");
    CHECK(file.at<std::int32_t>("tokenizer.ggml.bos_token_id") == 1);
    CHECK(file.at<std::int32_t>("tokenizer.ggml.eos_token_id") == 2);
    CHECK(file.at<bool>("tokenizer.ggml.add_bos_token"));
    CHECK_FALSE(file.at<bool>("tokenizer.ggml.add_eos_token"));
    CHECK(file.at<bool>("tokenizer.ggml.add_space_prefix") == leading_space);
    CHECK(file.at<std::int32_t>("tokenizer.ggml.unknown_token_id") == 0);
    const auto tokens = file.at<std::vector<std::string>>("tokenizer.ggml.tokens");
    CHECK(tokens == std::vector<std::string>{"<unk>", "<s>", "</s>", "c", "\u2581a", "\u2581", "a", "b",
                                             "b a",  // found in texts as they are
                                             "[PAD9]", "[PAD10]", "[PAD11]"});
    CHECK(file.at<std::vector<float>>("tokenizer.ggml.scores") ==
          std::vector<float>{0, 0, 0, -5, -1.5f, -2, -3, -4, 0, -10000, -10000, -10000});
    CHECK(file.at<std::vector<std::int32_t>>("tokenizer.ggml.token_type") ==
          std::vector<std::int32_t>{2, 3, 3, 1, 1, 1, 1, 1, 4, 5, 5, 5});
    const auto read = Tokenizer::from_gguf(file);
    CHECK(read.bos() == own.bos());
    for (const char* text : {"a ab", "b a<s>ac", " aa"}) CHECK(own.encode(text).ids == read.encode(text).ids);
  }
  const auto told = [&](const char* config, bool in_file, bool expected) {
    io::write_file(temp / "tokenizer_config.json", std::string_view(config));
    io::write_file(temp / "tokenizer.model", std::string_view(model(in_file)));
    const test::Quiet quiet;
    CHECK(written(Tokenizer::from_folder(temp.path()), 12).at<bool>("tokenizer.ggml.add_space_prefix") == expected);
    return quiet.text;
  };
  const auto warning = [&](const char* before) {
    return concat((temp / "tokenizer.model").native(), ": this tokenizer puts a space before ", before,
                  ", a GGUF file's before every text behind a special token: ids there may differ\n");
  };
  for (const bool in_file : {true, false}) {
    CHECK(told(R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})", in_file, true) ==
          warning("the first text alone"));
    CHECK(told(R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})", in_file, true) ==
          warning("texts without one alone"));
    CHECK(told(R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})", in_file, false).empty());
    CHECK(told("{}", in_file, in_file).empty());
  }
}

TEST_CASE("gguf metadata: tokens that are added to a sentencepiece model take its words' places, not its marks'") {
  using Kind = tokenizer::SentencePiece::Kind;
  const test::TempFolder temp;
  io::write_file(temp / "tokenizer.model", tokenizer::sentencepiece_proto({{"<s>", 0, Kind::control},
                                                                           {"</s>", 0, Kind::control},
                                                                           {"a", -1, Kind::normal},
                                                                           {"<unk>", 0, Kind::unknown},
                                                                           {"\u2581", -2, Kind::normal},
                                                                           {"<old>", -0.5f, Kind::user_defined},
                                                                           {"b", -3, Kind::normal}},
                                                                          false));
  io::write_file(temp / "tokenizer_config.json",
                 R"({"added_tokens_decoder": {"7": {"content": "<tool>", "special": false},
                                              "8": {"content": "▁▁", "special": false}}, "pad_token": "<p>",
                     "unk_token": "<unk>", "additional_special_tokens": ["<old>", "b", "<new>"]})");
  const auto file = written(Tokenizer::from_folder(temp.path()), 12);
  CHECK(file.at<std::vector<std::string>>("tokenizer.ggml.tokens") ==
        std::vector<std::string>{"<s>", "</s>", "a", "<unk>", "\u2581", "<old>", "b", "<tool>", "  ", "<p>", "<new>",
                                 "[PAD11]"});
  CHECK(file.at<std::vector<float>>("tokenizer.ggml.scores") ==
        std::vector<float>{0, 0, -1, 0, -2, -1000, -1000, -1000, -1000, -1000, -1000, -10000});
  CHECK(file.at<std::vector<std::int32_t>>("tokenizer.ggml.token_type") ==
        std::vector<std::int32_t>{3, 3, 1, 2, 1, 3, 3, 4, 4, 3, 3, 5});
  const auto id = [&](const char* name) { return file.at<std::int32_t>(concat("tokenizer.ggml.", name, "_token_id")); };
  CHECK(id("bos") == 0);
  CHECK(id("eos") == 1);
  CHECK(id("unknown") == 3);
  CHECK(id("padding") == 9);
}

TEST_CASE("gguf metadata: a trained sentencepiece model has the same ids") {
  const auto own = Tokenizer::from_file(test::tokenizer_data("pieces_bpe.model"));
  const auto read = Tokenizer::from_gguf(written(own, own.vocab_size() + 5));
  int wrong = 0;
  for (const std::string& text : test::texts()) wrong += own.encode(text, true).ids != read.encode(text, true).ids;
  CHECK(wrong == 0);
}

TEST_CASE("gguf metadata: other sentencepiece models are refused") {
  const auto message = [](const Tokenizer& tokenizer) {
    return message_of<FormatError>([&] { written(tokenizer, tokenizer.vocab_size()); });
  };
  CHECK(message(Tokenizer::from_file(test::tokenizer_data("pieces_unigram.model"))) ==
        test::tokenizer_data("pieces_unigram.model") +
            ": the sentencepiece model is no BPE model, which a GGUF file can't say; expected one that merges pieces");
  // Of a message that comes twice the fields are joined.
  const auto normalizing = [&](std::uint32_t field, auto&& put) {
    tokenizer::detail::ProtoWriter normalizer, model;
    put(normalizer, field);
    model.put_bytes(3, normalizer.bytes());
    const test::TempFolder temp;
    io::write_file(temp / "tokenizer.model", io::read_file(test::tokenizer_data("pieces_bpe.model")) + model.bytes());
    return message(Tokenizer::from_file(temp / "tokenizer.model"));
  };
  test::CharsmapFile charsmap;
  charsmap.add("\u00C4", "A");
  CHECK(holds(normalizing(4, [](auto& writer, std::uint32_t field) { writer.put_integer(field, 1); }),
              "the sentencepiece model strips spaces, which a GGUF file can't say; expected remove_extra_whitespaces"));
  CHECK(
      holds(normalizing(2, [&](auto& writer, std::uint32_t field) { writer.put_bytes(field, charsmap.bytes()); }),
            "the sentencepiece model rewrites characters, which a GGUF file can't say; expected normalizer identity"));
}

}  // namespace gguf_metadata_test
