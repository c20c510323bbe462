#include "lora/tokenizer/sentencepiece.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_sentencepiece_test {

using namespace lora;
using test::holds;
using test::message_of;
using tokenizer::Tokenizer;

namespace {

std::vector<std::int32_t> ids_of(const io::Json& list) { return list.get<std::vector<std::int32_t>>(); }

}  // namespace

TEST_CASE("tokenizer_sentencepiece: ids, places and text are the library's") {
  const std::string file = "pieces.json.z";
  const io::Json fixture = io::parse_json(test::unpacked(test::tokenizer_data(file)), file);
  const auto texts = fixture["texts"].get<std::vector<std::string>>();
  CHECK(texts.size() >= 100);
  for (const io::Json& model : fixture["models"]) {
    const auto name = model["name"].get<std::string>();
    const auto tokenizer = Tokenizer::from_file(test::tokenizer_data("pieces_" + name + ".model"));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const io::Json& expected = model["results"][i];
      const auto encoding = tokenizer.encode(texts[i]);
      CHECK_MESSAGE(encoding.ids == ids_of(expected[0]), name, ": ", texts[i]);
      CHECK_MESSAGE(std::vector<std::int32_t>(encoding.begins.begin(), encoding.begins.end()) == ids_of(expected[1]),
                    name, ": ", texts[i]);
      CHECK_MESSAGE(test::checksum(tokenizer.decode(encoding.ids)) == expected[2].get<std::uint32_t>(), name, ": ",
                    texts[i], " became ", tokenizer.decode(encoding.ids));
    }
  }
}

TEST_CASE("tokenizer_sentencepiece: control pieces are found in the text, and the text around them is encoded alone") {
  const auto tokenizer = Tokenizer::from_file(test::tokenizer_data("pieces_bpe.model"));
  const auto end = tokenizer.id_of("</s>");
  REQUIRE(end);
  CHECK(tokenizer.eos() == end);
  const auto left = tokenizer.encode("human").ids, right = tokenizer.encode("beings").ids;
  std::vector<std::int32_t> expected = left;
  expected.push_back(*end);
  expected.insert(expected.end(), right.begin(), right.end());
  const auto encoding = tokenizer.encode("human</s>beings");
  CHECK(encoding.ids == expected);
  CHECK(encoding.begins[left.size()] == 5);
  CHECK(encoding.begins[left.size() + 1] == 9);
  CHECK(tokenizer.decode(encoding.ids) == "human</s> beings");
  CHECK(tokenizer.decode(encoding.ids, true) == "human beings");
}

TEST_CASE("tokenizer_sentencepiece: the configuration says whether a text is framed") {
  const test::TempFolder folder;
  io::copy_file(test::tokenizer_data("pieces_bpe.model"), folder / "tokenizer.model");
  const auto plain = Tokenizer::from_folder(folder.path());
  CHECK(plain.encode("a", true).ids.front() == plain.bos());
  io::write_file(
      folder / "tokenizer_config.json",
      R"({"add_bos_token": false, "add_eos_token": true, "chat_template": "x", "eos_token": {"content": "</s>"}})");
  const auto configured = Tokenizer::from_folder(folder.path());
  CHECK(configured.encode("a", true).ids.front() == configured.encode("a").ids.front());
  CHECK(configured.encode("a", true).ids.back() == configured.eos());
  CHECK(configured.chat_template() == "x");
}

