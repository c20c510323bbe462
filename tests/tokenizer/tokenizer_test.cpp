#include "lora/tokenizer/tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lora/tokenizer/proto.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_test {

using namespace lora;
using io::Json;
using test::holds;
using test::message_of;
using tokenizer::Tokenizer;

namespace {

using Ids = std::vector<std::int32_t>;

/// A byte-level tokenizer of few tokens: a b ab, a space, the three bytes of U+4E2D, x and y past holes, and <|end|>.
Json small() {
  return io::parse_json(R"({
    "added_tokens": [{"id": 9, "content": "<|end|>", "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "ä": 4, "¸": 5, "Ń": 6, "x": 70, "y": 80},
              "merges": ["a b"]}
  })",
                        "small");
}

Tokenizer load(const Json& document) { return Tokenizer::from_json(document.dump(), "tokenizer.json"); }
std::string message(const Json& document) {
  return message_of([&] { load(document); });
}

/// The message for the small tokenizer with the value at a JSON pointer replaced.
std::string message_with(const char* pointer, const Json& value) {
  Json document = small();
  document[Json::json_pointer(pointer)] = value;
  return message(document);
}

/// Post-processors one after the other, each a template; "x" stands for the id 70.
Json sequence(const std::vector<const char*>& singles) {
  Json processors = Json::array();
  for (const char* const single : singles)
    processors.push_back({{"type", "TemplateProcessing"},
                          {"special_tokens", {{"x", {{"ids", {70}}}}}},
                          {"single", Json::parse(single)}});
  return {{"type", "Sequence"}, {"processors", processors}};
}

}  // namespace

TEST_CASE("tokenizer: a template among other post-processors frames the text") {
  Json document = small();
  document["post_processor"] = sequence(
      {R"([{"Sequence": {"id": "A"}}])",
       R"([{"SpecialToken": {"id": "x"}}, {"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "x"}}])"});
  document["post_processor"]["processors"].push_back({{"type", "ByteLevel"}});
  CHECK(load(document).encode("ab", true).ids == Ids{70, 70, 2, 70});
  CHECK(load(document).encode("ab").ids == Ids{2});
  document["post_processor"] = Json::parse(
      R"({"type": "TemplateProcessing", "special_tokens": {"y": {"ids": [1]}, "x": {"ids": [70, 80]}},
          "single": [{"SpecialToken": {"id": "y"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "x"}}]})");
  CHECK(load(document).encode("ab", true).ids == Ids{1, 2, 70, 80});
}

TEST_CASE("tokenizer: places are those of the text as given, at the beginning of a code point") {
  const auto tokenizer = load(small());
  const auto encoding = tokenizer.encode("ab \u4E2D<|end|>b");
  CHECK(encoding.ids == Ids{2, 3, 4, 5, 6, 9, 1});
  CHECK(encoding.begins == std::vector<std::size_t>{0, 2, 3, 3, 3, 6, 13});
  CHECK(tokenizer.decode(encoding.ids) == "ab \u4E2D<|end|>b");
  CHECK(tokenizer.decode(encoding.ids, true) == "ab \u4E2Db");
  CHECK(tokenizer.encode("").ids.empty());
  CHECK(tokenizer.decode(Ids{}).empty());
}

TEST_CASE("tokenizer: ids of names, and the size of the vocabulary with its holes") {
  const auto tokenizer = load(small());
  CHECK(tokenizer.vocab_size() == 81);
  CHECK(tokenizer.id_of("ab") == 2);
  CHECK(tokenizer.id_of("\u0120") == 3);
  CHECK(tokenizer.id_of("<|end|>") == 9);
  CHECK_FALSE(tokenizer.id_of("c"));
  CHECK_FALSE(tokenizer.id_of(" "));
}

