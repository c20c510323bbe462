// Tokenizers of characters and byte tokens, as the tokenizers library has them.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/tokenizer/text_stream.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_characters_test {

using namespace lora;
using io::Json;
using test::message_of;
using tokenizer::Tokenizer;
using Ids = std::vector<std::int32_t>;

namespace {

const Json& fixture() {
  static const Json content = test::packed_json("characters.json.z");
  return content;
}

/// The tokenizer.json of a variant, as `replaced` in tests/make/character_tokenizers.py makes it.
Json document_of(const Json& variant) {
  Json made = fixture()["tokenizer"];
  for (const auto& [pointer, value] : io::json_fields(variant["replaced"])) made[Json::json_pointer(pointer)] = value;
  Json& model = made["model"];
  const auto& without = variant["without"];
  std::set<std::string> tokens;
  Json vocab = Json::object();
  for (const auto& [token, id] : io::json_fields(model["vocab"])) {
    if (std::find(without.begin(), without.end(), Json(token)) != without.end()) continue;
    tokens.insert(token);
    vocab.get_ref<Json::object_t&>().emplace_back(token, id);
  }
  Json merges = Json::array();
  for (const Json& merge : model["merges"]) {
    const auto left = merge[0].get<std::string>(), right = merge[1].get<std::string>();
    if (tokens.contains(left) && tokens.contains(right) && tokens.contains(left + right)) merges.push_back(merge);
  }
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(merges);
  return made;
}

Tokenizer load(const Json& document) {
  const test::Quiet quiet;  // an added token has the id that it has in the vocabulary
  return Tokenizer::from_json(io::to_text(document, -1), "t.json");
}

struct Result {
  Ids framed, places;
  std::string whole, skipped;
};

Result result_of(const Tokenizer& tokenizer, const std::string& text, bool has_places) {
  const auto plain = tokenizer.encode(text);
  Result result{tokenizer.encode(text, true).ids, {}, tokenizer.decode(plain.ids), tokenizer.decode(plain.ids, true)};
  if (has_places) result.places.assign(plain.begins.begin(), plain.begins.end());
  return result;
}

void append(std::string& data, const Ids& numbers) {
  const auto count = static_cast<std::int32_t>(numbers.size());
  data.append(reinterpret_cast<const char*>(&count), sizeof count);
  data.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof count);
}

}  // namespace

TEST_CASE("tokenizer_characters: every kind of tokenizer.json of characters gives the library's ids, places and text") {
  std::vector<std::string> texts = fixture()["texts"].get<std::vector<std::string>>();
  const std::vector<std::string> hand(texts.begin(), texts.begin() + 20), more = test::texts();
  texts.insert(texts.end(), more.begin(), more.end());
  const auto group = fixture()["group"].get<std::size_t>();
  CHECK(fixture()["variants"].size() == 22);
  for (const Json& variant : fixture()["variants"]) {
    const auto name = variant["name"].get<std::string>();
    CAPTURE(name);
    const Tokenizer tokenizer = load(document_of(variant));
    const bool has_places = variant["has_places"].get<bool>();
    for (std::size_t i = 0; i < hand.size(); ++i) {
      const Result got = result_of(tokenizer, hand[i], has_places);
      const Json& wanted = variant["cases"][i];
      CAPTURE(hand[i]);
      CHECK_MESSAGE(Json(got.framed) == wanted[0], Json(got.framed).dump(), " is not ", wanted[0].dump());
      CHECK_MESSAGE(Json(got.places) == wanted[1], Json(got.places).dump(), " is not ", wanted[1].dump());
      CHECK(got.whole == wanted[2].get<std::string>());
      CHECK(got.skipped == wanted[3].get<std::string>());
    }
    const Json& sums = variant["sums"];
    REQUIRE(sums.size() == (texts.size() + group - 1) / group);
    for (std::size_t i = 0; i < sums.size();
         i += test::effort<std::size_t>(1, 8, "tokenizer_characters: seven of eight groups of texts")) {
      const std::size_t begin = i * group, end = std::min(begin + group, texts.size());
      std::string data;
      for (std::size_t text = begin; text < end; ++text) {
        const Result got = result_of(tokenizer, texts[text], has_places);
        append(data, got.framed);
        append(data, got.places);
        data += got.whole + got.skipped;
      }
      CHECK_MESSAGE(test::checksum(data) == sums[i].get<std::uint32_t>(), name, ": of texts ", begin, " to ", end - 1);
    }
  }
}

