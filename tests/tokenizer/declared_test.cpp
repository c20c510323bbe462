#include "lora/tokenizer/declared.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_declared_test {

using namespace lora;
using io::Json;
using test::holds;
using test::message_of;
using tokenizer::Tokenizer;

namespace {

const Json& fixture() {
  static const Json content = io::read_json(test::tokenizer_data("declared.json"));
  return content;
}

/// The folder that a case describes.
void write_case(const Json& item, const std::filesystem::path& folder) {
  io::create_folders(folder);
  if (const Json* model = io::json_find(item, "model")) {
    io::copy_file(test::tokenizer_data(model->get<std::string>()), folder / "tokenizer.model");
  } else {
    Json document = fixture()[io::json_find(item, "characters") != nullptr ? "characters" : "tokenizer"];
    for (const auto& [pointer, value] : item["replaced"].items()) document[Json::json_pointer(pointer)] = value;
    io::write_json(folder / "tokenizer.json", document);
  }
  for (const auto& [name, content] : item["files"].items()) io::write_json(folder / name, content);
}

Json id_json(std::optional<std::int32_t> id) { return id ? Json(*id) : Json(); }

void check_case(const Json& item, const Tokenizer& tokenizer) {
  for (std::size_t i = 0; i < item["texts"].size(); ++i) {
    const auto ids = tokenizer.encode(item["texts"][i].get<std::string>(), true).ids;
    CHECK_MESSAGE(Json(ids) == item["ids"][i], Json(ids).dump(), " is not ", item["ids"][i].dump());
    CHECK(tokenizer.decode(ids, true) == item["decoded"][i].get<std::string>());
  }
}

/// A folder with the fixtures' vocabulary.
struct Folder {
  test::TempFolder folder;
  explicit Folder(const char* config, Json document = fixture()["tokenizer"]) {
    io::write_json(folder / "tokenizer.json", document);
    io::write_file(folder / "tokenizer_config.json", config);
  }
  Tokenizer load() const { return Tokenizer::from_folder(folder.path()); }
  std::string name(const char* file) const { return (folder / file).native(); }
};

/// What loading says.
std::string said(const Folder& folder) {
  const test::Quiet quiet;
  static_cast<void>(folder.load());
  return quiet.text;
}

}  // namespace

TEST_CASE("tokenizer_declared: every way of declaring tokens gives the ids that transformers gives") {
  CHECK(fixture()["cases"].size() == 318);
  std::size_t number = 0;
  for (const Json& item : fixture()["cases"]) {
    const auto name = item["name"].get<std::string>();
    CAPTURE(name);
    if (number++ % test::effort<std::size_t>(1, 4, "tokenizer_declared: three of four ways") != 0) continue;
    const test::Quiet quiet;
    const test::TempFolder folder;
    write_case(item, folder / "model");
    const auto tokenizer = Tokenizer::from_folder(folder / "model");
    check_case(item, tokenizer);
    // Of a class's own token that the vocabulary lacks transformers makes a new one.
    const auto known = [&](const char* key) {
      const Json& id = item[key];
      return id.is_number() && !tokenizer.decode(std::vector{id.get<std::int32_t>()}).empty() ? id : Json();
    };
    CHECK(id_json(tokenizer.bos()) == known("bos"));
    CHECK(id_json(tokenizer.eos()) == known("eos"));
    if (const Json pad = known("pad"); pad.is_number())
      CHECK(tokenizer.decode(std::vector{pad.get<std::int32_t>()}, true).empty());  // as a special token
    // What is saved keeps every declaration.
    tokenizer.save(folder / "saved");
    if (const auto config = folder / "model" / "config.json"; io::is_there(config))
      io::copy_file(config, folder / "saved" / "config.json");
    check_case(item, Tokenizer::from_folder(folder / "saved"));
  }
}

TEST_CASE("tokenizer_declared: a class or type that config.json does not give as text names none") {
  const Folder folder("{}");
  const auto ids = folder.load().encode("Hello there").ids;
  for (const Json& value : {Json(nullptr), Json(5)}) {
    io::write_json(folder.folder / "config.json", {{"tokenizer_class", value}, {"model_type", value}});
    CHECK(folder.load().encode("Hello there").ids == ids);
  }
}