TEST_CASE("tokenizer: text that is no UTF-8 is an error with its place, and ids that no token has become nothing") {
  const auto tokenizer = load(small());
  CHECK(message_of([&] { tokenizer.encode("ab\xFF"); }) == "text is not valid UTF-8 at byte 2");
  CHECK(message_of([&] { tokenizer.encode("\xE4\xB8"); }) == "text is not valid UTF-8 at byte 0");
  CHECK(message_of([&] { tokenizer.encode("12345678\xED\xA0\x80"); }) == "text is not valid UTF-8 at byte 8");
  CHECK(holds(message_of([&] { tokenizer.decode(Ids{0, -1}); }), "no token has the id -1"));
  for (const std::int32_t id : {7, 8, 10, 81, 1 << 30}) CHECK(tokenizer.decode(Ids{0, id, 1}) == "ab");
  CHECK(tokenizer.decode(Ids{4, 5}) == "\uFFFD");
  CHECK(tokenizer.decode(Ids{4, 0, 5, 6}) == "\uFFFDa\uFFFD\uFFFD");
}

TEST_CASE("tokenizer: bytes without a token are left out, or become the unknown token") {
  CHECK(load(small()).encode("acb").ids == Ids{2});
  Json document = small();
  document["model"]["unk_token"] = "b";
  CHECK(load(document).encode("ca").ids == Ids{1, 0});
}

TEST_CASE("tokenizer: threads share one") {
  const auto tokenizer = Tokenizer::from_json(test::tokenizer_json("smollm2"), "smollm2");
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "All human beings are born free and equal in dignity " + std::to_string(i) + "\n";
  const Ids alone = tokenizer.encode(text).ids;
  const Tokenizer fresh = Tokenizer::from_json(test::tokenizer_json("smollm2"), "smollm2");
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) threads.emplace_back([&] { ids = fresh.encode(text).ids; });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) CHECK(ids == alone);
}

TEST_CASE("tokenizer: a folder's files are copied byte for byte") {
  const test::TempFolder folder;
  const auto source = folder / "model", target = folder / "out" / "final_model";
  io::create_folders(source);
  io::write_file(source / "tokenizer.json", small().dump(7) + "\n\n");
  io::write_file(source / "tokenizer_config.json", R"({"eos_token": "<|end|>", "pad_token": {"content": "b"}})");
  io::write_file(source / "chat_template.jinja", "own {{ x }}\n");
  io::write_file(source / "config.json", "{}");
  const auto tokenizer = Tokenizer::from_folder(source);
  CHECK(tokenizer.eos() == 9);
  CHECK_FALSE(tokenizer.bos());
  CHECK(tokenizer.chat_template() == "own {{ x }}\n");
  tokenizer.save(target);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    CHECK(io::read_file(source / name) == io::read_file(target / name));
  CHECK_FALSE(std::filesystem::exists(target / "config.json"));
}

TEST_CASE("tokenizer: the configuration beside a vocabulary") {
  const test::Quiet quiet;
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", small().dump());
  const auto load_with = [&](const char* config) {
    io::write_file(folder / "tokenizer_config.json", config);
    return Tokenizer::from_folder(folder.path());
  };
  CHECK(Tokenizer::from_folder(folder.path()).chat_template().empty());
  CHECK(load_with(R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})")
            .chat_template() == "d");
  const auto more = load_with(R"({"added_tokens_decoder": {"9": {"content": "<|end|>"}, "11": {"content": "<x>"}}})");
  CHECK(more.encode("a<x><|end|>").ids == Ids{0, 10, 9});
  CHECK(more.id_of("x") == 70);
  const auto error = [&](const char* config) { return message_of([&] { load_with(config); }); };
  CHECK(load_with(R"({"eos_token": "</s>"})").eos() == 10);
  CHECK(holds(error(R"({"eos_token": 3})"), "tokenizer_config.json: \"eos_token\" must be a string, found 3"));
  CHECK(holds(error(R"({"added_tokens_decoder": {"-1": {"content": "<x>"}}})"),
              "the added token \"<x>\" has the id -1; expected 0 to"));
  CHECK(load_with(R"({"chat_template": [{"name": "x", "template": "t"}]})").chat_template().empty());
  CHECK(holds(error("[]"), "expected an object"));
  CHECK(holds(error("{"), "tokenizer_config.json:1:"));
}

TEST_CASE("tokenizer: tokenizer.json counts where tokenizer.model lies beside it") {
  using Kind = tokenizer::SentencePiece::Kind;
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.model",
                 tokenizer::sentencepiece_proto({{"<unk>", 0, Kind::unknown}, {"ab", -1, Kind::normal}}, false));
  CHECK(Tokenizer::from_folder(folder.path()).encode("ab").ids == Ids{1});
  io::write_file(folder / "tokenizer.json", small().dump());
  CHECK(Tokenizer::from_folder(folder.path()).encode("ab").ids == Ids{2});
}