TEST_CASE("tokenizer_characters: a megabyte is a matter of a second, in words and without any") {
  const Tokenizer tokenizer = load(fixture()["tokenizer"]);
  const std::size_t size = test::effort<std::size_t>(1'000'000, 100'000, "tokenizer_characters: nine of ten bytes");
  for (const std::string_view part : {"All human beings are born free. ", "heinthe\xE2\x96\x81", "eeee"}) {
    for (const bool has_words : {true, false}) {
      std::string text;
      while (text.size() < size) text += part;
      if (!has_words) std::erase(text, ' ');
      const auto begin = std::chrono::steady_clock::now();
      const auto ids = tokenizer.encode(text).ids;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      CHECK(ids.size() > size / 20);
      // Where time grows with the square of the length, this takes hours.
      CHECK_MESSAGE(seconds < 30, seconds, " seconds of ", part);
    }
  }
}

TEST_CASE("tokenizer_characters: what is streamed is the decoded text, whatever the last tokens are") {
  const Tokenizer tokenizer = load(fixture()["tokenizer"]);
  for (const Json& item : fixture()["texts"]) {
    const auto ids = tokenizer.encode(item.get<std::string>(), true).ids;
    tokenizer::TextStream stream(tokenizer);
    std::string given;
    for (const auto id : ids) given += stream.add(id);
    given += stream.finish();
    CHECK(given == tokenizer.decode(ids, true));
  }
}

TEST_CASE("tokenizer_characters: bytes side by side are given once the last of them is known, as they are decoded") {
  const Tokenizer tokenizer = load(fixture()["tokenizer"]);
  const auto byte = [](int value) { return value + 3; };
  const auto a = tokenizer.id_of("a");
  REQUIRE(a);
  tokenizer::TextStream stream(tokenizer);
  CHECK(stream.add(byte(0xC3)).empty());
  CHECK(stream.add(byte(0xA9)).empty());
  CHECK(stream.add(*a) == "\u00E9a");
  CHECK(stream.add(byte(0xC3)).empty());
  CHECK(stream.add(byte(0xA9)).empty());
  CHECK(stream.add(byte(0xC3)).empty());
  CHECK(stream.add(*a) == "\uFFFD\uFFFD\uFFFDa");
  CHECK(stream.add(byte(0xE4)).empty());
  CHECK(stream.add(byte(0xB8)).empty());
  CHECK(stream.finish() == "\uFFFD\uFFFD");
  CHECK(stream.add(byte(0xC3)).empty());
  CHECK(stream.add(byte(0xA9)).empty());
  CHECK(stream.finish() == "\u00E9");

  // Whatever stands between them: what decodes to nothing keeps them side by side.
  Random random(7);
  const std::int32_t special = 1;
  REQUIRE(tokenizer.decode(Ids{special}, true).empty());
  for (int round = 0; round < 300; ++round) {
    Ids ids;
    for (int i = 0; i < 12; ++i) {
      const int bytes[] = {0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0x41, 0x20};
      const std::uint32_t kind = random.below(10);
      ids.push_back(kind < 7 ? byte(bytes[kind]) : kind == 7 ? special : *a);
    }
    tokenizer::TextStream all(tokenizer);
    std::string given;
    for (const auto id : ids) given += all.add(id);
    CHECK(given + all.finish() == tokenizer.decode(ids, true));
  }
}

TEST_CASE("tokenizer_characters: what is saved gives the same ids") {
  for (const char* const name : {"mistral3", "Metaspace always True", "bytes are missing"}) {
    for (const Json& variant : fixture()["variants"]) {
      if (variant["name"].get<std::string>().find(name) == std::string::npos) continue;
      const Tokenizer tokenizer = load(document_of(variant));
      const test::TempFolder folder;
      tokenizer.save(folder.path());
      const test::Quiet quiet;
      const Tokenizer again = Tokenizer::from_file(folder / "tokenizer.json");
      CHECK(again.fingerprint() == tokenizer.fingerprint());
      for (const char* const text : {"All human beings", " \u00E9 <n>q"})
        CHECK(again.encode(text, true).ids == tokenizer.encode(text, true).ids);
    }
  }
}

TEST_CASE("tokenizer_characters: what changes ids changes the fingerprint") {
  const auto base = load(fixture()["tokenizer"]).fingerprint();
  const auto with = [](const char* pointer, const char* value) {
    Json document = fixture()["tokenizer"];
    document[Json::json_pointer(pointer)] = Json::parse(value);
    return load(document).fingerprint();
  };
  for (const char* const key : {"byte_fallback", "fuse_unk", "ignore_merges"})
    CHECK(with(concat("/model/", key).c_str(), std::string_view(key) == "ignore_merges" ? "true" : "false").merges !=
          base.merges);
  CHECK(with("/model/unk_token", "null").merges != base.merges);
  CHECK(with("/normalizer", "null").normalizer != base.normalizer);
  const auto marks = [&](const char* more) {
    return with("/pre_tokenizer",
                concat(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": )", more, "}").c_str())
        .splitting;
  };
  std::set<std::uint64_t> prints{base.splitting, marks("\"first\""), marks("\"always\""), marks("\"never\""),
                                 marks("\"never\", \"split\": false")};
  CHECK(prints.size() == 5);
  CHECK(with("/decoder/decoders", "[]") == base);
}

TEST_CASE("tokenizer_characters: what is not followed is named, with its place and what is") {
  const auto told = [](const char* pointer, const char* value) {
    Json document = fixture()["tokenizer"];
    document[Json::json_pointer(pointer)] = Json::parse(value);
    return message_of([&] { static_cast<void>(load(document)); });
  };
  const auto decoder = [&](const char* step) { return told("/decoder/decoders/1", step); };
  CHECK(decoder(R"({"type": "WordPiece"})") ==
        "t.json: decoder: the decoder WordPiece is not supported; Replace, ByteFallback, Fuse, Strip, Metaspace or a "
        "Sequence of them is");
  CHECK(decoder("null") ==
        "t.json: decoder: the decoder null is not supported; Replace, ByteFallback, Fuse, Strip, "
        "Metaspace or a Sequence of them is");
  CHECK(decoder(R"({"type": "ByteLevel"})") ==
        "t.json: decoder: decoders[1]: the decoder is byte-level, but the pre-tokenizer is not: it must end with "
        "ByteLevel");
  CHECK(
      decoder(R"({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""})") ==
      "t.json: decoder: decoders[1]: the pattern of Replace is a regular expression, a+; expected a text, \"String\"");
  CHECK(decoder(R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})") ==
        "t.json: decoder: decoders[1]: the pattern of Replace is \"\"; expected a text that is not empty");
  CHECK(decoder(R"({"type": "Strip", "content": "  ", "start": 1, "stop": 0})") ==
        "t.json: decoder: decoders[1]: \"content\" of Strip is \"  \"; expected one character");
  CHECK(decoder(R"({"type": "Strip", "content": " ", "start": 1, "stop": 2})") ==
        "t.json: decoder: decoders[1]: \"stop\" of Strip is 2, which is not supported; 0 is");
  CHECK(decoder(R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})") ==
        "t.json: decoder: decoders[1]: \"start\" is -1; expected 0 or more");
  const std::string hundred(100, 'x');
  CHECK(decoder(concat(R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")", hundred, "\"}").c_str()) ==
        "t.json: decoder: the decoder may make a text 100 times as long; expected at most 64 times");
  const auto normalizer = [&](const std::string& step) { return told("/normalizer/normalizers/0", step.c_str()); };
  CHECK(
      normalizer(R"({"type": "Lowercase"})") ==
      "t.json: normalizer: the normalizer Lowercase is not supported; NFC, Prepend, Replace or a Sequence of them is");
  CHECK(normalizer(R"({"type": "Prepend"})") == "t.json: normalizer: normalizers[0]: \"prepend\" is missing");
  CHECK(normalizer(R"({"type": "Replace", "pattern": {"Regex": " "}, "content": "x"})") ==
        "t.json: normalizer: normalizers[0]: the pattern of Replace is a regular expression,  ; expected a text, "
        "\"String\"");
  CHECK(normalizer(concat(R"({"type": "Prepend", "prepend": ")", hundred, "\"}")) ==
        "t.json: the normalizer and the pre-tokenizer may make a text 303 times as long; expected at most 64 times");
  const auto marks = [&](const std::string& more) {
    return told("/pre_tokenizer", ("{\"type\": \"Metaspace\", \"replacement\": " + more + "}").c_str());
  };
  CHECK(marks("\"ab\"") == "t.json: pre_tokenizer: \"replacement\" of Metaspace is \"ab\"; expected one character");
  CHECK(marks("\"\"") == "t.json: pre_tokenizer: \"replacement\" of Metaspace is \"\"; expected one character");
  CHECK(marks(R"("_", "prepend_scheme": "last")") ==
        "t.json: pre_tokenizer: \"prepend_scheme\" of Metaspace is last; expected always, first or never");
  for (const char* const scheme : {"first", "always"})
    CHECK(marks(concat(R"("_", "add_prefix_space": false, "prepend_scheme": ")", scheme, "\"")) ==
          concat("t.json: pre_tokenizer: \"add_prefix_space\" of Metaspace is false, but \"prepend_scheme\" is ",
                 scheme, "; expected never"));
  CHECK(marks(R"("_", "add_prefix_space": false, "prepend_scheme": "never")") == "nothing was thrown");
  CHECK(told("/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"},
                                   {"type": "Metaspace", "replacement": "_"}]})") ==
        "t.json: pre_tokenizer: pretokenizers[1]: the pre-tokenizer Metaspace after another is not supported; expected "
        "it first");
  CHECK(told("/model/unk_token", "\"none\"") == "t.json: the unk_token \"none\" is not in the vocabulary");
}

}  // namespace tokenizer_characters_test
