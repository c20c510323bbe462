#include "lora/tokenizer/proto.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/sentencepiece_file.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_proto_test {

using namespace lora;
using test::CharsmapFile;
using test::holds;
using test::message_of;
using test::sentencepiece_file;
using tokenizer::detail::ProtoWriter;

namespace {

std::vector<std::int32_t> ids_of(const std::string& proto, const std::string& text) {
  const tokenizer::SentencePieceModel model(proto, "m");
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> begins;
  model.encode(text, ids, begins);
  return ids;
}

std::string refusal(const std::string& proto) {
  return message_of([&] { ids_of(proto, "a\u00E9b"); });
}

std::string refusal(const CharsmapFile& map) { return refusal(sentencepiece_file(map.bytes())); }

/// A piece as a field of the model.
std::string piece(std::string_view text, float score = -9, std::uint64_t kind = 1) {
  ProtoWriter item, model;
  item.put_bytes(1, text);
  item.put_float(2, score);
  item.put_integer(3, kind);
  model.put_bytes(1, item.bytes());
  return model.bytes();
}

}  // namespace

TEST_CASE("tokenizer_proto: sound rules are followed") {
  CharsmapFile map;
  map.add("\u00E9", "ab");
  map.add("\u00E8", "b");
  CHECK(ids_of(sentencepiece_file(map.bytes()), "a\u00E9\u00E8") == std::vector<std::int32_t>{3, 1, 1, 2, 2});
  CHECK(ids_of(sentencepiece_file(""), "ab") == std::vector<std::int32_t>{3, 1, 2});
}

TEST_CASE("tokenizer_proto: rules that lead out of their table are refused") {
  CharsmapFile map;
  map.add("\u00E9", "ab");
  const auto text = sentencepiece_file(map.bytes());
  CHECK(refusal(text) == "nothing was thrown");

  CharsmapFile far = map;
  far.point(256 ^ 'x', 'x', 100 * 256);
  CHECK(holds(refusal(far), "m: not a sentencepiece model: its table of characters (precompiled_charsmap) leads from"));
  CHECK(holds(refusal(far), "outside of its"));

  CharsmapFile edge = map;  // the last byte's unit would lie past the end
  edge.units.resize(edge.units.size() - 1);
  CHECK(holds(refusal(edge), "outside of its"));

  CharsmapFile circle = map;
  circle.point(256 ^ 'x', 'x', 256);
  CHECK(holds(refusal(circle), "round in a circle"));

  CharsmapFile late = map;  // the rule's text begins past the end
  for (auto& unit : late.units)
    if (unit == 1u << 31 && &unit == &late.units[3 * 256]) unit |= 1000;
  CHECK(holds(refusal(late), "text begins at byte 1000"));

  CharsmapFile open = map;
  open.texts.pop_back();
  CHECK(holds(refusal(open), "without the zero byte"));

  CharsmapFile broken = map;
  broken.texts[0] = '\x80';
  CHECK(holds(refusal(broken), "not valid UTF-8"));

  CharsmapFile wordy = map;
  wordy.add("x", std::string(300, 'a'));
  CHECK(holds(refusal(wordy), "writes 300 bytes"));
  for (const std::size_t length : {255u, 256u}) {
    CharsmapFile full = map;
    full.add("x", std::string(length, 'a'));
    CHECK(holds(refusal(full), length == 255 ? "nothing was thrown" : "writes 256 bytes; at most 255"));
  }

  CHECK(holds(refusal(sentencepiece_file("ab")), "only 2 bytes"));
  std::string sized = map.bytes();
  sized[3] = '\x7F';
  CHECK(holds(refusal(sentencepiece_file(sized)), "says that its index takes"));
}

