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

TEST_CASE("gguf metadata: the pre-tokenizer is named by what it does, with its normaliser and ignore_merges") {
  const auto name_of = [](const io::Json& json) {
    const auto own = tokenizer_of(json);
    const auto file = written(own, 300);
    check_same_ids(own, Tokenizer::from_gguf(file));
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
              "GGUF file can't say; expected one of smollm, gpt-2, qwen2"));
  json["model"]["ignore_merges"] = false;
  json["pre_tokenizer"] = digits_and_words();
  CHECK(name_of(json) == "smollm");
  json["pre_tokenizer"] = digits_and_words()["pretokenizers"][1];
  CHECK(name_of(json) == "gpt-2");
  json["pre_tokenizer"]["add_prefix_space"] = true;
  CHECK(holds(refused(json), "has no name in llama.cpp"));
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
  CHECK(holds(refused(json, 261), "has 262 tokens, but the model's embedding 261 rows"));
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
  CHECK(quiet.said("tokenizer.json: answers also end with the token 259, for which GGUF has no key"));
  CHECK(holds(refused(bytes_json(), 260, {.stop_ids = {260}}), "the id 260 of eos is none of the 260 tokens"));
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
  const auto file = written(own, 260, {.stop_ids = {257}});
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
  CHECK(holds(refused(json, 260), "puts other tokens than bos around texts"));
}

TEST_CASE("gguf metadata: a template or a token that is no text, and tokens that take spaces, are refused") {
  CHECK(holds(refused(bytes_json(), 260, {.chat_template = "a\xFF"}),
              "the chat template is not valid UTF-8 at byte 1, which a GGUF file can't say"));
  CHECK(holds(refused(bytes_json(), 260, {.chat_template = std::string("a\0b", 3)}),
              "the chat template has a zero byte, byte 1"));
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    io::Json json = bytes_json();
    json["added_tokens"][1][flag] = true;
    CHECK(holds(refused(json), concat("the added token \"<|im_end|>\" has ", flag, ", which a GGUF file can't say")));
  }
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
    const auto file = written(own, 12);
    CHECK(file.at<std::string>("tokenizer.ggml.model") == "llama");
    CHECK(file.at<bool>("tokenizer.ggml.add_space_prefix") == leading_space);
    CHECK(file.at<std::int32_t>("tokenizer.ggml.unknown_token_id") == 0);
    const auto tokens = file.at<std::vector<std::string>>("tokenizer.ggml.tokens");
    CHECK(tokens[8] == "b a");  // found in texts as they are
    CHECK(tokens[11] == "[PAD11]");
    CHECK(file.at<std::vector<float>>("tokenizer.ggml.scores")[4] == -1.5f);
    CHECK(file.at<std::vector<std::int32_t>>("tokenizer.ggml.token_type") ==
          std::vector<std::int32_t>{2, 3, 3, 1, 1, 1, 1, 1, 4, 5, 5, 5});
    const auto read = Tokenizer::from_gguf(file);
    CHECK(read.bos() == own.bos());
    for (const char* text : {"a ab", "b a<s>ac", " aa"}) CHECK(own.encode(text).ids == read.encode(text).ids);
  }
  io::write_json(temp / "tokenizer_config.json", {{"tokenizer_class", "LlamaTokenizer"}, {"legacy", false}});
  io::write_file(temp / "tokenizer.model", std::string_view(model(true)));
  const test::Quiet quiet;
  CHECK(written(Tokenizer::from_folder(temp.path()), 12).at<bool>("tokenizer.ggml.add_space_prefix"));
  CHECK(quiet.said("this tokenizer puts a space before the first text alone, a GGUF file's before every text behind"));
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
  CHECK(holds(message(Tokenizer::from_file(test::tokenizer_data("pieces_unigram.model"))), "is no BPE model"));
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
  CHECK(holds(normalizing(2, [&](auto& writer, std::uint32_t field) { writer.put_bytes(field, charsmap.bytes()); }),
              "the sentencepiece model rewrites characters"));
}

}  // namespace gguf_metadata_test
