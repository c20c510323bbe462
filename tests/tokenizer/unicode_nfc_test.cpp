#include "lora/tokenizer/unicode_nfc.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/tokenizer/unicode_tables.hpp"

namespace unicode_nfc_test {

using namespace lora;
using namespace lora::tokenizer;

namespace {

using Places = std::vector<std::size_t>;

/// The places of the code points of a normalized text.
Places places_of(const unicode::Normalized& normal) {
  Places places;
  for (std::size_t at = 0; at < normal.text.size(); at += unicode::code_point_at(normal.text, at).bytes)
    places.push_back(normal.begins[at]);
  return places;
}

}  // namespace

TEST_CASE("unicode_nfc: letters and marks, Hangul, singletons and exclusions") {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"e\u0301", "\u00E9"},
      {"\u00E9", "\u00E9"},
      {"a\u0301\u0323", "\u1EA1\u0301"},  // marks change places, the lower one joins
      {"a\u0323\u0302", "\u1EAD"},        // two join
      {"a\u0338\u0301", "\u00E1\u0338"},  // the second joins over the first, which is of a lower class
      {"a\u0315\u0301", "\u00E1\u0315"},
      {"a\u0305\u0301", "a\u0305\u0301"},  // blocked by one of its class
      {"a\u0301\u0301", "\u00E1\u0301"},
      {"\u0301a", "\u0301a"},
      {"\u212B", "\u00C5"},        // singleton
      {"\u0958", "\u0915\u093C"},  // composition exclusion
      {"\u1100\u1161\u11A8", "\uAC01"},
      {"\uAC00\u11A8", "\uAC01"},
      {"\uAC01\u11A8", "\uAC01\u11A8"},
      {"\u1100\u1100\u1161", "\u1100\uAC00"},
      // The last letters of each kind, and their neighbors, which are none of those that join.
      {"\u1112\u1175\u11C2", "\uD7A3"},
      {"\uD7A3", "\uD7A3"},
      {"\uD788\u11A8", "\uD789"},
      {"\u1112\u1175\u11A7", "\uD788\u11A7"},
      {"\u1112\u1175\u11C3", "\uD788\u11C3"},
      {"\u1112\u1176", "\u1112\u1176"},
      {"\u1113\u1161", "\u1113\u1161"},
      {"\u1112\u1160", "\u1112\u1160"},
      {"\u10FF\u1161", "\u10FF\u1161"},
      {"\u09C7\u09BE", "\u09CB"},  // starters that join
      {"\u0344", "\u0308\u0301"},
      {"\U0001D15E", "\U0001D157\U0001D165"},
  };
  for (const auto& [text, normal] : cases) CHECK(unicode::to_nfc(text).text == normal);
}

TEST_CASE("unicode_nfc: places in the text as given") {
  CHECK(places_of(unicode::to_nfc("abc")) == Places{0, 1, 2});
  CHECK(places_of(unicode::to_nfc("xe\u0301y")) == Places{0, 1, 4});
  CHECK(places_of(unicode::to_nfc("\u0958z")) == Places{0, 0, 3});
  CHECK(places_of(unicode::to_nfc("\u1100\u1161\u11A8!")) == Places{0, 9});
  CHECK(unicode::to_nfc("e\u0301").begins == Places{0, 0});
}

TEST_CASE("unicode_nfc: normalizing twice changes nothing more, and plain text is not changed at all") {
  Random random(7);
  std::vector<char32_t> pool;
  for (const auto& row : unicode::compositions) pool.insert(pool.end(), {row.first, row.second, row.whole});
  for (const auto& row : unicode::decompositions) pool.push_back(row.whole);
  for (const auto& row : unicode::combining_classes) pool.push_back(row.first);
  for (char32_t c = 0x1100; c < 0x1200; c += 3) pool.push_back(c);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::uint32_t i = random.below(8); i < 9; ++i)
      unicode::append_utf8(text, pool[random.below(static_cast<std::uint32_t>(pool.size()))]);
    const auto once = unicode::to_nfc(text);
    const bool same = unicode::to_nfc(once.text).text == once.text && once.begins.size() == once.text.size();
    if (!same) CHECK_MESSAGE(same, text);
  }
  for (char32_t c = 0; c < 0x300; ++c) {
    std::string text;
    unicode::append_utf8(text, c);
    CHECK(unicode::is_plainly_nfc(text));
    CHECK(unicode::to_nfc("a" + text + "b").text == "a" + text + "b");
  }
  CHECK_FALSE(unicode::is_plainly_nfc("e\u0301"));
}

}  // namespace unicode_nfc_test