TEST_CASE("tokenizer: fingerprints say which part of a tokenizer differs") {
  const auto differing_prints = [](const tokenizer::Fingerprints& a, const tokenizer::Fingerprints& b) {
    std::string parts;
    const auto left = a.named(), right = b.named();
    for (std::size_t i = 0; i < left.size(); ++i)
      if (left[i] != right[i]) parts += concat(parts.empty() ? "" : ", ", left[i].first);
    return parts;
  };
  const auto differing = [&](const Tokenizer& a, const Tokenizer& b) {
    return differing_prints(a.fingerprint(), b.fingerprint());
  };
  const auto changed = [&](const char* pointer, const Json& value) {
    Json document = small();
    document[Json::json_pointer(pointer)] = value;
    return differing(load(small()), load(document));
  };
  CHECK(load(small()).fingerprint() == load(small()).fingerprint());
  CHECK(changed("/version", "1.0") == "");
  CHECK(changed("/model/vocab/x", 13) == "vocabulary");
  CHECK(changed("/model/vocab/ab", 8) == "vocabulary, merges");
  CHECK(changed("/model/merges", Json::array()) == "merges");
  CHECK(changed("/model/merges", Json::array({"a b", "a b"})) == "merges");
  CHECK(changed("/model/ignore_merges", true) == "merges");
  CHECK(changed("/model/unk_token", "b") == "merges");
  CHECK(changed("/added_tokens/0/content", "<|END|>") == "added tokens");
  for (const char* flag : {"special", "normalized", "lstrip", "rstrip", "single_word"})
    CHECK(changed((std::string("/added_tokens/0/") + flag).c_str(), std::string(flag) != "special") == "added tokens");
  CHECK(changed("/post_processor", Json::parse(R"({"type": "TemplateProcessing", "special_tokens":
                {"x": {"ids": [9]}}, "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}]})")) ==
        "added tokens");
  CHECK(changed("/normalizer", nullptr) == "normalizer");
  CHECK(changed("/pre_tokenizer/add_prefix_space", true) == "splitting into words");
  CHECK(changed("/pre_tokenizer/use_regex", false) == "splitting into words");

  const auto pieces = [](std::vector<tokenizer::SentencePiece> list, bool leading_space) {
    const test::TempFolder folder;
    io::write_file(folder / "tokenizer.model", tokenizer::sentencepiece_proto(list, leading_space));
    return Tokenizer::from_folder(folder.path());
  };
  using Kind = tokenizer::SentencePiece::Kind;
  const std::vector<tokenizer::SentencePiece> list = {
      {"<unk>", 0, Kind::unknown}, {"a", -1, Kind::normal}, {"b", -2, Kind::normal}, {"c", -3, Kind::normal}};
  auto scored = list, renamed = list;
  scored[2].score = -4;
  renamed[3].text = "d";
  CHECK(differing(pieces(list, true), pieces(list, true)) == "");
  CHECK(differing(pieces(list, true), pieces(scored, true)) == "merges");
  CHECK(differing(pieces(list, true), pieces(renamed, true)) == "vocabulary");
  CHECK(differing(pieces(list, true), pieces(list, false)) == "normalizer");

  // Each field of the trainer (2) and the normalizer (3) that counts for texts, and neighbors that don't.
  const std::string proto = tokenizer::sentencepiece_proto(list, true);
  const auto with_field = [&](int message, int number, bool is_text) {
    const int tag = number << 3 | (is_text ? 2 : 0);
    std::string field;
    if (tag > 127) field += static_cast<char>((tag & 127) | 128);
    field += static_cast<char>(tag > 127 ? tag >> 7 : tag);
    field += is_text ? std::string("\x01x") : std::string("\x05");
    return tokenizer::detail::sentencepiece_fingerprints(
        proto + static_cast<char>(message << 3 | 2) + static_cast<char>(field.size()) + field, "proto");
  };
  const auto changes = [&](int message, int number, bool is_text) {
    return differing_prints(tokenizer::detail::sentencepiece_fingerprints(proto, "proto"),
                            with_field(message, number, is_text));
  };
  for (const int number : {2, 3, 4, 5}) CHECK(changes(3, number, number == 2) == "normalizer");
  for (const int number : {1, 6}) CHECK(changes(3, number, true) == "");
  for (const int number : {3, 24, 35}) CHECK(changes(2, number, false) == "splitting into words");
  for (const int number : {44, 45, 46, 47, 48}) CHECK(changes(2, number, true) == "splitting into words");
  for (const int number : {4, 34, 36, 43, 49}) CHECK(changes(2, number, false) == "");

  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", small().dump());
  io::write_file(folder / "tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  CHECK(differing(load(small()), Tokenizer::from_folder(folder.path())) == "added tokens");
  // They are kept in files, so their values may not change.
  CHECK(checksum_text(load(small()).fingerprint().merges) == "a725641bfc379f2c");
}

TEST_CASE("tokenizer: a folder without a vocabulary") {
  const test::TempFolder folder;
  CHECK(holds(message_of<IoError>([&] { Tokenizer::from_folder(folder.path()); }),
              "no tokenizer.json and no tokenizer.model in " + folder.path().native()));
  CHECK(holds(message_of<IoError>([&] { Tokenizer::from_file(folder / "tokenizer.json"); }), "cannot open"));
}

TEST_CASE("tokenizer: one read from a file alone is saved as a copy of that file") {
  const test::TempFolder folder;
  io::write_file(folder / "small.json", std::string_view(small().dump()));
  for (const auto& file : {std::filesystem::path(test::tokenizer_data("pieces_bpe.model")), folder / "small.json"}) {
    CAPTURE(file);
    const auto tokenizer = Tokenizer::from_file(file);
    CHECK(tokenizer.saved_bytes() == std::filesystem::file_size(file));
    const auto saved = folder / concat("saved ", file.filename().native());
    tokenizer.save(saved);
    CHECK(io::read_file(saved / file.filename()) == io::read_file(file));
    CHECK_FALSE(io::is_there(saved / "tokenizer_config.json"));
  }
}

TEST_CASE("tokenizer: a broken tokenizer.json is an error that says where") {
  const auto parse = [](std::string_view text) {
    return message_of([&] { Tokenizer::from_json(text, "tokenizer.json"); });
  };
  CHECK(holds(parse(""), "tokenizer.json:1:1"));
  CHECK(holds(parse("{\n \"model\": {]"), "tokenizer.json:2:"));
  CHECK(holds(parse("[]"), "tokenizer.json: must be a JSON object"));
  CHECK(holds(parse("{}"), "tokenizer.json: \"model\" is missing"));
  const std::string whole = small().dump();
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(holds(parse(std::string_view(whole).substr(0, size)), "tokenizer.json:1:"));

  CHECK(holds(message_with("/model/vocab", Json::object()), "the vocabulary is empty"));
  CHECK(holds(message_with("/model/vocab", "ab"), "the model's \"vocab\" must be an object of tokens and ids"));
  for (const Json& merges : {Json("a b"), Json(1), Json(true)})
    CHECK(holds(message_with("/model/merges", merges), "the model's \"merges\" must be an array"));
  CHECK(holds(message_with("/model/vocab/ab", "x"), "the id of token \"ab\" must be an integer, found \"x\""));
  CHECK(holds(message_with("/model/vocab/ab", nullptr), "the id of token \"ab\" must be an integer, found null"));
  CHECK(holds(message_with("/model/vocab/ab", Json::object()),
              "the id of token \"ab\" must be an integer, found an object"));
  CHECK(holds(message_with("/model/vocab/ab", -1), "token \"ab\" has the id -1"));
  CHECK(holds(message_with("/model/vocab/ab", 1e3), "the id of token \"ab\" must be an integer, found 1000"));
  CHECK(holds(message_with("/model/vocab/ab", 18446744073709551615u), "token \"ab\" has the id 9223372036854775807"));
  CHECK(holds(message_with("/model/vocab/ab", 1), "tokens \"b\" and \"ab\" both have the id 1"));
  CHECK(holds(message_with("/model/merges", Json::parse(R"(["a c"])")),
              "merge 0 joins \"a\" and \"c\", but \"c\" is not"));
  CHECK(holds(message_with("/model/merges", Json::parse(R"([["b", "a"]])")), "but \"ba\" is not in the vocabulary"));
  CHECK(holds(message_with("/model/merges", Json::parse(R"(["ab"])")), "merge 0 must be two tokens"));
  CHECK(holds(message_with("/model/merges", Json::parse(R"(["a b", "a b a"])")), "merge 1 must be two tokens"));
  CHECK(holds(message_with("/model/merges", Json::parse(R"([["a"]])")), "merge 0 must be two tokens"));
  CHECK(holds(message_with("/model/merges", Json::parse(R"([["a", "b", "a"]])")), "merge 0 must be two tokens"));
  CHECK(holds(message_with("/model/merges", Json::parse("[1]")), "merge 0 must be two tokens"));
  CHECK(holds(message_with("/added_tokens", 1), "\"added_tokens\" must be an array"));
  CHECK(holds(message_with("/added_tokens/0/id", -1), "\"<|end|>\" has the id -1; expected 0 to"));
  CHECK(holds(message_with("/added_tokens/0/content", ""), "has the id 9 and no content"));
}

TEST_CASE("tokenizer: an added token has the id that the tokenizers library gives it, and a warning tells of another") {
  const auto changed = [](const char* pointer, const Json& value) {
    Json document = small();
    document[Json::json_pointer(pointer)] = value;
    return document;
  };
  const auto id_with = [&](const Json& document, const char* token, const std::string& warning) {
    const test::Quiet quiet;
    const auto id = load(document).id_of(token);
    CHECK_MESSAGE((warning.empty() ? quiet.text.empty() : holds(quiet.text, warning)), quiet.text);
    return id;
  };
  CHECK(id_with(small(), "<|end|>", "") == 9);
  CHECK(id_with(changed("/added_tokens/0/id", 0), "<|end|>",
                "tokenizer.json: the added token \"<|end|>\" is declared with the id 0, but has 9") == 9);
  CHECK(id_with(changed("/added_tokens/0/id", 400), "<|end|>", "is declared with the id 400, but has 9") == 9);
  CHECK(id_with(changed("/added_tokens/0/content", "ab"), "ab", "\"ab\" is declared with the id 9, but has 2") == 2);
  CHECK(id_with(changed("/added_tokens/1", {{"id", 9}, {"content", "<x>"}}), "<x>", "with the id 9, but has 10") == 10);
  CHECK(id_with(changed("/added_tokens/1", {{"id", 12}, {"content", "<|end|>"}}), "<|end|>", "12, but has 9") == 9);
  // In a vocabulary with holes the next free id by the library's count may be a token's.
  Json holes = changed("/model/vocab/x", 9);
  holes["added_tokens"][0]["id"] = 8;
  CHECK(id_with(holes, "<|end|>", "") == 8);
  holes["added_tokens"][0]["id"] = 9;
  CHECK(holds(message(holes),
              "the new token \"<|end|>\" would get the id 9, the number of tokens, but in the vocabulary"));
  const test::Quiet quiet;
  (void)load(changed("/added_tokens", Json::parse(R"([{"id": 20, "content": "<a>"}, {"id": 10, "content": "<b>"},
                                     {"id": 30, "content": "<c>"}, {"id": 40, "content": "<d>"}])")));
  CHECK(quiet.text ==
        "tokenizer.json: the added token \"<a>\" is declared with the id 20, but has 9, as in the tokenizers library "
        "(and 2 more)\n");
}

TEST_CASE("tokenizer: a model that does not say its type is BPE, as older files have it") {
  Json older = small();
  REQUIRE(older.at("model").erase("type") == 1);
  const auto of = [](const Json& json) {
    return Tokenizer::from_json(json.dump(), "tokenizer.json").encode("ab abc").ids;
  };
  CHECK(of(older) == of(small()));
  CHECK_FALSE(of(older).empty());
}

TEST_CASE("tokenizer: what is not supported is named") {
  const auto kind = [](const char* pointer, const char* type) { return message_with(pointer, {{"type", type}}); };
  CHECK(kind("/normalizer", "Lowercase") ==
        "tokenizer.json: the normalizer Lowercase is not supported; NFC, Prepend, Replace "
        "or a Sequence of them is");
  CHECK(holds(kind("/pre_tokenizer", "Whitespace"), "the pre-tokenizer Whitespace is not supported; Split, Digits, "));
  CHECK(holds(kind("/post_processor", "RobertaProcessing"), "the post-processor RobertaProcessing is not supported"));
  CHECK(holds(kind("/decoder", "WordPiece"), "the decoder WordPiece is not supported"));
  CHECK(holds(message_with("/decoder", nullptr), "the decoder null is not supported"));
  CHECK(message_with("/pre_tokenizer", nullptr) ==
        "tokenizer.json: decoder: the decoder is byte-level, but the pre-tokenizer is not: it must end with ByteLevel");
  CHECK(holds(message_with("/model/type", "WordPiece"), "the model WordPiece is not supported; BPE is"));
  CHECK(holds(message_with("/model/byte_fallback", true),
              "the model's byte_fallback with a byte-level pre-tokenizer is not supported"));
  CHECK(holds(message_with("/model/dropout", 0.1), "the model's dropout is not supported"));
  CHECK(holds(message_with("/model/end_of_word_suffix", "</w>"), "the model's end_of_word_suffix is not supported"));
  CHECK(holds(message_with("/model/unk_token", "zz"), "the unk_token \"zz\" is not in the vocabulary"));
  CHECK(holds(message_with("/pre_tokenizer", {{"type", "Digits"}}), "but the pre-tokenizer is not: it must end with"));
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "[a-z]+"}}}, {"behavior", "Isolated"}};
  CHECK(holds(message_with("/pre_tokenizer", split), "is not one of those known: [a-z]+"));
  const Json byte_level = {{"type", "ByteLevel"}};
  const Json twice = {{"type", "Sequence"}, {"pretokenizers", Json::array({byte_level, byte_level})}};
  CHECK(holds(message_with("/pre_tokenizer", twice), "a pre-tokenizer after ByteLevel is not supported"));
  const auto framed = [](const char* single) {
    Json part = {{"type", "TemplateProcessing"}, {"special_tokens", {{"x", {{"ids", {8}}}}}}};
    part["single"] = Json::parse(single);
    return message_with("/post_processor", part);
  };
  CHECK(holds(framed(R"([{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}])"),
              "names the id 8, which no token has"));
  CHECK(holds(framed(R"([{"SpecialToken": {"id": "x"}}])"), "a template without its text"));
  CHECK(holds(framed(R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])"), "a template with its text twice"));
  CHECK(holds(message_with("/post_processor", sequence({R"([{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}])",
                                                        R"([{"Sequence": {"id": "A"}}])"})),
              "a template after one that adds tokens is not supported"));
  CHECK(message_with("/post_processor", sequence({R"([{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "x"}}])",
                                                  R"([{"Sequence": {"id": "A"}}])"})) ==
        "tokenizer.json: post_processor: processors[1]: a template after one that adds tokens is not supported");
  CHECK(framed(R"([{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "x"}}])") ==
        "tokenizer.json: the template of special tokens names the id 8, which no token has");
  CHECK(framed(R"([{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "y"}}])") ==
        "tokenizer.json: post_processor: special_tokens: y: \"ids\" is missing");
  const Json empty = {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}};
  CHECK(message_with("/pre_tokenizer", empty) == "tokenizer.json: pre_tokenizer: pattern: \"Regex\" is missing");
}