TEST_CASE("tokenizer_declared: what does not count, or counts otherwise than it says, is told once") {
  CHECK(said(Folder(R"({"eos_token": "<|im_end|>", "model_max_length": 5, "use_fast": true})")).empty());
  CHECK(holds(said(Folder(R"({"added_tokens_decoder": {"300": {"content": "<new>"}, "301": {"content": "<x>"}}})")),
              "\"<new>\" is declared with the id 300, but has 259, as in the tokenizers library (and 1 more)"));
  CHECK(holds(said(Folder(R"({"extra_special_tokens": ["<new>"], "additional_special_tokens": ["<two>"]})")),
              "\"additional_special_tokens\" does not count beside \"extra_special_tokens\""));
  Json document = fixture()["tokenizer"];
  document["added_tokens"] = Json::parse(R"([{"id": 259, "content": "<new>"}, {"id": 260, "content": "<two>"}])");
  CHECK(holds(said(Folder(R"({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {}})", document)),
              "the added token \"<new>\" and 1 more is not in added_tokens_decoder"));
  CHECK(holds(said(Folder(R"({"tokenizer_class": "Qwen2Tokenizer"})", document)),
              "tokenizer.json: its pre_tokenizer and normalizer do not count: transformers' class for this folder"));
  document["model"]["ignore_merges"] = true;
  document["post_processor"] = Json::parse(R"({"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<new>"}}, {"Sequence": {}}], "special_tokens": {"<new>": {"ids": [259]}}})");
  CHECK(holds(said(Folder(R"({"tokenizer_class": "GPTNeoXTokenizerFast", "add_prefix_space": true})", document)),
              "its normalizer and model's ignore_merges and post_processor do not count"));
  CHECK(said(Folder(R"({"tokenizer_class": "GPT2Tokenizer"})")).empty());
  const Folder other(R"({"tokenizer_class": "CohereTokenizerFast"})");
  CHECK(said(other) ==
        other.name("tokenizer_config.json") +
            ": \"tokenizer_class\" is CohereTokenizerFast, which in transformers brings a pre-tokenizer, a normalizer "
            "and special tokens of its own; here those of " +
            other.name("tokenizer.json") + " count, so ids may differ\n");
  io::write_file(other.folder / "config.json", R"({"model_type": "mistral"})");
  CHECK(said(other).empty());
  CHECK(holds(said(Folder(R"({"image_token": {"content": "<new>"}})")),
              "\"image_token\" is an object without \"__type\": \"AddedToken\", and so no token"));
  const char* both =
      R"({"image_token": "<new>", "model_specific_special_tokens": {"image_token": "<new>", "b": "<two>"}})";
  CHECK(holds(said(Folder(both)), "\"b\" of \"model_specific_special_tokens\" does not count beside \"image_token\""));
  CHECK(said(Folder(R"({"image_token": "<new>", "model_specific_special_tokens": {"image_token": "<new>"}})")).empty());
  CHECK(holds(said(Folder(R"({"flux": 1, "padding_side": "left", "own": {}})")),
              "tokenizer_config.json: not known here, and so without effect: flux, own"));
  CHECK(holds(said(Folder(R"({"split_special_tokens": true})")), "\"split_special_tokens\" is true"));
  const Folder unread(R"({"eos_token": "<|x|>", "added_tokens_decoder": {}})");
  io::write_file(unread.folder / "special_tokens_map.json", R"({"eos_token": {"content": "<|x|>"}})");
  CHECK(said(unread).empty());
  io::write_file(unread.folder / "special_tokens_map.json", R"({"eos_token": "<|im_end|>", "pad_token": "<|x|>"})");
  CHECK(holds(said(unread),
              "special_tokens_map.json: \"eos_token\" is \"<|im_end|>\", in tokenizer_config.json "
              "\"<|x|>\": beside \"added_tokens_decoder\""));
  CHECK(holds(said(unread), "special_tokens_map.json: \"pad_token\" is \"<|x|>\", in tokenizer_config.json none"));
  io::write_file(unread.folder / "added_tokens.json", R"({"<new>": 259})");
  CHECK(holds(said(unread), "added_tokens.json: the token \"<new>\" is added: beside"));
}

