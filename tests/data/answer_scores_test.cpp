#include "lora/data/chat/answer_scores.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/data/chat/chat_template_table.hpp"
#include "lora/io/formats/json_view.hpp"

namespace answer_scores_test {

using namespace lora;
using Words = std::vector<std::string>;

TEST_CASE("answer scores: ROUGE-L of ASCII texts is rouge_score's") {
  const std::filesystem::path path = std::filesystem::path(LORA_FIXTURES) / "rouge.json";
  const io::Json pairs = io::read_json(path);
  REQUIRE(pairs.size() == 86);
  double sum = 0;
  for (const io::Json& pair : pairs) {
    const auto answer = pair.at("answer").get<std::string>(), reference = pair.at("reference").get<std::string>();
    CAPTURE(answer);
    CAPTURE(reference);
    const double expected = pair.at("rouge_l");
    CHECK(data::rouge_l(answer, reference) == doctest::Approx(expected).epsilon(1e-12));
    sum += expected;
  }
  CHECK(sum > 10);  // not all nothing
}

TEST_CASE("answer scores: words of other scripts") {
  CHECK(data::words_of("Größe 3½ кот,КОТ") == Words{"größe", "3½", "кот", "КОТ"});
  CHECK(data::words_of("网络a1拓扑。") == Words{"网", "络", "a1", "拓", "扑"});
  CHECK(data::words_of("ひらがな 한국어") == Words{"ひ", "ら", "が", "な", "한국어"});
  CHECK(data::words_of("") == Words{});
  CHECK(data::words_of("A1Z@AZ[aZ") == Words{"a1z", "az", "az"});
  CHECK(data::rouge_l("网络拓扑", "网络") == doctest::Approx(2.0 * 2 / 6));
}

TEST_CASE("answer scores: means over the records, white space and reasoning aside") {
  const auto record = [](const std::string& answer) {
    data::Sample sample;
    sample.messages = {{"user", "?"}, {"assistant", answer}};
    return sample;
  };
  data::AnswerScores plain(std::nullopt), thinking(data::ChatTemplate::named("qwen3"));
  CHECK(plain.add(record("a b"), " a b\n").exact);
  CHECK_FALSE(plain.add(record("a b"), "a c").exact);
  CHECK_FALSE(plain.add(record("a b"), "<think>\nso\n</think>\n\na b").exact);
  CHECK(plain.answers() == 3);
  CHECK(plain.exact() == 1);
  CHECK(plain.exact_match() == doctest::Approx(1.0 / 3));
  CHECK(plain.rouge_l() == doctest::Approx((1 + 0.5 + 2.0 * 2 / 7) / 3));
  CHECK(thinking.add(record("a b"), "<think>\nso\n</think>\n\na b").exact);
  // Nothing, or thoughts alone, is an answer that is wrong.
  CHECK_FALSE(plain.add(record("a b"), "").exact);
  CHECK(plain.answers() == 4);
  CHECK(plain.exact_match() == doctest::Approx(1.0 / 4));
  CHECK(plain.rouge_l() == doctest::Approx((1 + 0.5 + 2.0 * 2 / 7) / 4));
  CHECK_FALSE(thinking.add(record("a b"), "<think>\nso\n</think>\n\n").exact);
  CHECK(thinking.answers() == 2);
  CHECK(thinking.exact_match() == 0.5);
}

TEST_CASE("answer scores: a call's arguments that are a text are compared as the template writes them") {
  data::Sample sample;
  sample.messages = {{"user", "?"}, {"assistant", ""}};
  sample.messages[1].tool_calls.push_back({"f", io::Json("{\"x\": 1}")});
  const std::string quoted = "<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}\n</tool_call>";
  const std::string plain = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  for (const auto& entry : data::detail::template_entries) {
    const auto chat = data::ChatTemplate::named(entry.name, "</s>");
    if (!chat.calls_tools()) continue;
    CAPTURE(entry.name);
    data::AnswerScores scores(chat);
    // What is scored as the answer is what is learned.
    const auto rendering = chat.render(sample.messages);
    REQUIRE(rendering.answers.size() == 1);
    const std::string learned = rendering.text.substr(rendering.answers[0].begin);
    const std::string expected = scores.expected(sample);
    CHECK(expected == (chat.quotes_texts() ? quoted : plain));
    CHECK(data::ChatTemplate::without_thoughts(learned) == expected + "<|im_end|>\n");
    CHECK(scores.add(sample, expected).exact);
    CHECK_FALSE(scores.add(sample, chat.quotes_texts() ? plain : quoted).exact);
  }
}

TEST_CASE("answer scores: letters that are words alone are those of Chinese and Japanese, to the last") {
  const std::pair<char32_t, bool> letters[] = {
      {0x3041, true},  {0x30A1, true},  {0x30FF, true},  {0x3105, false},  // Hiragana, Katakana; Bopomofo
      {0x3400, true},  {0x4DB5, true},  {0x4E00, true},  {0x9FA5, true},  {0xA000, false},  // ideographs; Yi
      {0xAC00, false}, {0xD7A3, false}, {0xF900, true},  {0xFAD9, true},  {0xFB00, false},  // Hangul; a ligature
      {0x20000, true}, {0x2A6D6, true}, {0x30000, true}, {0x10400, false}};  // two planes of ideographs; Deseret
  for (const auto& letter : letters) {
    const auto code = static_cast<std::uint32_t>(letter.first);
    CAPTURE(code);
    std::string twice;
    for (int i = 0; i < 2; ++i) tokenizer::unicode::append_utf8(twice, letter.first);
    CHECK(data::words_of(twice).size() == (letter.second ? 2 : 1));
  }
}

TEST_CASE("answer scores: reasoning is left out where a template's answers may begin with it") {
  data::Sample sample;
  sample.messages = {{"user", "?"}, {"assistant", "a b"}};
  for (const auto& entry : data::detail::template_entries) {
    CAPTURE(std::string(entry.name));
    data::AnswerScores scores(data::ChatTemplate::named(entry.name, "</s>"));
    const bool thinks = entry.name == "qwen3" || entry.name == "qwen3_thinking_2507" || entry.name == "smollm3";
    CHECK(scores.add(sample, "so\n</think>\n\na b").exact == thinks);
    CHECK(scores.exact() == (thinks ? 1 : 0));
    const auto other = scores.add(sample, "a c");
    CHECK_FALSE(other.exact);
    CHECK(other.rouge_l == doctest::Approx(0.5));
    CHECK(scores.answers() == 2);
  }
}

}  // namespace answer_scores_test
