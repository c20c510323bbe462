// Text as its tokens come: whole characters, and nothing of a stop text.

#include "lora/tokenizer/text_stream.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "support/tokenizer_files.hpp"

namespace text_stream_test {

using namespace lora;

TEST_CASE("text_stream: all pieces together are the decoded answer up to its stop, which is seen when it is complete") {
  const std::vector<tokenizer::Tokenizer> tokenizers = {
      tokenizer::Tokenizer::from_json(test::tokenizer_json("smollm2"), "smollm2"),
      tokenizer::Tokenizer::from_file(test::tokenizer_data("pieces_bpe.model"))};
  const std::vector<std::string> stops = {"", "\u4E2D\u6587", "on t", " \xF0\x9F\x98\x80", "\uFFFDa", "ee"};
  for (const auto& tokenizer : tokenizers) {
    const std::string text = "All human \u4E2D beings \xF0\x9F\x98\x80 are born free and equal in dignity.\n on";
    const auto pieces = tokenizer.encode(text).ids;
    int found = 0;
    for (unsigned seed = 0; seed < 60; ++seed) {
      std::mt19937 random(seed);
      std::vector<std::int32_t> answer;
      const auto used = std::span(stops).subspan(seed % 3, 4);
      tokenizer::TextStream stream(tokenizer, used);
      std::string given;
      for (int i = 0; i < 150 && !stream.stopped(); ++i) {
        answer.push_back(random() % 4 == 0 ? static_cast<std::int32_t>(random() % 256) + 3
                                           : pieces[random() % pieces.size()]);
        const std::string all = tokenizer.decode(answer, true);
        given += stream.add(answer.back());
        REQUIRE(stream.stopped() == (tokenizer::cut_at_stops(all, used).size() < all.size()));
        REQUIRE(all.starts_with(given));
      }
      if (stream.stopped()) ++found;
      given += stream.finish();
      CHECK(given == tokenizer::cut_at_stops(tokenizer.decode(answer, true), used));
      CHECK(stream.add(pieces[0]).empty() == stream.stopped());
    }
    CHECK(found > 5);
  }
}

TEST_CASE("text_stream: a character comes when it is whole, and text that may begin a stop when it does not") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::tokenizer_json("smollm2"), "smollm2");
  tokenizer::TextStream plain(tokenizer);
  std::string given;
  for (const auto id : tokenizer.encode("a\u4E2Db").ids) {
    given += plain.add(id);
    CHECK((given == "" || given == "a" || given == "a\u4E2D" || given == "a\u4E2Db"));
  }
  CHECK(given == "a\u4E2Db");
  const std::vector<std::string> stops = {"xyz", "y!"};
  tokenizer::TextStream held(tokenizer, stops);
  const auto add = [&](const char* text) {
    std::string all;
    for (const auto id : tokenizer.encode(text).ids) all += held.add(id);
    return all;
  };
  CHECK(add("a") == "a");
  CHECK(add("x").empty());
  CHECK(add("y").empty());
  CHECK(add("?") == "xy?");
  CHECK(add("x").empty());
  CHECK(add("y").empty());
  CHECK(add("!") == "x");
  CHECK(held.stopped());
  CHECK(held.finish().empty());
  CHECK(held.add(tokenizer.encode("a").ids[0]).empty());
}

TEST_CASE("text_stream: what follows an answer that has ended is another answer") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::tokenizer_json("smollm2"), "smollm2");
  const std::vector<std::string> stops = {"xyz"};
  tokenizer::TextStream stream(tokenizer, stops);
  const auto pieces = tokenizer.encode(" All human beings\U0001F9FF").ids;
  const auto words = tokenizer.encode(" All human beings xy").ids;
  for (int round = 0; round < 3; ++round) {
    std::string given;
    for (const auto id : words) given += stream.add(id);
    CHECK(given == " All human beings ");
    CHECK(stream.finish() == "xy");  // might have been a stop
    given.clear();
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) given += stream.add(pieces[i]);
    CHECK(given == " All human beings");
    CHECK(stream.finish() == "\uFFFD");  // what has come of a character
    CHECK(stream.finish().empty());
    CHECK_FALSE(stream.stopped());
  }
}

TEST_CASE("text_stream: a long stop of many tokens is seen whole") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::tokenizer_json("smollm2"), "smollm2");
  std::string sentence;
  for (int i = 0; i < 20; ++i) sentence += " all human beings are born free";
  const std::vector<std::string> stops = {sentence, "."};
  tokenizer::TextStream stream(tokenizer, stops);
  std::string given;
  for (const auto id : tokenizer.encode("We say that" + sentence).ids) {
    REQUIRE_FALSE(stream.stopped());
    given += stream.add(id);
  }
  CHECK(stream.stopped());
  CHECK(given == "We say that");
}

TEST_CASE("text_stream: a text ends before the stop that comes first, and an empty stop is none") {
  const std::vector<std::string> stops = {"", "b", "ab", "zz"};
  const auto cut = [&](const char* text) { return tokenizer::cut_at_stops(text, stops); };
  CHECK(cut("xxaby") == "xx");
  CHECK(cut("bab").empty());
  CHECK(cut("xzzb") == "x");
  CHECK(cut("xyz") == "xyz");
  CHECK(cut("").empty());
  CHECK(tokenizer::cut_at_stops("ab", {}) == "ab");
}

}  // namespace text_stream_test
