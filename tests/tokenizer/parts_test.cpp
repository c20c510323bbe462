#include "lora/tokenizer/parts.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace tokenizer_parts_test {

using namespace lora;
using test::message_of;
using tokenizer::SentencePiece;
using tokenizer::Tokenizer;
using Kind = SentencePiece::Kind;

namespace {

std::unique_ptr<tokenizer::detail::TokenizerParts> parts_of(const char* added) {
  const std::string text = R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
      "model": {"vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": )" +
                           std::string(added) + "}";
  return tokenizer::detail::parts_of_document(tokenizer::parse_tokenizer_json(text, "t.json"));
}

std::string text_of(const io::Json& json) { return io::to_text(json, -1); }

}  // namespace

TEST_CASE("tokenizer_parts: ids of added tokens go up to the last that a vocabulary may have") {
  const auto told = [](std::int32_t id) {
    return message_of([&] { tokenizer::detail::check_id({.id = id, .content = "<x>"}, "f"); });
  };
  CHECK(told(0) == "nothing was thrown");
  CHECK(told(1048575) == "nothing was thrown");
  CHECK(told(1048576) == "f: the added token \"<x>\" has the id 1048576; expected 0 to 1048575");
  CHECK(told(-1) == "f: the added token \"<x>\" has the id -1; expected 0 to 1048575");
}

TEST_CASE("tokenizer_parts: each of the spaces before punctuation goes, no other") {
  const std::pair<const char*, const char*> cases[] = {
      {"a . b", "a. b"},   {"a ? b", "a? b"},  {"a ! b", "a! b"},    {"a , b", "a, b"},   {"a ' b", "a'b"},
      {"do n't", "don't"}, {"I 'm", "I'm"},    {"it 's", "it's"},    {"I 've", "I've"},   {"we 're", "we're"},
      {"a ; b", "a ; b"},  {"a : b", "a : b"}, {"we 'll", "we 'll"}, {"  .  .", " . ."},  {" . . .", "..."},
      {"a 'b", "a 'b"},    {"", ""},           {" n 't", " n 't"},   {"x ' ' y", "x'' y"}};
  for (const auto& item : cases) {
    const std::string from = item.first, to = item.second;
    CAPTURE(from);
    CHECK(tokenizer::detail::without_extra_spaces(from) == to);
  }
}

TEST_CASE("tokenizer_parts: what tokens are added, with all that says how they are found") {
  const auto parts = parts_of(
      R"([{"id": 2, "content": "<x>", "special": true, "lstrip": true}, {"id": 1, "content": "b", "rstrip": true},
          {"id": 3, "content": "<y>", "normalized": true, "single_word": true}])");
  CHECK(text_of(parts->added_tokens_json()) ==
        R"([{"id":1,"content":"b","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,)"
        R"("special":false},{"id":2,"content":"<x>","single_word":false,"lstrip":true,"rstrip":false,)"
        R"("normalized":false,"special":true},{"id":3,"content":"<y>","single_word":true,"lstrip":false,)"
        R"("rstrip":false,"normalized":true,"special":false}])");
  CHECK(parts->has(3));
  CHECK_FALSE(parts->has(4));
  CHECK(parts->find("<x>") == 2);
  CHECK(parts->find("a") == 0);
  CHECK_FALSE(parts->find("<z>"));
  parts->make_special({});
  parts->make_special(3);
  parts->make_special(0);
  CHECK(parts->added.at(3).special);
  CHECK(parts->added.at(0).special);
  CHECK_FALSE(parts->added.at(1).special);
  parts->declare({.id = -1, .content = "<x>", .special = false, .rstrip = true});
  CHECK(parts->added.at(2).special);  // once special, always
  CHECK(parts->added.at(2).rstrip);
  CHECK_FALSE(parts->added.at(2).lstrip);
  parts->leave_id();
  parts->declare({.id = -1, .content = "<z>"});
  CHECK(parts->find("<z>") == 5);
  parts->finish();
  CHECK(parts->size == 6);
}