TEST_CASE("tokenizer_declared: a warning names its file, the first token and how many more there are") {
  const auto forgotten = [](const char* added, const char* decoder) {
    Json document = fixture()["tokenizer"];
    document["added_tokens"] = Json::parse(added);
    const Folder folder(
        concat(R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": )", decoder, "}").c_str(), document);
    std::string text = said(folder);
    for (const char* const file : {"tokenizer.json", "tokenizer_config.json"}) {
      const auto at = text.find(folder.name(file));
      REQUIRE(at != text.npos);
      text.replace(at, folder.name(file).size(), file);
    }
    return text;
  };
  const std::string end =
      " is not in added_tokens_decoder of tokenizer_config.json, and so does not count, as in transformers' class for "
      "this model\n";
  CHECK(forgotten(R"([{"id": 259, "content": "<c>"}])", "{}") == "tokenizer.json: the added token \"<c>\"" + end);
  const char* const four = R"([{"id": 259, "content": "<a>"}, {"id": 260, "content": "<d>"},
                               {"id": 261, "content": "<b>"}, {"id": 262, "content": "<c>"}])";
  CHECK(forgotten(four, R"({"259": {"content": "<a>"}})") ==
        "tokenizer.json: the added token \"<b>\" and 2 more" + end);

  const std::string beside =
      ": beside \"added_tokens_decoder\" of tokenizer_config.json it does not count, as in transformers\n";
  const Folder unread(R"({"pad_token": "<|x|>", "added_tokens_decoder": {"259": {"content": "<new>"}}})");
  io::write_file(unread.folder / "special_tokens_map.json", R"({"pad_token": "<|im_end|>", "eos_token": "<|x|>"})");
  io::write_file(unread.folder / "added_tokens.json", R"({"<new>": 259, "<two>": 260, "<three>": 261})");
  const std::string map = unread.name("special_tokens_map.json"), added = unread.name("added_tokens.json");
  CHECK(said(unread) == map + ": \"eos_token\" is \"<|x|>\", in tokenizer_config.json none" + beside + map +
                            ": \"pad_token\" is \"<|im_end|>\", in tokenizer_config.json \"<|x|>\"" + beside + added +
                            ": the token \"<two>\" is added" + beside);
  io::write_file(unread.folder / "tokenizer_config.json", R"({"added_tokens_decoder": null})");
  io::write_file(unread.folder / "special_tokens_map.json", "{}");
  CHECK(said(unread) == added + ": the token \"<new>\" is added" + beside);  // null is one that names none

  const auto of_config = [](const char* config) {
    const Folder folder(config);
    std::string text = said(folder);
    const std::string start = folder.name("tokenizer_config.json") + ": ", end_of_line = ", as in transformers\n";
    REQUIRE(text.starts_with(start));
    REQUIRE(text.ends_with(end_of_line));
    return text.substr(start.size(), text.size() - start.size() - end_of_line.size());
  };
  CHECK(of_config(R"({"extra_special_tokens": ["<new>"], "additional_special_tokens": ["<two>"]})") ==
        "\"additional_special_tokens\" does not count beside \"extra_special_tokens\"");
  CHECK(of_config(R"({"image_token": {"content": "<new>"}})") ==
        "\"image_token\" is an object without \"__type\": \"AddedToken\", and so no token");
  CHECK(of_config(R"({"a_token": "<1>", "b_token": "<2>", "model_specific_special_tokens": {"c": "<2>", "d": "<3>",
                                                                                            "e": "<4>"}})") ==
        "\"d\" of \"model_specific_special_tokens\" does not count beside \"a_token\"");
}

TEST_CASE("tokenizer_declared: tokens that are not special are found in normalized text, unless they say otherwise") {
  Json document = fixture()["tokenizer"];
  document["normalizer"] = {{"type", "NFC"}};
  // Whether it is found as its composed form, and as it is written.
  const auto found = [&](const char* config, const char* added = "{}") {
    const Folder folder(config, document);
    io::write_file(folder.folder / "added_tokens.json", std::string_view(added));
    const test::Quiet quiet;
    const Tokenizer tokenizer = folder.load();
    const std::vector<std::int32_t> token{259};
    return concat(tokenizer.encode("\u00E9").ids == token, " ", tokenizer.encode("e\u0301").ids == token);
  };
  CHECK(found(R"({"added_tokens_decoder": {"259": {"content": "e\u0301"}}})") == "true true");
  CHECK(found(R"({"added_tokens_decoder": {"259": {"content": "e\u0301", "normalized": false}}})") == "false true");
  CHECK(found(R"({"added_tokens_decoder": {"259": {"content": "e\u0301", "special": true}}})") == "false true");
  CHECK(found(R"({"added_tokens_decoder": {"259": {"content": "e\u0301", "special": true, "normalized": true}}})") ==
        "true true");
  CHECK(found(R"({"extra_special_tokens": ["e\u0301"]})") == "false true");
  CHECK(found(R"({"extra_special_tokens": [{"content": "e\u0301"}]})") == "false true");
  CHECK(found(R"({"extra_special_tokens": [{"content": "e\u0301", "__type": "AddedToken"}]})") == "true true");
  CHECK(found(R"({"extra_special_tokens": [{"content": "e\u0301", "__type": "AddedToken", "special": true}]})") ==
        "false true");
  CHECK(found(R"({"extra_special_tokens": [{"content": "e\u0301", "normalized": true}]})") == "true true");
  CHECK(found("{}", R"({"e\u0301": 259})") == "true true");
  CHECK(found(R"({"extra_special_tokens": ["e\u0301"]})", R"({"e\u0301": 259})") == "false true");
}

