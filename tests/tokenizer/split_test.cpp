#include "lora/tokenizer/split.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/effort.hpp"
#include "support/tokenizer_files.hpp"

namespace tokenizer_split_test {

using namespace lora::tokenizer;
using lora::io::Json;

namespace {

using Words = std::vector<std::string>;
using Stage = PreTokenizer::Stage;
using Behavior = PreTokenizer::Behavior;

Words split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Words words;
  pre_tokenizer.split(text, [&](std::string_view word, std::size_t place, std::size_t added) {
    CHECK(text.substr(place, word.size() - added) == word.substr(added));
    words.emplace_back(word);
  });
  return words;
}

Words by_pattern(const WordPattern& pattern, std::string_view text) {
  PreTokenizer pre_tokenizer;
  Stage stage;
  stage.pattern = pattern;
  pre_tokenizer.add(stage);
  return split(pre_tokenizer, text);
}

Words by_literal(Behavior behavior, bool invert, std::string_view text, std::string literal = "-") {
  PreTokenizer pre_tokenizer;
  Stage stage;
  stage.kind = Stage::Kind::literal;
  stage.literal = std::move(literal);
  stage.behavior = behavior;
  stage.invert = invert;
  pre_tokenizer.add(stage);
  return split(pre_tokenizer, text);
}

}  // namespace

TEST_CASE("tokenizer_split: GPT-2's words") {
  const auto words = [](std::string_view text) { return by_pattern(WordPattern::gpt2(), text); };
  CHECK(words("Hello world's 123abc!?") == Words{"Hello", " world", "'s", " 123", "abc", "!?"});
  CHECK(words("they'll THEY'LL") == Words{"they", "'ll", " THEY", "'", "LL"});
  CHECK(words("a  b\n c") == Words{"a", " ", " b", "\n", " c"});
  CHECK(words("a \n") == Words{"a", " \n"});
  CHECK(words("\u00A0\u00A0x\t") == Words{"\u00A0", "\u00A0", "x", "\t"});
  CHECK(words(" ") == Words{" "});
  CHECK(words("").empty());
}

TEST_CASE("tokenizer_split: Qwen2's words") {
  const auto words = [](std::string_view text) {
    return by_pattern(WordPattern::from_regex(WordPattern::qwen2_regex).value(), text);
  };
  CHECK(words("It'S 12 (foo)_bar") == Words{"It", "'S", " ", "1", "2", " (", "foo", ")_", "bar"});
  CHECK(words("we'\u017F") == Words{"we", "'\u017F"});
  CHECK(words("a.\r\n\n b") == Words{"a", ".\r\n\n", " b"});
  CHECK(words("a \n \t\nb") == Words{"a", " \n \t\n", "b"});
  CHECK(words("a   b") == Words{"a", "  ", " b"});
  CHECK(words("\tx \u3000y") == Words{"\tx", " ", "\u3000y"});
  CHECK(words(" \n") == Words{" \n"});
  CHECK(words("\nx") == Words{"\n", "x"});
  CHECK(words("'") == Words{"'"});
}

TEST_CASE("tokenizer_split: Llama 3's words have up to three digits") {
  const auto pattern = WordPattern::from_regex(WordPattern::llama3_regex).value();
  CHECK(by_pattern(pattern, "1234567 \u0663\u0664\u0665\u0666") ==
        Words{"123", "456", "7", " ", "\u0663\u0664\u0665", "\u0666"});
}

TEST_CASE("tokenizer_split: a regular expression that is not known has no pattern") {
  CHECK_FALSE(WordPattern::from_regex("\\s+"));
  CHECK_FALSE(WordPattern::from_regex(std::string(WordPattern::qwen2_regex) + " "));
}

