#include "lora/tokenizer/normalizer.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tokenizer_normalizer_test {

using namespace lora;
using tokenizer::Normalizer;
using Kind = Normalizer::Step::Kind;
using Begins = std::vector<std::size_t>;

namespace {

Normalizer of(std::vector<Normalizer::Step> steps) {
  Normalizer made;
  for (auto& step : steps) made.add(std::move(step));
  return made;
}

}  // namespace

TEST_CASE("tokenizer_normalizer: steps follow each other, and each byte knows where it comes from") {
  const auto made = of({{.kind = Kind::prepend, .to = "_ "}, {.kind = Kind::replace, .from = " ", .to = "--"}})("a b");
  CHECK(made.text == "_--a--b");
  CHECK(made.begins == Begins{0, 0, 0, 0, 1, 1, 2});
  // What replaces several code points is where the last of them was.
  const auto last = of({{.kind = Kind::replace, .from = "ab", .to = "xyz"}})("cab");
  CHECK(last.text == "cxyz");
  CHECK(last.begins == Begins{0, 2, 2, 2});
  const auto composed =
      of({{.kind = Kind::nfc}, {.kind = Kind::replace, .from = "\u00E9", .to = "e"}})("ae\u0301e\u0301b");
  CHECK(composed.text == "aeeb");
  CHECK(composed.begins == Begins{0, 1, 4, 7});
  CHECK(of({})("a\u00E9").begins == Begins{0, 1, 1});
  CHECK(of({{.kind = Kind::replace, .from = "aa", .to = ""}})("aaa").text == "a");
}

TEST_CASE(
    "tokenizer_normalizer: a mark is put where none is, before the first part or before all; nothing before nothing") {
  for (const bool first : {true, false}) {
    CHECK(of({{.kind = Kind::mark, .to = "_"}})("a", first).text == "_a");
    CHECK(of({{.kind = Kind::mark_first, .to = "_"}})("a", first).text == (first ? "_a" : "a"));
    CHECK(of({{.kind = Kind::prepend, .to = "_"}})("_a", first).text == "__a");
    for (const Kind kind : {Kind::mark, Kind::mark_first})
      CHECK(of({{.kind = kind, .to = "_"}})("_a", first).text == "_a");
    for (const Kind kind : {Kind::mark, Kind::mark_first, Kind::prepend}) {
      CHECK(of({{.kind = kind, .to = "_"}})("", first).text.empty());
      CHECK(of({{.kind = Kind::replace, .from = "a", .to = ""}, {.kind = kind, .to = "_"}})("aa", first).text.empty());
    }
  }
}

TEST_CASE("tokenizer_normalizer: how long a text may become, what changes it and what it says of itself") {
  CHECK(of({}).growth() == 1);
  CHECK(of({{.kind = Kind::nfc}}).growth() == 3);
  CHECK(of({{.kind = Kind::replace, .from = " ", .to = "\u2581"}, {.kind = Kind::mark, .to = "\u2581"}}).growth() == 6);
  CHECK(of({{.kind = Kind::prepend, .to = "ab"}, {.kind = Kind::replace, .from = "ab", .to = "xyz"}}).growth(2) == 8);
  CHECK(of({{.kind = Kind::replace, .from = "abc", .to = "a"}}).growth(5) == 5);
  std::vector<Normalizer::Step> many(200, {.kind = Kind::replace, .from = "a", .to = std::string(1000, 'a')});
  CHECK(of(many).growth() == std::size_t{1} << 32);

  CHECK_FALSE(of({}).changes("e\u0301"));
  CHECK_FALSE(of({{.kind = Kind::nfc}}).changes("e"));
  CHECK(of({{.kind = Kind::nfc}}).changes("e\u0301"));
  CHECK(of({{.kind = Kind::prepend, .to = "a"}}).changes("e"));
  CHECK(of({{.kind = Kind::nfc}}).is_nfc());
  CHECK_FALSE(of({}).is_nfc());
  CHECK_FALSE(of({{.kind = Kind::nfc}, {.kind = Kind::nfc}}).is_nfc());

  CHECK(of({}).text().empty());
  CHECK(of({{.kind = Kind::nfc}}).text() == "NFC");
  CHECK(of({{.kind = Kind::replace, .from = " ", .to = "a "}, {.kind = Kind::mark_first, .to = "_"}}).text() ==
        "replace 1   2 a , mark first 0  1 _");
}

}  // namespace tokenizer_normalizer_test