TEST_CASE("tokenizer: what a part of a document leaves out is as the tokenizers library has it") {
  const auto splitting = [](const char* part) {
    Json document = small();
    document["pre_tokenizer"] = Json::parse(part);
    return load(document).fingerprint().splitting;
  };
  CHECK(splitting(R"({"type": "ByteLevel"})") ==
        splitting(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})"));
  const auto behind = [&](const std::string& part) {
    return splitting((R"({"type": "Sequence", "pretokenizers": [)" + part + R"(, {"type": "ByteLevel"}]})").c_str());
  };
  CHECK(behind(R"({"type": "Digits"})") == behind(R"({"type": "Digits", "individual_digits": false})"));
  CHECK(behind(R"({"type": "Digits"})") != behind(R"({"type": "Digits", "individual_digits": true})"));
  const std::string split = R"({"type": "Split", "pattern": {"String": "e"}, "behavior": "Removed")";
  CHECK(behind(split + "}") == behind(split + R"(, "invert": false})"));
  CHECK(behind(split + "}") != behind(split + R"(, "invert": true})"));
}

TEST_CASE("tokenizer: an added token decodes to the bytes that it stands for, or as it is written") {
  Json document = small();
  document["added_tokens"].push_back({{"id", 10}, {"content", "\u0120z"}});
  document["added_tokens"].push_back({{"id", 11}, {"content", "\u0120 z"}});
  CHECK(load(document).decode(Ids{0, 10, 11}) == "a z\u0120 z");
}

