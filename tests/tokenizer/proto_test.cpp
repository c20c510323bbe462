#include "lora/tokenizer/proto.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
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
  model.encode(text, true, ids, begins);
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
  const std::string start = "m: not a sentencepiece model: its table of characters (precompiled_charsmap) ";

  CharsmapFile far = map;
  far.point(256 ^ 'x', 'x', 100 * 256);
  CHECK(refusal(far) == start + "leads from unit 376 to unit 25600, outside of its 1024");

  CharsmapFile edge = map;  // the last byte's unit would lie past the end
  edge.units.resize(edge.units.size() - 1);
  CHECK(refusal(edge) == start + "leads from unit 681 to unit 768, outside of its 1023");

  CharsmapFile circle = map;
  circle.point(256 ^ 'x', 'x', 256);
  CHECK(refusal(circle) == start + "leads from unit 376 round in a circle");

  CharsmapFile late = map;  // the rule's text begins past the end
  for (auto& unit : late.units)
    if (unit == 1u << 31 && &unit == &late.units[3 * 256]) unit |= 1000;
  CHECK(refusal(late) == start + "has a rule whose text begins at byte 1000 of 3");

  CharsmapFile open = map;
  open.texts.pop_back();
  CHECK(holds(refusal(open), "without the zero byte"));

  CharsmapFile broken = map;
  broken.texts[0] = '\x80';
  CHECK(holds(refusal(broken), "not valid UTF-8"));

  CharsmapFile wordy = map;
  wordy.add("x", std::string(300, 'a'));
  CHECK(refusal(wordy) == start + "has a rule that writes 300 bytes; at most 255 are supported");
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
  const std::string refused =
      "m: not a sentencepiece model: its table of characters (precompiled_charsmap) has more than 32 rules for one "
      "beginning";
  CHECK(refusal(map) == refused);
  map.add("aaaaab", "b");  // the shorter way is seen after the longer one
  CHECK(refusal(map) == refused);
}

TEST_CASE("tokenizer_proto: the root of an index has no rule, and its offset may be one of the larger ones") {
  CharsmapFile map;
  map.add("\u00E9", "ab");
  CharsmapFile leaf = map;
  leaf.units[0] |= 1u << 8;
  leaf.units[256] = 1u << 31 | 1000;
  CharsmapFile large = map;
  large.units[0] = 1u << 10 | 1u << 9;  // once 256
  for (const CharsmapFile* file : {&leaf, &large})
    CHECK(ids_of(sentencepiece_file(file->bytes()), "a\u00E9") == std::vector<std::int32_t>{3, 1, 1, 2});
  large.add("x", std::string(256, 'a'));
  CHECK(holds(refusal(large), "has a rule that writes 256 bytes; at most 255 are supported"));
}

TEST_CASE("tokenizer_proto: a model has as many pieces as there are ids, and no more") {
  const std::string where = "m", one = "\x0A\x03\x0A\x01x";
  std::string all;
  for (int i = 0; i < 1 << 20; ++i) all += one;
  const auto told = [&](const std::string& proto) {
    return message_of([&] { (void)tokenizer::detail::SentencePieceCheck(where).read(proto); });
  };
  CHECK(told(all) == "nothing was thrown");
  CHECK(told(all + one) == concat("m: not a sentencepiece model: byte ", all.size() + 2, ": more than 1048576 pieces"));
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
  std::string others, word;
  for (int i = 0; i < 64; ++i) others += piece(word += 'y', 0, 4);
  CHECK(with(others + nested) == "nothing was thrown");
  CHECK(with(nested + piece(text + 'x', 0, 4)) ==
        "m: not a sentencepiece model: more than 64 of its user-defined pieces begin with each other, the last of them "
        "\"" +
            text + "x\"");
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
      tokenizer.encode("All \u00E9 e\u0301 human \uFB01 b\u0000eings", true, ids, begins);
      for (const auto id : ids) (void)tokenizer.bytes_of(id);
      ++sound;
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(sound > 10);
  CHECK(refused > 100);
}