TEST_CASE("tokenizer_split: what becomes of a match") {
  const std::string_view text = "the--end-";
  CHECK(by_literal(Behavior::isolated, false, text) == Words{"the", "-", "-", "end", "-"});
  CHECK(by_literal(Behavior::removed, false, text) == Words{"the", "end"});
  CHECK(by_literal(Behavior::merged_with_previous, false, text) == Words{"the-", "-", "end-"});
  CHECK(by_literal(Behavior::merged_with_next, false, text) == Words{"the", "-", "-end", "-"});
  CHECK(by_literal(Behavior::contiguous, false, text) == Words{"the", "--", "end", "-"});
  CHECK(by_literal(Behavior::removed, true, text) == Words{"-", "-", "-"});
  // One of several bytes is found whole, and from its end on.
  CHECK(by_literal(Behavior::isolated, false, "a--b---", "--") == Words{"a", "--", "b", "--", "-"});
  CHECK(by_literal(Behavior::removed, false, "a--b---", "--") == Words{"a", "b", "-"});
  CHECK(by_literal(Behavior::merged_with_next, false, "a\u2581b\u2581", "\u2581") == Words{"a", "\u2581b", "\u2581"});
  CHECK(by_literal(Behavior::isolated, true, "--a--", "--") == Words{"--", "a", "--"});
}

TEST_CASE("tokenizer_split: stages cut what the ones before left, and a prefix goes before each piece") {
  PreTokenizer pre_tokenizer;
  Stage digits;
  digits.kind = Stage::Kind::digits;
  pre_tokenizer.add(digits);
  Stage prefix;
  prefix.kind = Stage::Kind::prefix;
  prefix.pattern = WordPattern::gpt2();
  pre_tokenizer.add(prefix);
  CHECK(split(pre_tokenizer, "a b12\u00BD c") == Words{" a", " b", " 1", " 2", " \u00BD", " c"});
}

TEST_CASE("tokenizer_split: every regular expression that is known cuts all texts as the reference does") {
  const Json fixture = lora::test::packed_json("words.json.z");
  const auto group = fixture["group"].get<std::size_t>();
  std::vector<std::string> blocks;
  for (char32_t block = 0; block < 0x200; ++block) blocks.push_back(lora::test::block_text(block));
  CHECK(fixture["patterns"].size() == 6);
  for (const Json& expected : fixture["patterns"]) {
    const auto regex = expected["regex"].get<std::string>();
    PreTokenizer pre_tokenizer;
    Stage stage;
    stage.pattern = WordPattern::from_regex(regex);
    REQUIRE(stage.pattern);
    pre_tokenizer.add(stage);
    // As group_sums in tests/make/tokenizer_fixtures.py.
    const auto check = [&](const std::vector<std::string>& texts, const Json& sums, std::size_t every) {
      REQUIRE(sums.size() == (texts.size() + group - 1) / group);
      for (std::size_t i = 0; i < sums.size(); i += every) {
        const std::size_t begin = i * group, end = std::min(begin + group, texts.size());
        std::vector<std::int32_t> numbers;
        for (std::size_t text = begin; text < end; ++text) {
          const std::size_t count = numbers.size();
          numbers.push_back(0);
          pre_tokenizer.split(texts[text], [&](std::string_view, std::size_t place, std::size_t) {
            numbers.push_back(static_cast<std::int32_t>(place));
          });
          numbers[count] = static_cast<std::int32_t>(numbers.size() - count - 1);
        }
        const auto sum =
            lora::test::checksum({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]});
        CHECK_MESSAGE(sum == sums[i].get<std::uint32_t>(), regex, ": of texts ", begin, " to ", end - 1);
      }
    };
    check(lora::test::texts(), expected["texts"],
          lora::test::effort<std::size_t>(1, 20, "tokenizer_split: 19 of 20 texts"));
    check(blocks, expected["blocks"],
          lora::test::effort<std::size_t>(1, 4, "tokenizer_split: three of four blocks of code points"));
  }
}