TEST_CASE("tokenizer: a vocabulary and merges elsewhere in a document are settings like others") {
  Json document = small();
  document["other"] = Json::parse(R"({"vocab": {"a": "x"}, "merges": [1, [2]]})");
  document["model"]["more"] = Json::parse(R"({"vocab": {"a": "x"}, "merges": "y"})");
  document["vocab"] = 1;
  CHECK(load(document).encode("ab").ids == Ids{2});
  CHECK(load(document).fingerprint() == load(small()).fingerprint());
  Json pairs = small();
  pairs["model"]["merges"] = Json::parse(R"([["a", "b"]])");
  CHECK(load(pairs).fingerprint() == load(small()).fingerprint());
}

TEST_CASE("tokenizer: what stands in the place of a merge or an id is named") {
  const auto merges = [](const char* value) { return message_with("/model/merges", Json::parse(value)); };
  const std::string start = "tokenizer.json: merge ", end = " must be two tokens, as \"a b\" or [\"a\", \"b\"], found ";
  CHECK(merges(R"(["a b", "ab"])") == start + "1" + end + "\"ab\"");
  CHECK(merges(R"(["a b", 5])") == start + "1" + end + "5");
  CHECK(merges("[null]") == start + "0" + end + "null");
  CHECK(merges("[true]") == start + "0" + end + "a boolean");
  CHECK(merges("[2.50]") == start + "0" + end + "2.5");
  CHECK(merges("[{}]") == start + "0" + end + "an object");
  CHECK(merges(R"([["a"]])") == start + "0" + end + "one");
  CHECK(merges(R"([[]])") == start + "0" + end + "one");
  CHECK(merges(R"([["a", "b", "c"]])") == start + "0" + end + "three");
  CHECK(merges(R"([["a", ["b"]]])") == start + "0" + end + "an array");
  const auto id = [](const char* value) { return message_with("/model/vocab/ab", Json::parse(value)); };
  const std::string place = "tokenizer.json: the id of token \"ab\" must be an integer, found ";
  CHECK(id("true") == place + "a boolean");
  CHECK(id("[1]") == place + "an array");
  CHECK(id("\"x\"") == place + "\"x\"");
  CHECK(id("1.5") == place + "1.5");
  CHECK(message_with("/model/merges", Json::parse(R"(["ab c"])")) ==
        "tokenizer.json: merge 0 joins \"ab\" and \"c\", but \"c\" is not in the vocabulary");
  CHECK(message_with("/model/merges", Json::parse(R"(["c a"])")) ==
        "tokenizer.json: merge 0 joins \"c\" and \"a\", but \"c\" is not in the vocabulary");
  CHECK(message_with("/model/merges", Json::parse(R"(["a b", "a x"])")) ==
        "tokenizer.json: merge 1 joins \"a\" and \"x\", but \"ax\" is not in the vocabulary");
}

