#include "lora/tokenizer/stop_text.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "support/tokenizer_files.hpp"

namespace stop_text_test {

using namespace lora;

TEST_CASE("stop_text: a stop is seen with the token that completes it, as by decoding all of the answer") {
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
      tokenizer::StopWatch watch(tokenizer, used);
      for (int i = 0; i < 150; ++i) {
        answer.push_back(random() % 4 == 0 ? static_cast<std::int32_t>(random() % 256) + 3
                                           : pieces[random() % pieces.size()]);
        const std::string all = tokenizer.decode(answer, true);
        const bool expected = tokenizer::cut_at_stops(all, used).size() < all.size();
        REQUIRE(watch.add(answer.back()) == expected);
        if (expected) {
          ++found;
          break;
        }
      }
    }
    CHECK(found > 5);
  }
}

TEST_CASE("stop_text: a long stop of many tokens is seen whole") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::tokenizer_json("smollm2"), "smollm2");
  std::string sentence;
  for (int i = 0; i < 20; ++i) sentence += " all human beings are born free";
  const std::vector<std::string> stops = {sentence, "."};
  tokenizer::StopWatch watch(tokenizer, stops);
  const auto answer = tokenizer.encode("We say that" + sentence).ids;
  REQUIRE(answer.size() > 100);
  for (std::size_t i = 0; i + 1 < answer.size(); ++i) REQUIRE_FALSE(watch.add(answer[i]));
  CHECK(watch.add(answer.back()));
}

TEST_CASE("stop_text: a text ends before the stop that comes first, and an empty stop is none") {
  const std::vector<std::string> stops = {"", "b", "ab", "zz"};
  const auto cut = [&](const char* text) { return tokenizer::cut_at_stops(text, stops); };
  CHECK(cut("xxaby") == "xx");
  CHECK(cut("bab").empty());
  CHECK(cut("xzzb") == "x");
  CHECK(cut("xyz") == "xyz");
  CHECK(cut("").empty());
  CHECK(tokenizer::cut_at_stops("ab", {}) == "ab");
}

}  // namespace stop_text_test