TEST_CASE("tokenizer_parts: a new token needs an id that is free, and one below the last") {
  const std::string text = R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
      "model": {"vocab": {"a": 0, "b": 2}, "merges": []}})";
  const auto parts = tokenizer::detail::parts_of_document(tokenizer::parse_tokenizer_json(text, "t.json"));
  const auto told = [&](std::int32_t id, const char* content) {
    return message_of([&] { parts->declare({.id = id, .content = content}); });
  };
  for (const std::int32_t id : {-1, 0, 2})
    CHECK(told(id, "<x>") ==
          "t.json: the new token \"<x>\" would get the id 2, the number of tokens, but in the vocabulary that is "
          "another token");
  CHECK(told(7, "") == "t.json: the added token \"\" has the id 7 and no content");
  CHECK(parts->added.empty());
  CHECK(told(1048574, "<x>") == "nothing was thrown");
  CHECK(told(-1, "<y>") == "nothing was thrown");
  CHECK(parts->find("<y>") == 1048575);
  CHECK(told(-1, "<z>") == "t.json: more than 1048576 tokens");
  parts->finish();
  CHECK(parts->size == 1048576);
}

TEST_CASE("tokenizer_parts: a token that is found in normalized text is normalized, and stays in pieces if it should") {
  const std::string text = R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
      "normalizer": {"type": "NFC"}, "model": {"vocab": {"a": 0, "b": 1}, "merges": []},
      "added_tokens": [{"id": 2, "content": "e\u0301", "special": true, "normalized": true},
                       {"id": 3, "content": "o\u0301", "special": true}]})";
  for (const bool split : {false, true}) {
    const auto parts = tokenizer::detail::parts_of_document(tokenizer::parse_tokenizer_json(text, "t.json"));
    CHECK(parts->added.at(2).content == "\u00E9");
    CHECK(parts->added.at(3).content == "o\u0301");
    CHECK(parts->find("e\u0301") == 2);
    parts->split_special_tokens = split;
    parts->finish();
    const auto found = [](const tokenizer::AddedTokenFinder& finder, std::string_view where) {
      std::string ids;
      finder.split(
          where, [](auto...) {}, [&](std::int32_t id, auto...) { ids += concat(id, " "); });
      return ids;
    };
    const std::string all = "\u00E9 e\u0301 \u00F3 o\u0301";
    CHECK(found(parts->normalized, all) == (split ? "" : "2 "));
    CHECK(found(parts->raw, all) == (split ? "" : "3 "));
  }
}

TEST_CASE("tokenizer_parts: what frames a text, ends it or cuts it is in the fingerprint of the added tokens") {
  std::set<std::uint64_t> prints;
  const auto add = [&](auto&& change) {
    const auto parts = parts_of(R"([{"id": 2, "content": "<x>"}])");
    change(*parts);
    prints.insert(parts->fingerprints().added_tokens);
  };
  add([](auto&) {});
  add([](auto& parts) { parts.pad = 1; });  // nothing in a text
  CHECK(prints.size() == 1);
  add([](auto& parts) { parts.frame.before = {1}; });
  add([](auto& parts) { parts.frame.after = {1}; });
  add([](auto& parts) { parts.bos = 1; });
  add([](auto& parts) { parts.eos = 1; });
  add([](auto& parts) { parts.split_special_tokens = true; });
  CHECK(prints.size() == 6);
}

TEST_CASE("tokenizer_parts: tokens that were forgotten take no ids") {
  const auto parts = parts_of(R"([{"id": 9, "content": "<x>"}, {"id": 3, "content": "<y>"}])");
  CHECK(parts->find("<y>") == 3);
  parts->forget_added();
  CHECK(parts->added.empty());
  CHECK_FALSE(parts->find("<x>"));
  parts->declare({.id = 2, .content = "<new>"});
  CHECK(parts->find("<new>") == 2);
  std::string told;
  const auto former = log::set_sink([&](log::Level, std::string_view text) { told += text; });
  parts->finish();
  log::set_sink(former);
  CHECK(told.empty());
  CHECK(parts->size == 3);
}