TEST_CASE("tokenizer: settings of the model that change nothing pass, those that would are refused") {
  const Json harmless = Json::parse(R"({"byte_fallback": false, "dropout": 0.0, "continuing_subword_prefix": "",
                                        "end_of_word_suffix": null, "fuse_unk": true, "unk_token": null})");
  for (const auto& [key, value] : io::json_fields(harmless))
    CHECK(message_with(("/model/" + key).c_str(), value) == "nothing was thrown");
  CHECK(message_with("/model/continuing_subword_prefix", "##") ==
        "tokenizer.json: the model's continuing_subword_prefix is not supported");
  Json fused = small();
  fused["model"]["unk_token"] = "b";
  fused["model"]["fuse_unk"] = true;
  CHECK(message(fused) == "tokenizer.json: the model's fuse_unk with a byte-level pre-tokenizer is not supported");
  CHECK(message_with("/model", "x") == "tokenizer.json: \"model\" is missing");
  CHECK(message_with("/pre_tokenizer", {{"type", "X"}}) ==
        "tokenizer.json: the pre-tokenizer X is not supported; Split, Digits, Metaspace, ByteLevel or a Sequence of "
        "them is");
  CHECK(message_with("/post_processor", {{"type", "X"}}) ==
        "tokenizer.json: the post-processor X is not supported; ByteLevel, TemplateProcessing or a Sequence of them "
        "is");
  const std::string decoders = " is not supported; ByteLevel, as the pre-tokenizer is byte-level, is";
  CHECK(message_with("/decoder", {{"type", "X"}}) == "tokenizer.json: the decoder X" + decoders);
  CHECK(message_with("/normalizer", {{"nothing", 1}}) == "tokenizer.json: normalizer: \"type\" is missing");
  CHECK(message_with("/normalizer", {{"type", "Sequence"}}) ==
        "tokenizer.json: normalizer: \"normalizers\" must be an array");
  const Json behavior = {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", "Odd"}};
  CHECK(message_with("/pre_tokenizer", behavior) ==
        "tokenizer.json: pre_tokenizer: the behavior Odd of pre-tokenizer Split is not known");
  CHECK(message_with("/decoder",
                     Json::parse(R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Y"}]})")) ==
        "tokenizer.json: decoder: the decoder Y" + decoders);
}