TEST_CASE("tokenizer_proto: an error names the byte in the file at which it was seen") {
  const auto with = [](const std::string& extra) { return refusal(extra); };
  const std::string start = "m: not a sentencepiece model: byte ";
  CHECK(with("\x0A\x03\x0A\x05"
             "a") == start + "4: a field of 5 bytes, but only 1 are left");
  CHECK(with("\x0A\x80") == start + "2: a number is cut short");
  CHECK(with("\x01") == start + "1: no field begins here");
  CHECK(with("\x0E\x01") == start + "1: no field begins here");
  CHECK(with("\x0C") == start + "1: field 1 is a group, which such a file does not have");
  CHECK(with("\x0B") == start + "1: field 1 is a group, which such a file does not have");
  CHECK(with(std::string(10, '\x80') + "\x01") == start + "10: a number has more than ten bytes");
  CHECK(with("\x80\x80\x80\x80\x10") == start + "5: no field begins here");  // field 2^29
  CHECK(with("\x0D\x01\x01") == start + "1: a field of 4 bytes, but only 2 are left");
  CHECK(with("\x09\x01\x01\x01\x01\x01\x01\x01") == start + "1: a field of 8 bytes, but only 7 are left");
  CHECK(with(std::string("\x22\x01x") + "\x08\x01") ==
        start + "5: field 1 is not of the type that it has in such a file");
  CHECK(with("") == "m: not a sentencepiece model: it has no pieces");
  CHECK(with(piece("a") + piece("")) ==
        start + concat(2 * piece("a").size() - 1, ": piece 1 has 0 bytes; expected 1 to 7999"));
}

TEST_CASE("tokenizer_proto: numbers of ten bytes are read whole") {
  const std::string where = "m";
  const auto first = [&](std::string_view bytes) {
    return tokenizer::detail::ProtoReader(bytes, 0, where).next().value();
  };
  CHECK(first("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01").value == std::numeric_limits<std::uint64_t>::max());
  CHECK(first("\x08\xAC\x02").value == 300);
  CHECK(first("\x0D\x01\x02\x03\x04").value == 0x04030201);
  CHECK(first("\x11\x01\x02\x03\x04\x05\x06\x07\x08").value == 0x0807060504030201);
  CHECK(first("\x11\x01\x02\x03\x04\x05\x06\x07\x08").number == 2);
  CHECK(first("\x82\x01\x02xyz").number == 16);
  CHECK(first("\x82\x01\x02xyz").bytes == "xy");
  CHECK(first("\x82\x01\x02xyz").whole == "\x82\x01\x02xy");
  CHECK(first("\xF8\xFF\xFF\xFF\x0F\x05").number == (1u << 29) - 1);
  tokenizer::detail::ProtoReader reader("\x0A\x01x\x12\x02yz", 100, where);
  CHECK(reader.place_of(reader.next().value()) == 102);
  CHECK(reader.place_of(reader.next().value()) == 105);
  CHECK_FALSE(reader.next());
}

TEST_CASE("tokenizer_proto: each field of a piece, a trainer and a normalizer must be of its type") {
  const auto field = [](std::uint32_t message, auto&& put) {
    ProtoWriter part, model;
    put(part);
    model.put_bytes(message, part.bytes());
    return refusal(sentencepiece_file("", model.bytes()));
  };
  const auto number = [&](std::uint32_t message, std::uint32_t which, std::uint64_t value) {
    return field(message, [&](ProtoWriter& part) { part.put_integer(which, value); });
  };
  const auto text = [&](std::uint32_t message, std::uint32_t which, std::string_view value) {
    return field(message, [&](ProtoWriter& part) { part.put_bytes(which, value); });
  };
  const std::string type = "is not of the type that it has in such a file";
  CHECK(holds(number(1, 1, 5), "field 1 " + type));
  CHECK(holds(number(1, 2, 5), "field 2 " + type));
  CHECK(holds(text(1, 3, "x"), "field 3 " + type));
  for (const std::uint32_t which : {3u, 24u, 35u})
    CHECK(holds(text(2, which, "x"), concat("field ", which, " ", type)));
  for (std::uint32_t which = 44; which <= 48; ++which) {
    CHECK(holds(number(2, which, 1), concat("field ", which, " ", type)));
    CHECK(holds(text(2, which, "\xFF"), "a text is not valid UTF-8, or has a zero byte"));
  }
  for (const std::uint32_t which : {43u, 49u}) CHECK_FALSE(holds(text(2, which, "\xFF"), "a text is not valid UTF-8"));
  CHECK(holds(number(3, 2, 1), "field 2 " + type));
  CHECK(holds(text(3, 2, "ab"), "only 2 bytes"));
  CHECK(holds(text(5, 2, "ab"), "only 2 bytes"));
  for (std::uint32_t which = 3; which <= 5; ++which)
    CHECK(holds(text(3, which, "x"), concat("field ", which, " ", type)));
  for (const std::uint64_t kind : {0u, 5u})
    CHECK(holds(number(2, 3, kind), concat("model_type is ", kind, "; expected 1 to 4")));
  CHECK_FALSE(holds(number(2, 3, 4), "expected 1 to 4"));
  CHECK(holds(refusal(sentencepiece_file("", piece("c", 0, 0))), "piece 4 is of kind 0; expected 1 to 6"));
}