TEST_CASE("tokenizer_parts: a tokenizer without settings of its own is saved with some") {
  const std::vector<SentencePiece> pieces = {{"<unk>", 0, Kind::unknown}, {"<s>", 0, Kind::control},
                                             {"</s>", 0, Kind::control},  {"a", -1, Kind::normal},
                                             {"b", -2, Kind::normal},     {"c", -3, Kind::normal}};
  const auto config = [&](bool space, auto&& change) {
    auto parts = tokenizer::detail::parts_of_pieces(tokenizer::sentencepiece_proto(pieces, space), "m");
    change(*parts);
    return text_of(tokenizer::detail::tokenizer_config_json(*parts));
  };
  CHECK(config(false, [](auto&) {}) ==
        R"({"bos_token":"<s>","eos_token":"</s>","add_bos_token":true,"add_eos_token":false,"legacy":true,)"
        R"("add_prefix_space":false,"clean_up_tokenization_spaces":false,"tokenizer_class":"LlamaTokenizer"})");
  CHECK(config(false,
               [](auto& parts) {
                 parts.bos.reset();
                 parts.pad = 4;
                 parts.make_special(4);
                 parts.make_special(5);
                 parts.make_special(3);
                 parts.frame = {{}, {2}};
                 parts.chat_template = "t";
               }) ==
        R"({"eos_token":"</s>","pad_token":"b","additional_special_tokens":["a","c"],"add_bos_token":false,)"
        R"("add_eos_token":true,"legacy":true,"add_prefix_space":false,"clean_up_tokenization_spaces":false,)"
        R"("tokenizer_class":"LlamaTokenizer","chat_template":"t"})");
  const auto padded = tokenizer::detail::parts_of_pieces(
      tokenizer::sentencepiece_proto({{"<unk>", 0, Kind::unknown}, {"<pad>", 0, Kind::control}}, false), "m");
  CHECK(padded->pad == 1);
  CHECK_FALSE(padded->bos);
  CHECK_FALSE(padded->eos);
  const auto plain = parts_of(R"([{"id": 2, "content": "<x>"}])");
  plain->bos = 1;
  plain->eos = 2;
  CHECK(text_of(tokenizer::detail::tokenizer_config_json(*plain)) ==
        R"({"bos_token":"b","eos_token":"<x>","clean_up_tokenization_spaces":false,)"
        R"("tokenizer_class":"PreTrainedTokenizerFast"})");
}

TEST_CASE("tokenizer_parts: a vocabulary of tiktoken is told by its first line") {
  const auto told = [](const std::string& content) {
    return message_of([&] { tokenizer::detail::parts_of_pieces(content, "m"); });
  };
  const std::string tiktoken =
      "m: a vocabulary of the tiktoken library, without regular expression and special tokens; the tokenizer.json of "
      "the same model has them: put it into the same folder";
  for (const char* const content : {"IQ== 0\n", "IQ== 0", "Az09+/= 12345\r\nx", "a 1"}) {
    CAPTURE(content);
    CHECK(told(content) == tiktoken);
  }
  for (const char* const content : {"IQ==\n", " 0\n", "IQ== \n", "IQ== x\n", "I_== 0\n", "IQ== 0 1\n", "\n"}) {
    CAPTURE(content);
    CHECK(test::holds(told(content), "m: not a sentencepiece model"));
  }
  CHECK(told(std::string(198, 'a') + " 1") == tiktoken);
  CHECK(told(std::string(199, 'a') + " 1") != tiktoken);
}

TEST_CASE("tokenizer_parts: a template is taken from the first of the files that has one") {
  const test::TempFolder folder;
  const auto read = [&](const char* config) {
    const io::Json json = io::parse_json(config, "c.json");
    return tokenizer::detail::read_chat_templates(folder.path(), io::JsonView(json, "c.json")).plain;
  };
  CHECK(read("{}").empty());
  CHECK(read(R"({"chat_template": null})").empty());
  CHECK(read(R"({"chat_template": "t"})") == "t");
  CHECK(read(R"({"chat_template": [{"name": "a", "template": "1"}, {"name": "default", "template": "2"},
                                   {"name": "default", "template": "3"}]})") == "3");
  CHECK(read(R"({"chat_template": []})").empty());
  CHECK(read(R"({"chat_template": [{"name": "tool_use", "template": "1"}]})").empty());
  CHECK(message_of([&] { read(R"({"chat_template": 3})"); }) == "c.json: \"chat_template\" must be a string, found 3");
  CHECK(message_of([&] { read(R"({"chat_template": [{"template": "1"}]})"); }) ==
        "c.json: chat_template[0]: \"name\" is missing");
  io::write_file(folder / "chat_template.json", R"({"chat_template": [{"name": "default", "template": "j"}]})");
  CHECK(read("{}") == "j");
  CHECK(read(R"({"chat_template": "t"})") == "t");
  io::write_file(folder / "chat_template.jinja", "");
  CHECK(read(R"({"chat_template": "t"})").empty());
}