TEST_CASE("tokenizer_split: words cut by a pattern may be removed, merged or inverted as other matches are") {
  const auto words = [](Behavior behavior, bool invert) {
    PreTokenizer pre_tokenizer;
    Stage stage;
    stage.pattern = WordPattern::gpt2();
    stage.behavior = behavior;
    stage.invert = invert;
    pre_tokenizer.add(stage);
    return split(pre_tokenizer, "a bc 1");
  };
  CHECK(words(Behavior::isolated, false) == Words{"a", " bc", " 1"});
  CHECK(words(Behavior::isolated, true) == Words{"a", " bc", " 1"});
  CHECK(words(Behavior::removed, true) == Words{"a", " bc", " 1"});
  CHECK(words(Behavior::removed, false).empty());
  CHECK(words(Behavior::contiguous, false) == Words{"a bc 1"});
  CHECK(words(Behavior::contiguous, true) == Words{"a bc 1"});
  CHECK(words(Behavior::merged_with_previous, true) == Words{"a", " bc", " 1"});
}

TEST_CASE("tokenizer_split: digits are matches of their own, or together") {
  const auto words = [](Behavior behavior, std::string_view text) {
    PreTokenizer pre_tokenizer;
    Stage stage;
    stage.kind = Stage::Kind::digits;
    stage.behavior = behavior;
    pre_tokenizer.add(stage);
    return split(pre_tokenizer, text);
  };
  CHECK(words(Behavior::isolated, "a12 \u0663b") == Words{"a", "1", "2", " ", "\u0663", "b"});
  CHECK(words(Behavior::contiguous, "12a345") == Words{"12", "a", "345"});
  CHECK(words(Behavior::removed, "12a345").size() == 1);
  CHECK(words(Behavior::contiguous, "ab") == Words{"ab"});
}

TEST_CASE("tokenizer_split: a prefix is put before a text without a space, and places are those of the text") {
  const auto places = [](bool with_pattern, std::string_view text) {
    PreTokenizer pre_tokenizer;
    Stage stage;
    stage.kind = Stage::Kind::prefix;
    if (with_pattern) stage.pattern = WordPattern::gpt2();
    pre_tokenizer.add(stage);
    std::string told;
    pre_tokenizer.split(text, [&](std::string_view word, std::size_t place, std::size_t added) {
      told += "[" + std::string(word) + "@" + std::to_string(place) + "+" + std::to_string(added) + "]";
    });
    return told;
  };
  CHECK(places(true, "ab c") == "[ ab@0+1][ c@2+0]");
  CHECK(places(true, " ab c") == "[ ab@0+0][ c@3+0]");
  CHECK(places(false, "ab c") == "[ ab c@0+1]");
  CHECK(places(false, " ab") == "[ ab@0+0]");
  CHECK(places(true, "").empty());
  CHECK(places(true, "\tx") == "[ @0+1][\t@0+0][x@1+0]");
}

TEST_CASE("tokenizer_split: all that decides how a text is cut is in the fingerprint, equal patterns are equal") {
  const auto print = [](auto&& change) {
    PreTokenizer pre_tokenizer;
    Stage stage;
    stage.pattern = WordPattern::gpt2();
    change(stage);
    pre_tokenizer.add(stage);
    return pre_tokenizer.fingerprint();
  };
  const auto plain = print([](Stage&) {});
  CHECK(plain == print([](Stage&) {}));
  CHECK(plain != print([](Stage& stage) { stage.kind = Stage::Kind::prefix; }));
  CHECK(plain != print([](Stage& stage) { stage.behavior = Behavior::contiguous; }));
  CHECK(plain != print([](Stage& stage) { stage.invert = true; }));
  CHECK(plain != print([](Stage& stage) { stage.literal = "x"; }));
  CHECK(plain != print([](Stage& stage) { stage.pattern.reset(); }));
  const auto with = [&](std::string_view regex) {
    return print([&](Stage& stage) { stage.pattern = WordPattern::from_regex(regex).value(); });
  };
  CHECK(with(WordPattern::qwen2_regex) != with(WordPattern::llama3_regex));
  CHECK(with(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") == plain);
  CHECK(WordPattern::from_regex(WordPattern::llama3_regex)->regex() == WordPattern::llama3_regex);
  CHECK(WordPattern::from_regex(WordPattern::qwen2_regex)->regex() == WordPattern::qwen2_regex);
}

}  // namespace tokenizer_split_test