// As convert_slow_tokenizer.py of transformers 5 builds them: "legacy" decides about a space that the file asks for,
// and LlamaTokenizer asks for one itself.
TEST_CASE("tokenizer_sentencepiece: legacy off puts no space before texts where the file wants none") {
  using Kind = tokenizer::SentencePiece::Kind;
  const auto ids = [](bool leading_space, const char* config) {
    const test::TempFolder folder;
    io::write_file(folder / "tokenizer.model", tokenizer::sentencepiece_proto({{"<unk>", 0, Kind::unknown},
                                                                               {"<s>", 0, Kind::control},
                                                                               {"</s>", 0, Kind::control},
                                                                               {"a", -1, Kind::normal},
                                                                               {"\u2581", -2, Kind::normal}},
                                                                              leading_space));
    io::write_file(folder / "tokenizer_config.json", std::string_view(config));
    return Tokenizer::from_folder(folder.path()).encode("a").ids;
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(ids(true, R"({"legacy": false})") == Ids{4, 3});
  CHECK(ids(false, R"({"legacy": false})") == Ids{3});
  CHECK(ids(false, R"({"legacy": false, "tokenizer_class": "LlamaTokenizer"})") == Ids{4, 3});
}

TEST_CASE("tokenizer_sentencepiece: a token of white space behind a text begins at its end") {
  using Kind = tokenizer::SentencePiece::Kind;
  std::string proto = tokenizer::sentencepiece_proto(
      {{"<unk>", 0, Kind::unknown}, {"a", -1, Kind::normal}, {"b", -2, Kind::normal}, {"\u2581", -3, Kind::normal}},
      true);
  proto += std::string_view("\x12\x03\xC0\x01\x01", 5);  // of the trainer: treat_whitespace_as_suffix
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.model", proto);
  const std::string longer = "ab\u00E9";
  const auto encoding = Tokenizer::from_folder(folder.path()).encode(std::string_view(longer).substr(0, 2));
  CHECK(encoding.ids == std::vector<std::int32_t>{1, 2, 3});
  CHECK(encoding.begins == std::vector<std::size_t>{0, 1, 2});
  const std::string continued = "ab\xA9";  // what stands behind the text is no part of it
  CHECK(Tokenizer::from_folder(folder.path()).encode(std::string_view(continued).substr(0, 2)).begins ==
        encoding.begins);
}

TEST_CASE("tokenizer_sentencepiece: a model written from its pieces encodes alike") {
  const auto model = tokenizer::SentencePieceModel(io::read_file(test::tokenizer_data("pieces_bpe.model")), "pieces");
  std::vector<tokenizer::SentencePiece> pieces;
  using Kind = tokenizer::SentencePiece::Kind;
  for (std::int32_t id = 0; id < model.end(); ++id) {
    const std::string text = model.text_of(id);
    const Kind kind = id == 0                                      ? Kind::unknown
                      : id < 3                                     ? Kind::control
                      : text == "<tool>"                           ? Kind::user_defined
                      : text.size() == 6 && text.rfind("<0x") == 0 ? Kind::byte
                                                                   : Kind::normal;
    pieces.push_back({text, static_cast<float>(-id), kind});  // the trainer's scores fall by one as well
  }
  const auto rebuilt = tokenizer::SentencePieceModel(tokenizer::sentencepiece_proto(pieces, true), "rebuilt");
  for (const char* text : {"All human beings", "  dotés de raison", "中<tool>x", "1776's\n"}) {
    std::vector<std::int32_t> ids, again;
    std::vector<std::size_t> begins;
    model.encode(text, true, ids, begins);
    rebuilt.encode(text, true, again, begins);
    CHECK(ids == again);
  }
}

TEST_CASE("tokenizer_sentencepiece: what is no model is refused") {
  const test::TempFolder folder;
  const auto message = [&](const std::string& content) {
    io::write_file(folder / "tokenizer.model", content);
    return message_of([&] { Tokenizer::from_folder(folder.path()); });
  };
  CHECK(holds(message("no model at all"), "tokenizer.model: not a sentencepiece model"));
  CHECK(holds(message(""), "not a sentencepiece model"));
  const std::string tiktoken = message("IQ== 0\nIg== 1\nIw== 2\n");
  CHECK(holds(tiktoken, "tiktoken"));
  CHECK(holds(tiktoken, "tokenizer.json"));
  CHECK(holds(message(io::read_file(test::tokenizer_data("pieces_bpe.model")).substr(0, 5000)),
              "not a sentencepiece model"));
}

TEST_CASE("tokenizer_sentencepiece: pieces decode to their bytes, with spaces for their marks") {
  using Kind = tokenizer::SentencePiece::Kind;
  std::vector<tokenizer::SentencePiece> pieces = {{"<unk>", 0, Kind::unknown}, {"</s>", 0, Kind::control}};
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string name = "<0x";
    for (const unsigned digit : {byte / 16, byte % 16}) name += "0123456789ABCDEF"[digit];
    pieces.push_back({name + ">", 0, Kind::byte});
  }
  pieces.push_back({"\u2581a\u2581\u2581b", -1, Kind::normal});
  pieces.push_back({"<0xAg>", -2, Kind::user_defined});
  const tokenizer::SentencePieceModel model(tokenizer::sentencepiece_proto(pieces, false), "m");
  for (std::int32_t byte = 0; byte < 256; ++byte)
    CHECK(model.bytes_of(2 + byte) == std::string(1, static_cast<char>(static_cast<unsigned char>(byte))));
  CHECK(model.bytes_of(258) == " a  b");
  CHECK(model.bytes_of(259) == "<0xAg>");
  CHECK(model.text_of(258) == "\u2581a\u2581\u2581b");
  CHECK(model.find("<0x0A>") == 12);
  CHECK(model.find("</s>") == 1);
  CHECK(model.find("<unk>") == 0);
  for (const std::string_view none : {std::string_view(), std::string_view("x"), std::string_view("</s>\0", 5)})
    CHECK(model.find(none) == -1);
  CHECK(model.has(259));
  CHECK_FALSE(model.has(260));
  CHECK_FALSE(model.has(-1));
  CHECK(model.count() == 260);
  CHECK(model.eos() == 1);
  CHECK(model.bos() == -1);
  CHECK(model.is_bpe());
  CHECK_FALSE(model.adds_leading_space());
  CHECK(model.normalizer().empty());
  CHECK(model.decoder() == nullptr);
  const auto added = model.added_tokens();
  REQUIRE(added.size() == 2);
  CHECK(added[1].content == "</s>");
  CHECK(added[1].id == 1);
  CHECK(added[1].special);
}