TEST_CASE("tokenizer_proto: more rules for one beginning than the library has places for are refused") {
  CharsmapFile map;
  std::string from;
  for (int i = 0; i < 32; ++i) map.add(from += 'a', "b");
  CHECK(ids_of(sentencepiece_file(map.bytes()), std::string(32, 'a')) == std::vector<std::int32_t>{3, 2});
  map.add(from += 'a', "b");
  CHECK(holds(refusal(map), "more than 32 rules"));
}

TEST_CASE("tokenizer_proto: pieces that the library would take on trust") {
  const auto with = [](const std::string& extra) { return refusal(sentencepiece_file("", extra)); };
  CHECK(with(piece("c")) == "nothing was thrown");
  CHECK(holds(with(piece("")), "piece 4 has 0 bytes"));
  CHECK(holds(with(piece(std::string(8000, 'a'))), "piece 4 has 8000 bytes; expected 1 to 7999"));
  CHECK(with(piece(std::string(7999, 'a'))) == "nothing was thrown");
  CHECK(holds(with(piece(std::string_view("a\0b", 3))), "zero byte"));
  CHECK(holds(with(piece("\xFF")), "not valid UTF-8"));
  CHECK(holds(with(piece("c", std::numeric_limits<float>::quiet_NaN())), "piece 4 has the score nan"));
  CHECK(holds(with(piece("c", std::numeric_limits<float>::infinity())), "piece 4 has the score inf"));
  CHECK(holds(with(piece("c", 0, 7)), "piece 4 is of kind 7"));
  CHECK(holds(with("\x0F"), "no field begins here"));
  CHECK(holds(with("\x0B"), "is a group"));
  CHECK(holds(with("\x0A"), "a number is cut short"));
  CHECK(holds(with("\x0A\x05\x0A"), "a field of 5 bytes, but only 1 are left"));
  CHECK(holds(with("\x08\x01"), "not of the type"));

  std::string nested, text;
  for (int i = 0; i < 64; ++i) nested += piece(text += 'x', 0, 4);
  CHECK(with(nested) == "nothing was thrown");
  CHECK(holds(with(nested + piece(text + 'x', 0, 4)), "more than 64 of its user-defined pieces"));
}

TEST_CASE("tokenizer_proto: samples for a test of itself are not run") {
  ProtoWriter sample, samples, model;
  sample.put_bytes(1, "ab");
  sample.put_bytes(2, "another result");
  samples.put_bytes(1, sample.bytes());
  model.put_bytes(4, samples.bytes());
  CHECK(refusal(sentencepiece_file("", model.bytes())) == "nothing was thrown");
}

TEST_CASE("tokenizer_proto: a damaged model is an error or a tokenizer, never the end of the process") {
  CharsmapFile map;
  map.add("\u00E9", "e");
  map.add("e\u0301", "e");
  map.add("\uFB01", "fi");
  std::vector<std::string> models = {sentencepiece_file(map.bytes())};
  for (const char* name : {"pieces_bpe.model", "pieces_unigram.model"})
    models.push_back(io::read_file(test::tokenizer_data(name)));
  int sound = 0, refused = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    std::string model = models[seed % models.size()];
    for (unsigned i = 0; i <= seed % 3; ++i) {
      const std::size_t at = random() % model.size();
      switch (random() % 4) {
        case 0:
          model[at] = static_cast<char>(random());
          break;
        case 1:
          model[at] = static_cast<char>(model[at] ^ (1 << random() % 8));
          break;
        case 2:
          model.erase(at, 1 + random() % 8);
          break;
        default:
          model.insert(at, model.substr(random() % model.size(), 1 + random() % 16));
      }
    }
    try {
      const tokenizer::SentencePieceModel tokenizer(model, "m");
      std::vector<std::int32_t> ids;
      std::vector<std::size_t> begins;
      tokenizer.encode("All \u00E9 e\u0301 human \uFB01 b\u0000eings", ids, begins);
      for (const auto id : ids) (void)tokenizer.bytes_of(id);
      ++sound;
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(sound > 10);
  CHECK(refused > 100);
}

}  // namespace tokenizer_proto_test