TEST_CASE("tokenizer_declared: ids that are none name the file that has them") {
  const auto error = [](const char* config) {
    const Folder folder(config);
    const std::string text = message_of([&] { static_cast<void>(folder.load()); });
    const std::string start = folder.name("tokenizer_config.json");
    REQUIRE(text.starts_with(start));
    return text.substr(start.size());
  };
  CHECK(error(R"({"added_tokens_decoder": ["<x>"]})") == ": \"added_tokens_decoder\" must be an object");
  CHECK(error(R"({"added_tokens_decoder": {"1.5": {"content": "<x>"}}})") ==
        ": \"added_tokens_decoder\" must be an integer in range, found 1.5");
  CHECK(holds(error(R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"), ":1:1"));
  CHECK(error(R"({"added_tokens_decoder": {"1048576": {"content": "<x>"}}})") ==
        ": the added token \"<x>\" has the id 1048576; expected 0 to 1048575");
  const Folder folder("{}");
  io::write_file(folder.folder / "added_tokens.json", R"({"<new>": 1048576})");
  CHECK(message_of([&] { folder.load(); }) ==
        folder.name("added_tokens.json") + ": the added token \"<new>\" has the id 1048576; expected 0 to 1048575");
}

TEST_CASE("tokenizer_declared: what cannot be followed is refused by its name") {
  const auto error = [](const char* config) { return message_of([&] { static_cast<void>(Folder(config).load()); }); };
  CHECK(holds(error(R"({"fix_mistral_regex": true})"), "tokenizer_config.json: \"fix_mistral_regex\" is true, which"));
  CHECK(holds(error(R"({"fast_tokenizer_files": ["tokenizer.json", "tokenizer.4.0.json"]})"),
              "\"fast_tokenizer_files\" names tokenizer.4.0.json, which is not supported"));
  CHECK(holds(error(R"({"split_special_tokens": 1})"), "\"split_special_tokens\" must be true or false, found 1"));
  CHECK(holds(error(R"({"additional_special_tokens": "<x>"})"), "must be a list or an object of tokens"));
  CHECK(holds(error(R"({"model_specific_special_tokens": ["<x>"]})"),
              "\"model_specific_special_tokens\" must be an object of tokens"));
  CHECK(holds(error(R"({"additional_special_tokens": [3]})"), "additional_special_tokens[0]\" must be a string"));
  CHECK(holds(error(R"({"pad_token": 3})"), "\"pad_token\" must be a string, found 3"));
  CHECK(holds(error(R"({"added_tokens_decoder": {"9999999": {"content": "<x>"}}})"), "has the id 9999999; expected"));
  const Folder folder("{}");
  io::write_file(folder.folder / "added_tokens.json", R"({"<new>": "a"})");
  CHECK(holds(message_of([&] { folder.load(); }), "added_tokens.json: \"<new>\" must be an integer in range"));
  io::write_file(folder.folder / "added_tokens.json", "[]");
  CHECK(holds(message_of([&] { folder.load(); }), "added_tokens.json: expected an object"));
}

TEST_CASE(
    "tokenizer_declared: spaces before punctuation stay in what byte pairs decode to, unless the setting insists") {
  const auto decoded = [](const char* config) {
    const Folder folder(config);
    const auto tokenizer = folder.load();
    return tokenizer.decode(tokenizer.encode("I 'm here , do n't ' go ' ! ? . . .").ids);
  };
  CHECK(decoded(R"({"clean_up_tokenization_spaces": true})") == "I 'm here , do n't ' go ' ! ? . . .");
  CHECK(decoded(R"({"clean_up_tokenization_spaces": true,
                    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": true})") ==
        "I'm here, don't'go '!?...");
  const test::TempFolder folder;
  io::copy_file(test::tokenizer_data("pieces_unigram.model"), folder / "tokenizer.model");
  io::write_file(folder / "tokenizer_config.json", R"({"clean_up_tokenization_spaces": true})");
  const auto tokenizer = Tokenizer::from_folder(folder.path());
  CHECK(tokenizer.decode(tokenizer.encode("human , beings .").ids) == "human, beings.");
  io::write_file(folder / "tokenizer_config.json", "{}");
  const auto by_default = Tokenizer::from_folder(folder.path());
  CHECK(by_default.decode(by_default.encode("human , beings .").ids) == "human , beings .");
  io::write_file(folder / "tokenizer_config.json", R"({"clean_up_tokenization_spaces": true})");
  io::copy_file(test::tokenizer_data("pieces_bpe.model"), folder / "tokenizer.model");
  const auto merged = Tokenizer::from_folder(folder.path());
  CHECK(merged.decode(merged.encode("human , beings .").ids) == "human , beings .");
}

}  // namespace tokenizer_declared_test