TEST_CASE("tokenizer_sentencepiece: who puts a space before a part of a text") {
  using Kind = tokenizer::SentencePiece::Kind;
  using Prefix = tokenizer::SentencePiecePrefix;
  const auto told = [](bool in_file, Prefix prefix) {
    const tokenizer::SentencePieceModel model(
        tokenizer::sentencepiece_proto(
            {{"<unk>", 0, Kind::unknown}, {"a", -1, Kind::normal}, {"\u2581", -2, Kind::normal}}, in_file),
        "m", prefix);
    std::vector<std::int32_t> ids;
    std::vector<std::size_t> begins;
    model.encode("a", true, ids, begins);
    const std::size_t first = ids.size();
    model.encode("a", false, ids, begins);
    return concat(model.wants_space_before(true), " ", model.wants_space_before(false), " ", model.adds_leading_space(),
                  " ", first, " ", ids.size() - first);
  };
  CHECK(told(true, Prefix::as_in_file) == "false false true 2 2");
  CHECK(told(false, Prefix::as_in_file) == "false false false 1 1");
  for (const bool in_file : {false, true}) {
    CHECK(told(in_file, Prefix::each) == "true true true 2 2");
    CHECK(told(in_file, Prefix::first) == "true false true 2 1");
    CHECK(told(in_file, Prefix::never) == "false false false 1 1");
  }
  CHECK(told(true, Prefix::first_if_in_file) == "true false true 2 1");
  CHECK(told(false, Prefix::first_if_in_file) == "false false false 1 1");
}

TEST_CASE("tokenizer_sentencepiece: what says where spaces are put is part of the fingerprint") {
  using Prefix = tokenizer::SentencePiecePrefix;
  const std::string proto = io::read_file(test::tokenizer_data("pieces_bpe.model"));
  const auto splitting = [&](Prefix prefix) {
    return tokenizer::SentencePieceModel(proto, "m", prefix).fingerprints().splitting;
  };
  const auto plain = splitting(Prefix::as_in_file), each = splitting(Prefix::each), first = splitting(Prefix::first);
  CHECK(each == text_hash(concat(plain, " each")));
  CHECK(first == text_hash(concat(plain, " first")));
  CHECK(splitting(Prefix::never) == plain);
  CHECK(tokenizer::SentencePieceModel(proto, "m", Prefix::never).fingerprints().normalizer !=
        tokenizer::SentencePieceModel(proto, "m").fingerprints().normalizer);
}

TEST_CASE("tokenizer_sentencepiece: a written model has the fields of its format") {
  using Kind = tokenizer::SentencePiece::Kind;
  CHECK(tokenizer::sentencepiece_proto({{"a", 1.5f, Kind::byte}}, true) ==
        std::string("\x0A\x0A\x0A\x01"
                    "a\x15\x00\x00\xC0\x3F\x18\x06"
                    "\x12\x05\x18\x02\x98\x02\x01"
                    "\x1A\x10\x0A\x08identity\x18\x01\x20\x00\x28\x01",
                    37));
  CHECK(tokenizer::sentencepiece_proto({{"a", 1.5f, Kind::normal}}, false) ==
        std::string("\x0A\x0A\x0A\x01"
                    "a\x15\x00\x00\xC0\x3F\x18\x01"
                    "\x12\x05\x18\x02\x98\x02\x00"
                    "\x1A\x10\x0A\x08identity\x18\x00\x20\x00\x28\x01",
                    37));
}

}  // namespace tokenizer_sentencepiece_test