TEST_CASE("tokenizer_proto: what a model says of itself is its last word") {
  using tokenizer::detail::is_bpe_model, tokenizer::detail::sentencepiece_normalizer;
  const auto part = [](std::uint32_t message, std::uint32_t which, std::uint64_t value) {
    ProtoWriter field, model;
    field.put_integer(which, value);
    model.put_bytes(message, field.bytes());
    return model.bytes();
  };
  CHECK_FALSE(is_bpe_model("", "m"));
  CHECK(is_bpe_model(part(2, 3, 2), "m"));
  CHECK_FALSE(is_bpe_model(part(2, 3, 1), "m"));
  CHECK_FALSE(is_bpe_model(part(3, 3, 2), "m"));
  CHECK_FALSE(is_bpe_model(part(2, 4, 2), "m"));
  CHECK_FALSE(is_bpe_model(part(2, 3, 2) + part(2, 3, 1), "m"));
  CHECK(is_bpe_model(part(2, 3, 2) + part(2, 4, 1), "m"));
  CHECK(sentencepiece_normalizer("", "m").adds_dummy_prefix);
  CHECK_FALSE(sentencepiece_normalizer("", "m").has_charsmap);
  CHECK_FALSE(sentencepiece_normalizer(part(3, 3, 0), "m").adds_dummy_prefix);
  CHECK(sentencepiece_normalizer(part(3, 3, 1), "m").adds_dummy_prefix);
  CHECK(sentencepiece_normalizer(part(2, 3, 0) + part(3, 4, 0) + part(5, 3, 0), "m").adds_dummy_prefix);
  CHECK(sentencepiece_normalizer("", "m").strips_spaces);
  CHECK_FALSE(sentencepiece_normalizer(part(3, 4, 0), "m").strips_spaces);
  CHECK(sentencepiece_normalizer(part(3, 4, 0) + part(3, 4, 1), "m").strips_spaces);
  CharsmapFile map;
  map.add("\u00E9", "e");
  CHECK(sentencepiece_normalizer(sentencepiece_file(map.bytes()), "m").has_charsmap);
  CHECK_FALSE(sentencepiece_normalizer(sentencepiece_file(""), "m").has_charsmap);
  CHECK(tokenizer::SentencePieceModel(sentencepiece_file(map.bytes()), "m").growth() == 255);
  CHECK(tokenizer::SentencePieceModel(sentencepiece_file(""), "m").growth() == 3);
}

TEST_CASE("tokenizer_proto: an index is whole units, within the field, and a rule's text begins with a character") {
  const std::string start = "m: not a sentencepiece model: its table of characters (precompiled_charsmap) ";
  const auto sized = [](std::uint32_t size, std::size_t rest) {
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    return refusal(sentencepiece_file(bytes + std::string(rest, '\0')));
  };
  const auto refused = [&](std::uint32_t size, std::size_t rest) {
    return start +
           concat("says that its index takes ", size, " of the ", rest, " bytes that follow; expected whole units");
  };
  CHECK(sized(0, 8) == refused(0, 8));
  CHECK(sized(6, 8) == refused(6, 8));
  CHECK(sized(12, 8) == refused(12, 8));
  CHECK(sized(8, 8) == start + "has rules without the zero byte at their end");
  CHECK(refusal(sentencepiece_file("abc")) == start + "has only 3 bytes");
  CHECK(sized(4, 5) == start + "leads from unit 0 to unit 0, outside of its 1");

  CharsmapFile map;
  map.add("\u00E9", "\u00E8");
  CHECK(refusal(map) == "nothing was thrown");
  CharsmapFile within = map, end = map;
  within.units[3 * 256] = 1u << 31 | 1;
  CHECK(refusal(within) == start + "has a rule whose text begins at byte 1, within a character");
  end.units[3 * 256] = 1u << 31 | 2;
  CHECK(refusal(end) == "nothing was thrown");  // it writes nothing
  end.units[3 * 256] = 1u << 31 | 3;
  CHECK(refusal(end) == start + "has a rule whose text begins at byte 3 of 3");
  CharsmapFile late = map;
  late.add("\u00E8", "ok");
  late.texts[3] = '\x80';
  CHECK(refusal(late) == start + "writes text that is not valid UTF-8, at its byte 3");
}

}  // namespace tokenizer_proto_test