TEST_CASE("tokenizer: a normalizer within a sequence counts, wherever it stands") {
  const test::Quiet quiet;  // the vocabulary is larger than the one that the added token was numbered for
  const auto ids = [](const char* normalizer) {
    Json document = small();
    document["normalizer"] = Json::parse(normalizer);
    document["model"]["vocab"]["Ã"] = 71;
    document["model"]["vocab"]["©"] = 72;
    return load(document).encode("xe\u0301").ids.size();
  };
  CHECK(ids(R"({"type": "NFC"})") == 3);
  CHECK(ids(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})") == 3);
  CHECK(ids(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Sequence", "normalizers": []}]})") == 3);
  CHECK(ids(R"({"type": "Sequence", "normalizers": []})") == 1);
  CHECK(ids("null") == 1);
}

TEST_CASE("tokenizer: tokens that open and close a text have the places of its ends") {
  Json document = small();
  document["post_processor"] =
      sequence({R"([{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "x"}}])"});
  const auto tokenizer = load(document);
  CHECK(tokenizer.opening() == Ids{70});
  CHECK(tokenizer.closing() == Ids{70});
  CHECK(tokenizer.encode("ab", true).begins == std::vector<std::size_t>{0, 0, 2});
  CHECK(tokenizer.encode("", true).ids == Ids{70, 70});
  CHECK(tokenizer.growth() == 3);
  Json plain = small();
  plain["normalizer"] = nullptr;
  CHECK(load(plain).growth() == 1);
  CHECK(load(small()).where() == "tokenizer.json");
  CHECK(load(small()).saved_bytes() == 81 * 64);
}

// They are kept in files of earlier versions.
TEST_CASE("tokenizer: the parts of a fingerprint stay what they were") {
  const auto told = [](const Tokenizer& tokenizer) {
    std::string text;
    for (const auto& part : tokenizer.fingerprint().named())
      text += concat(part.first, " ", checksum_text(part.second), "\n");
    return text;
  };
  CHECK(told(load(small())) ==
        "vocabulary aac8054da6c11542\nmerges a725641bfc379f2c\nadded tokens 8a450cd8ef4bd657\n"
        "normalizer 589d98edd974d529\nsplitting into words 222e352f5ba3d8e6\n");
  CHECK(told(Tokenizer::from_file(test::tokenizer_data("pieces_bpe.model"))) ==
        "vocabulary f40d0124b9880591\nmerges 488169275d6e14ee\nadded tokens 659fca94f4c603ea\nnormalizer "
        "13b15d6df3285b89\n"
        "splitting into words 7ae880e965ebd89c\n");
}

}  // namespace tokenizer_test
