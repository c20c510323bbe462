#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"
#include "support/effort.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_reference_test {

using namespace lora;
using tokenizer::Tokenizer;

namespace {

/// Reads the numbers of a packed fixture.
class Numbers {
 public:
  explicit Numbers(const std::string& file) : bytes_(test::unpacked(test::tokenizer_data(file))) {}

  template <class T>
  T next() {
    T value;
    REQUIRE(at_ + sizeof value <= bytes_.size());
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::vector<std::int32_t> next(std::int32_t count) {
    std::vector<std::int32_t> values;
    for (std::int32_t i = 0; i < count; ++i) values.push_back(next<std::int32_t>());
    return values;
  }
  bool done() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

std::vector<std::int32_t> begins_of(const Tokenizer::Encoding& encoding) {
  return {encoding.begins.begin(), encoding.begins.end()};
}

/// The text in quotes, with what is not plain ASCII as JSON escapes.
std::string shown(const std::string& text) { return io::Json(text).dump(-1, ' ', true).substr(0, 400); }

void check_texts(const Tokenizer& tokenizer, const std::string& name) {
  Numbers expected(name + ".ids.z");
  const auto all = test::texts();
  CHECK(all.size() == 6314);
  int wrong = 0;
  std::size_t number = 0;
  for (const std::string& text : all) {
    const auto count = expected.next<std::int32_t>();
    const auto whole = expected.next<std::uint32_t>(), without_special = expected.next<std::uint32_t>();
    const auto ids = expected.next(count), begins = expected.next(count);
    if (number++ % test::effort<std::size_t>(1, 20, "tokenizer_reference: 19 of 20 texts") != 0) continue;
    const auto encoding = tokenizer.encode(text);
    bool right = encoding.ids == ids && begins == begins_of(encoding);
    right = right && test::checksum(tokenizer.decode(ids)) == whole &&
            test::checksum(tokenizer.decode(ids, true)) == without_special;
    if (right || ++wrong > 10) continue;
    const std::string line = shown(text);
    CHECK_MESSAGE(encoding.ids == ids, name, ": ids of ", line);
    CHECK_MESSAGE(right, name, ": ids, places or decoded text of ", line);
  }
  CHECK_MESSAGE(wrong == 0, name, ": ", wrong, " of ", all.size(), " texts differ");
  CHECK(expected.done());
}

void check_blocks(const Tokenizer& tokenizer, const std::string& name) {
  Numbers expected(name + ".blocks.z");
  for (char32_t block = 0; block < 0x1100; ++block) {
    const auto wanted = expected.next<std::uint32_t>();
    // Most of the planes past the second are unassigned.
    if (block % test::effort<char32_t>(
                    1, block < 0x200 ? 4 : 64,
                    "tokenizer_reference: three of four blocks of code points, more of the higher ones") !=
        0)
      continue;
    const auto ids = tokenizer.encode(test::block_text(block)).ids;
    const auto sum = test::checksum({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
    const auto first = static_cast<unsigned>(block * 256);
    CHECK_MESSAGE(sum == wanted, name, ": a code point in the 256 from ", first, " on");
  }
  CHECK(expected.done());
}

/// What group_sums in tests/make/tokenizer_fixtures.py adds up for a text: ids, places and the text again; of
/// byte-level tokenizers the ids are framed, and the text comes without special tokens too.
void append_result(std::string& data, const Tokenizer& tokenizer, const std::string& text, bool is_byte_level) {
  const auto append = [&](const std::vector<std::int32_t>& numbers) {
    const auto count = static_cast<std::int32_t>(numbers.size());
    data.append(reinterpret_cast<const char*>(&count), sizeof count);
    data.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof count);
  };
  const auto plain = tokenizer.encode(text);
  append(is_byte_level ? tokenizer.encode(text, true).ids : plain.ids);
  append(begins_of(plain));
  data += tokenizer.decode(plain.ids);
  if (is_byte_level) data += tokenizer.decode(plain.ids, true);
}

/// Compares a small tokenizer on all texts, by checksums of groups of them.
void check_sums(const Tokenizer& tokenizer, const std::string& name, bool is_byte_level) {
  static const auto all = test::texts();
  static const io::Json fixture = test::packed_json("sums.json.z");
  const auto group = fixture["group"].get<std::size_t>();
  const io::Json& sums = fixture["sums"][name];
  REQUIRE(sums.size() == (all.size() + group - 1) / group);
  for (std::size_t i = 0; i < sums.size();
       i += test::effort<std::size_t>(1, 20, "tokenizer_reference: 19 of 20 checksums")) {
    const std::size_t begin = i * group, end = std::min(begin + group, all.size());
    std::string data;
    for (std::size_t text = begin; text < end; ++text) append_result(data, tokenizer, all[text], is_byte_level);
    CHECK_MESSAGE(test::checksum(data) == sums[i].get<std::uint32_t>(), name, ": of texts ", begin, " to ", end - 1);
  }
}

void check_tokenizer(const std::string& name) {
  const auto tokenizer = Tokenizer::from_json(test::tokenizer_json(name), name);
  check_texts(tokenizer, name);
  check_blocks(tokenizer, name);
}

}  // namespace

TEST_CASE("tokenizer: qwen2.5 gives the reference's ids, places and text") {
  if (test::effort(true, false, "tokenizer_reference: a tokenizer that differs in numbers only"))
    check_tokenizer("qwen2_5");
}
TEST_CASE("tokenizer: qwen3 gives the reference's ids, places and text") { check_tokenizer("qwen3"); }
TEST_CASE("tokenizer: smollm2 gives the reference's ids, places and text") { check_tokenizer("smollm2"); }

TEST_CASE("tokenizer: every kind of pre-tokenizer, added token and template gives the reference's ids") {
  const io::Json variants = test::packed_json("variants.json.z");
  CHECK(variants.size() == 32);
  for (const io::Json& variant : variants) {
    const auto name = variant["name"].get<std::string>();
    const auto tokenizer = Tokenizer::from_json(variant["tokenizer"].get<std::string>(), name);
    int wrong = 0;
    for (const io::Json& item : variant["cases"]) {
      const auto text = item[0].get<std::string>();
      const auto ids = tokenizer.encode(text, true).ids;
      const auto plain = tokenizer.encode(text);
      bool right = ids == item[1].get<std::vector<std::int32_t>>();
      right = right && begins_of(plain) == item[2].get<std::vector<std::int32_t>>();
      right = right && test::checksum(tokenizer.decode(plain.ids)) == item[3][0].get<std::uint32_t>() &&
              test::checksum(tokenizer.decode(plain.ids, true)) == item[3][1].get<std::uint32_t>();
      if (right || ++wrong > 5) continue;
      const std::string line = shown(text), got = io::Json(ids).dump(), places = io::Json(plain.begins).dump();
      const std::string wanted = item[1].dump(), begins = item[2].dump();
      CHECK_MESSAGE(right, name, ": ", line, "\n got ", got, "\nwant ", wanted, "\n got ", places, "\nwant ", begins);
    }
    CHECK_MESSAGE(wrong == 0, name, ": ", wrong, " texts differ");
    check_sums(tokenizer, name, true);
  }
}

TEST_CASE("tokenizer: sentencepiece models give the library's ids, places and text") {
  for (const std::string name : {"pieces_bpe", "pieces_unigram"})
    check_sums(Tokenizer::from_file(test::tokenizer_data(name + ".model")), name, false);
}

}  // namespace tokenizer_reference_test