TEST_CASE(
    "tokenizer_parts: a template for tools is found in the list and in the folder, unless it is the default one") {
  const test::TempFolder folder;
  const auto read = [&](const char* config) {
    const io::Json json = io::parse_json(config, "c.json");
    return tokenizer::detail::read_chat_templates(folder.path(), io::JsonView(json, "c.json"));
  };
  const char* const list = R"({"chat_template": [{"name": "tool_use", "template": "1"},
                                                 {"name": "default", "template": "2"}]})";
  CHECK(read(list).plain == "2");
  CHECK(read(list).one_for_tools);
  CHECK_FALSE(
      read(R"({"chat_template": [{"name": "tool_use", "template": "2"}, {"name": "default", "template": "2"}]})")
          .one_for_tools);
  CHECK_FALSE(read(R"({"chat_template": [{"name": "rag", "template": "1"}, {"name": "default", "template": "2"}]})")
                  .one_for_tools);
  CHECK_FALSE(read(R"({"chat_template": [{"name": "tool_use", "template": ""}, {"name": "default", "template": "2"}]})")
                  .one_for_tools);
  CHECK_FALSE(read(list).others_apart);
  io::write_file(folder / "chat_template.jinja", "3");
  CHECK_FALSE(read(list).one_for_tools);  // files take the place of the list
  const io::Path others = folder / "additional_chat_templates";
  io::create_folder(others);
  CHECK(read(list).plain == "3");
  io::write_file(others / "default.txt", "4");
  CHECK(read(list).plain == "3");
  io::write_file(others / "default.jinja", "5");
  CHECK(read(list).plain == "5");
  CHECK(read(list).plain_apart);
  CHECK_FALSE(read(list).others_apart);
  io::write_file(others / "rag.jinja", "6");
  CHECK(read(list).others_apart);
  CHECK_FALSE(read(list).one_for_tools);
  io::write_file(others / "tool_use.jinja", "7");
  CHECK(read(list).one_for_tools);
  CHECK(read(list).plain == "5");
  io::remove_file(others / "default.jinja");
  io::remove_file(folder / "chat_template.jinja");
  CHECK(read(list).plain.empty());  // of several none is the default
}

TEST_CASE("tokenizer_parts: every file of a tokenizer is copied and counted") {
  const test::TempFolder folder;
  io::create_folder(folder / "a");
  io::write_file(folder / "a/tokenizer.json",
                 R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
                     "model": {"vocab": {"a": 0}, "merges": []}})");
  io::write_file(folder / "a/chat_template.jinja", "12345");
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
    io::write_file(folder / "a" / name, "{}");
  for (const char* const name : {"tokenizer.model", "vocab.json", "merges.txt", "chat_template.json"})
    io::write_file(folder / "a" / name, name);
  io::write_file(folder / "a/vocab.txt", "no file of a tokenizer");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder / "a");
  tokenizer.save(folder / "b");
  std::uint64_t bytes = 0;
  for (const char* const name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json"}) {
    CAPTURE(name);
    CHECK(io::read_file(folder / "a" / name) == io::read_file(folder / "b" / name));
    bytes += std::filesystem::file_size(folder / "a" / name);
  }
  CHECK_FALSE(io::is_there(folder / "b/vocab.txt"));
  CHECK(tokenizer.saved_bytes() == bytes);
  CHECK(tokenizer.where() == (folder / "a/tokenizer.json").native());
  io::remove_file(folder / "a/chat_template.jinja");
  CHECK(tokenizer.saved_bytes() == bytes - 5);

  std::string told;
  const log::Redirect redirect([&](log::Level, std::string_view line) { told += line; });
  io::write_file(folder / "a/chat_template.jinja", "12345");
  io::create_folder(folder / "a/additional_chat_templates");
  (void)Tokenizer::from_folder(folder / "a");
  CHECK(told.empty());
  io::write_file(folder / "a/additional_chat_templates/rag.jinja", "1");
  (void)Tokenizer::from_folder(folder / "a");
  CHECK(told == concat((folder / "a/additional_chat_templates").native(),
                       ": none but the default template is used and taken along"));
  io::write_file(folder / "a/additional_chat_templates/default.jinja", "678");
  const Tokenizer apart = Tokenizer::from_folder(folder / "a");
  apart.save(folder / "c");
  CHECK(io::read_file(folder / "c/chat_template.jinja") == "678");
  CHECK(Tokenizer::from_folder(folder / "c").chat_template() == apart.chat_template());
}

}  // namespace tokenizer_parts_test
