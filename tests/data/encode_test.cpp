#include "lora/data/batches/encode.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/data/chat/chat_template_table.hpp"
#include "lora/io/formats/json.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"
#include "support/template_fixtures.hpp"
#include "support/tokenizer_files.hpp"

namespace encode_test {

using namespace lora;
using data::ChatTemplate;
using data::EncodeOptions;
using data::Encoder;
using data::Example;
using data::Sample;

using Ids = std::vector<std::int32_t>;

namespace {

const tokenizer::Tokenizer& byte_tokenizer() {
  static const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(test::tool_marks), "test");
  return tokenizer;
}

Sample talk(std::vector<data::Message> messages) {
  Sample sample;
  sample.messages = std::move(messages);
  sample.where = "d.json:3";
  sample.record = 2;
  return sample;
}

Encoder encoder(const char* name, EncodeOptions options = {}) {
  return {&byte_tokenizer(), ChatTemplate::named(name), std::move(options)};
}

/// The text of the example with its labeled tokens in brackets.
std::string marked(const Example& example) { return data::preview(example, &byte_tokenizer()); }

}  // namespace

TEST_CASE("encode: ids, places and labels of real models equal the reference") {
  const auto conversations = test::template_lines("conversations");
  const auto sum_of = [](const auto& numbers) {
    const Ids ids(numbers.begin(), numbers.end());
    return test::checksum({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
  };
  std::optional<tokenizer::Tokenizer> loaded;
  for (const std::string name : {"smollm2", "qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_thinking_2507"}) {
    CAPTURE(name);
    const bool is_newer = name.starts_with("qwen3_");  // with the tokenizer that Qwen3 had
    if (name == "qwen2_5" && !test::effort(true, false, "encode: one of three tokenizers")) continue;
    if (!is_newer) loaded = tokenizer::Tokenizer::from_json(test::tokenizer_json(name), name);
    const tokenizer::Tokenizer& tokenizer = *loaded;
    const auto chat = ChatTemplate::named(name);
    const auto expected = test::template_lines(name + ".labels");
    REQUIRE(expected.size() == 500);
    for (std::size_t i = 0; i < expected.size();
         i += test::effort<std::size_t>(1, 50, "encode: 49 of 50 conversations")) {
      const io::Json& line = expected[i];
      CAPTURE(i);
      EncodeOptions options;
      options.render = test::template_options(conversations[i]);
      const auto messages = chat.turns_of(test::template_messages(conversations[i], name), options.render);
      const auto whole = tokenizer.encode(chat.render(messages, options.render).text);
      CHECK(whole.ids.size() == line["tokens"].get<std::size_t>());
      CHECK(sum_of(whole.ids) == line["ids"].get<std::uint32_t>());
      CHECK(sum_of(whole.begins) == line["places"].get<std::uint32_t>());
      // What follows the last answer is left out.
      const auto runs = line["labeled"].get<std::vector<std::pair<std::size_t, std::size_t>>>();
      const auto used = static_cast<std::ptrdiff_t>(runs.empty() ? whole.ids.size() : runs.back().second);
      Ids labels(static_cast<std::size_t>(used), -100);
      for (const auto& [begin, end] : runs)
        for (std::size_t token = begin; token < end; ++token) labels[token] = whole.ids[token];
      const auto example = Encoder(&tokenizer, chat, options)(talk(messages));
      CHECK(example.tokens == Ids(whole.ids.begin(), whole.ids.begin() + used));
      CHECK(example.labels == labels);
    }
  }
}

TEST_CASE("encode: answers and their end-of-turn tokens are labeled, and nothing follows the last") {
  const auto example =
      encoder("chatml")(talk({{"user", "hi"}, {"assistant", "yo"}, {"user", "?"}, {"assistant", "!"}}));
  CHECK(marked(example) ==
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n⟦yo<|im_end|>⟧\n"
        "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n⟦!<|im_end|>⟧");
  CHECK(example.record == 2);
  CHECK_FALSE(example.truncated);
  CHECK(example.labeled() == 5);
  CHECK(example.tokens.size() == example.labels.size());
}

TEST_CASE("encode: turns after the last answer are dropped") {
  const auto example = encoder("chatml")(talk({{"user", "a"}, {"assistant", "b"}, {"user", "c"}}));
  CHECK(marked(example) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n⟦b<|im_end|>⟧");
}

TEST_CASE("encode: the last turn only, and the prompt as well") {
  const auto sample = talk({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}});
  EncodeOptions last;
  last.train_on_last_turn_only = true;
  CHECK(marked(encoder("chatml", last)(sample)).find("⟦b") == std::string::npos);
  CHECK(marked(encoder("chatml", last)(sample)).ends_with("assistant\n⟦d<|im_end|>⟧"));
  EncodeOptions all;
  all.train_on_prompt = true;
  const auto example = encoder("chatml", all)(sample);
  CHECK(example.labels == example.tokens);
}

TEST_CASE("encode: a turn of the user that is marked as not learned is none that train_on_prompt may learn") {
  auto sample = talk({{"user", "a"}, {"assistant", "b"}});
  sample.messages[0].learned = false;
  CHECK(marked(encoder("chatml")(sample)).ends_with("⟦b<|im_end|>⟧"));
  const Encoder all = encoder("chatml", {.train_on_prompt = true});
  const char* const told =
      "d.json:3: a turn of the user is marked as not learned, but train_on_prompt learns all of them";
  CHECK_THROWS_WITH_AS(all(sample), told, FormatError);
  CHECK_THROWS_WITH_AS(all.check(sample), told, FormatError);
}

TEST_CASE("encode: what has no weight, or no answer, is not learned") {
  auto sample = talk({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}});
  const auto learned = [&](bool first, bool last, EncodeOptions options = {}) {
    sample.messages[1].learned = first;
    sample.messages[3].learned = last;
    return marked(encoder("chatml", options)(sample));
  };
  const std::string rest = "\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n";
  CHECK(learned(false, true) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>" + rest + "⟦d<|im_end|>⟧");
  CHECK(learned(true, false) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n⟦b<|im_end|>⟧");
  CHECK(learned(false, false) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>" + rest + "d<|im_end|>\n");
  CHECK(learned(true, false, {.train_on_last_turn_only = true}).find("⟦") == std::string::npos);
  CHECK(learned(true, false, {.train_on_prompt = true}) ==
        "⟦<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>" + rest + "⟧d<|im_end|>");

  for (const auto kind : {Sample::Kind::messages, Sample::Kind::text, Sample::Kind::tokens}) {
    Sample record = talk({{"user", "a"}, {"assistant", "b"}});
    record.kind = kind;
    record.text = "some text";
    record.tokens = record.labels = {5, 6, 7};
    for (const bool train_on_prompt : {false, true}) {
      const auto encode = encoder("chatml", {.train_on_prompt = train_on_prompt});
      CHECK(encode(record).labeled() > 0);
      record.learned = false;
      CHECK(encode(record).labeled() == 0);
      CHECK_FALSE(encode(record).unanswered);
      record.learned = true;
      record.unanswered = true;
      CHECK(encode(record).labeled() == 0);
      CHECK(encode(record).unanswered);
      record.unanswered = false;
    }
  }
}

TEST_CASE(
    "encode: an empty think block is learned or prompt, as enable_thinking says; reasoning is learned or left out") {
  EncodeOptions quiet;
  quiet.render.enable_thinking = false;
  const auto plain = talk({{"user", "a"}, {"assistant", "b"}});
  const auto thought = talk({{"user", "a"}, {"assistant", "b", "hm"}});
  const auto inside = talk({{"user", "a"}, {"assistant", "<think>\nhm\n</think>\n\nb"}});
  CHECK(marked(encoder("qwen3")(plain)).ends_with("assistant\n⟦<think>\n\n</think>\n\nb<|im_end|>⟧"));
  CHECK(marked(encoder("qwen3", quiet)(plain)).ends_with("assistant\n<think>\n\n</think>\n\n⟦b<|im_end|>⟧"));
  for (const auto& sample : {thought, inside}) {
    CHECK(marked(encoder("qwen3")(sample)).ends_with("assistant\n⟦<think>\nhm\n</think>\n\nb<|im_end|>⟧"));
    CHECK(marked(encoder("qwen3", quiet)(sample)).ends_with("assistant\n<think>\n\n</think>\n\n⟦b<|im_end|>⟧"));
    CHECK(
        marked(encoder("qwen3_thinking_2507")(sample)).ends_with("assistant\n<think>\n⟦hm\n</think>\n\nb<|im_end|>⟧"));
  }
  CHECK(marked(encoder("qwen3_thinking_2507")(plain)).ends_with("assistant\n<think>\n⟦\n</think>\n\nb<|im_end|>⟧"));
  const auto marks =
      talk({{"user", "a"}, {"assistant", "no </think> mark", "hm"}});  // kept apart: the content is whole
  CHECK(marked(encoder("qwen3", quiet)(marks)).ends_with("⟦no </think> mark<|im_end|>⟧"));
}

TEST_CASE("encode: the prompt of generation is the prompt of training, with every template") {
  const auto conversations = test::template_lines("conversations");
  for (const auto& entry : data::detail::template_entries) {
    const std::string name(entry.name);
    CAPTURE(name);
    const auto chat = ChatTemplate::named(name, "<|im_end|>");
    for (const bool thinking : {true, false}) {
      CAPTURE(thinking);
      EncodeOptions options;
      options.train_on_last_turn_only = true;
      options.render.enable_thinking = thinking;
      options.render.date = "2024-05-06";
      const Encoder encode(&byte_tokenizer(), chat, options);
      std::size_t compared = 0;
      for (std::size_t i = 0; i < conversations.size(); i += 5) {
        CAPTURE(i);
        auto sample = talk(test::template_messages(conversations[i], name));
        if (sample.messages.back().role != "assistant") continue;
        // Where all that users said are answers of tools, Qwen3's template takes the last turn for the question.
        const bool asked = std::any_of(sample.messages.begin(), sample.messages.end(), [](const data::Message& turn) {
          return turn.role == "user" && !turn.content.starts_with("<tool_response>");
        });
        if (!asked) continue;
        Ids prompt;
        try {
          prompt = encode.prompt(sample);
        } catch (const FormatError&) {
          continue;  // the template has no place for a turn
        }
        const Example example = encode(sample);
        const auto first = std::find_if(example.labels.begin(), example.labels.end(),
                                        [](std::int32_t label) { return label != ignore_index; });
        const auto learned = first - example.labels.begin();
        CHECK(prompt == Ids(example.tokens.begin(), example.tokens.begin() + learned));
        ++compared;
      }
      CHECK(compared > 20);
    }
  }
}

TEST_CASE("encode: cutoff_len takes tokens and labels from the end") {
  EncodeOptions options;
  options.cutoff_len = 33;
  const auto whole = encoder("chatml")(talk({{"user", "hi"}, {"assistant", "yo"}}));
  const auto cut = encoder("chatml", options)(talk({{"user", "hi"}, {"assistant", "yo"}}));
  // 1 mark, 5 of "user\n", 2, 1 mark, 1 line end, 1 mark, 10 of "assistant\n": the answer begins at 21
  CHECK(whole.tokens.size() == 24);
  options.cutoff_len = 22;
  const auto one = encoder("chatml", options)(talk({{"user", "hi"}, {"assistant", "yo"}}));
  CHECK(one.truncated);
  CHECK(one.tokens == Ids(whole.tokens.begin(), whole.tokens.begin() + 22));
  CHECK(one.labeled() == 1);
  CHECK_FALSE(one.lost);
  CHECK_FALSE(cut.truncated);
  options.cutoff_len = 24;
  const auto exact = encoder("chatml", options)(talk({{"user", "hi"}, {"assistant", "yo"}}));
  CHECK_FALSE(exact.truncated);
  CHECK(exact.tokens == whole.tokens);
  options.cutoff_len = 21;
  const auto prompt = encoder("chatml", options)(talk({{"user", "hi"}, {"assistant", "yo"}}));
  CHECK(prompt.labeled() == 0);
  CHECK((prompt.truncated && prompt.lost));
  auto unlearned = talk({{"user", "hi"}, {"assistant", "yo"}});
  unlearned.learned = false;
  const auto nothing = encoder("chatml", options)(unlearned);  // which had no labels to lose
  CHECK((nothing.truncated && !nothing.lost));
  options.cutoff_len = 0;
  CHECK_THROWS_AS(encoder("chatml", options), ConfigError);
}

TEST_CASE("encode: a text ends with the token of ends, whatever else the tokenizer puts behind texts") {
  Sample words;
  words.kind = Sample::Kind::text;
  words.text = "AB";
  const auto ids = [&](const char* closing) {
    auto json = io::parse_json(test::byte_tokenizer_json(), "test");
    json["post_processor"] = io::parse_json(
        concat(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": ")",
               closing, R"("}}], "special_tokens": {"<think>": {"ids": [258]}, "<|im_end|>": {"ids": [257]}}})"),
        "test");
    const test::TempFolder folder;
    io::write_json(folder / "tokenizer.json", json);
    io::write_json(folder / "tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
    const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
    REQUIRE(tokenizer.closing().size() == 1);
    REQUIRE(tokenizer.eos() == 257);
    CHECK(Encoder(&tokenizer, std::nullopt, {}).most_tokens(10) == static_cast<Index>(11 * tokenizer.growth()) + 2);
    return Encoder(&tokenizer, std::nullopt, {})(words).tokens;
  };
  CHECK(ids("<think>") == Ids{65, 66, 258, 257});
  CHECK(ids("<|im_end|>") == Ids{65, 66, 257});
}

TEST_CASE("encode: texts, and templates without a mark of their own, begin with the tokenizer's opening token") {
  auto json = io::parse_json(test::byte_tokenizer_json(), "test");
  json["post_processor"] = io::parse_json(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<think>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<think>": {"id": "<think>", "ids": [258], "tokens": ["<think>"]}}})",
                                          "test");
  const auto tokenizer = tokenizer::Tokenizer::from_json(io::to_text(json), "test");
  const std::int32_t mark = 258;
  REQUIRE(tokenizer.opening() == Ids{mark});
  Sample words;
  words.kind = Sample::Kind::text;
  words.text = "AB";
  const Encoder plain(&tokenizer, std::nullopt, {});
  CHECK(plain.text_opening() == 1);
  CHECK(plain.most_tokens(10) == static_cast<Index>(11 * tokenizer.growth()) + 2);
  CHECK(plain.whole_text(words) == Ids{mark, 65, 66});
  CHECK(plain(words).tokens == Ids{mark, 65, 66});
  CHECK(plain.prompt(words) == Ids{mark, 65, 66});
  for (const auto& entry : data::detail::template_entries) {
    CAPTURE(std::string(entry.name));
    const bool opens = entry.name == "none" || entry.name == "alpaca";
    for (const bool train_on_prompt : {false, true}) {
      EncodeOptions options;
      options.train_on_prompt = train_on_prompt;
      const auto sample = talk({{"user", "u"}, {"assistant", "v"}});
      const Encoder encode(&tokenizer, ChatTemplate::named(entry.name, "<|im_end|>"), options);
      const Ids ids = encode(sample).tokens;
      CHECK((ids[0] == mark) == opens);
      CHECK((encode.prompt(sample)[0] == mark) == opens);
      if (opens) CHECK(std::count(ids.begin(), ids.end(), mark) == 1);
    }
  }
  const Encoder none(&tokenizer, ChatTemplate::named("none", "<|im_end|>"), {});
  CHECK(none(talk({{"user", "u"}, {"assistant", "v"}})).labels == Ids{-100, -100, 'v', 257});
  CHECK(none(talk({{"assistant", "v"}})).labels == Ids{-100, 'v', 257});
}

TEST_CASE("encode: texts end with the end-of-text token, prompts do not") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::write_file(folder / "tokenizer_config.json", std::string_view(R"({"eos_token":"<|im_end|>"})"));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  Sample text;
  text.kind = Sample::Kind::text;
  text.text = "AB";
  const Encoder encode(&tokenizer, std::nullopt, {});
  CHECK(encode(text).tokens == Ids{65, 66, 257});
  CHECK(encode(text).labels == Ids{65, 66, 257});
  CHECK(encode.prompt(text) == Ids{65, 66});
}

TEST_CASE("encode: texts are labeled throughout, token records are taken as they are") {
  Sample text;
  text.kind = Sample::Kind::text;
  text.text = "AB";
  CHECK(encoder("chatml")(text).tokens == Ids{65, 66});
  CHECK(encoder("chatml")(text).labels == Ids{65, 66});
  Sample tokens;
  tokens.kind = Sample::Kind::tokens;
  tokens.tokens = {5, 6, 7};
  tokens.labels = {-100, -100, 7};
  tokens.where = "d.jsonl:1";
  const Encoder bare(nullptr, std::nullopt, {});
  CHECK(bare(tokens).tokens == tokens.tokens);
  CHECK(bare(tokens).labels == tokens.labels);
  CHECK(bare.prompt(tokens) == tokens.tokens);
  CHECK(bare.text_opening() == 0);
  CHECK(encoder("chatml").text_opening() == 0);
  CHECK_THROWS_AS(bare(text), ConfigError);
  CHECK_THROWS_AS(Encoder(&byte_tokenizer(), std::nullopt, {})(talk({{"user", "a"}})), ConfigError);
}

TEST_CASE("encode: ids past the vocabulary are errors with file and line") {
  Sample tokens;
  tokens.kind = Sample::Kind::tokens;
  tokens.tokens = {5, 100};
  tokens.labels = {-100, 5};
  tokens.where = "d.jsonl:7";
  EncodeOptions options;
  options.vocab_size = 101;
  CHECK_NOTHROW(Encoder(nullptr, std::nullopt, options)(tokens));
  options.vocab_size = 100;
  const Encoder encode(nullptr, std::nullopt, options);
  CHECK_THROWS_WITH_AS(encode(tokens), "d.jsonl:7: the token id 100; the model's vocabulary has 100", FormatError);
  for (const std::int32_t none : {-3, ignore_index}) {
    tokens.tokens = {5, none};
    CHECK_THROWS_AS(encode(tokens), FormatError);
    CHECK_THROWS_AS(encode.check(tokens), FormatError);
  }
  CHECK_THROWS_AS(encode.prompt(tokens), FormatError);
  tokens.tokens = {5, 6};
  tokens.labels = {5, 100};
  CHECK_THROWS_AS(encode(tokens), FormatError);

  Sample text;
  text.kind = Sample::Kind::text;
  text.text = "a<|im_end|>";
  text.where = "d.jsonl:8";
  options.vocab_size = 257;
  CHECK_THROWS_WITH_AS(Encoder(&byte_tokenizer(), std::nullopt, options)(text),
                       "d.jsonl:8: the token id 257; the model's vocabulary has 257 and so no embedding for the "
                       "tokenizer's token \"<|im_end|>\"",
                       FormatError);
  // Of a long text each token is looked at, also behind cutoff_len.
  options.cutoff_len = 1;
  CHECK_THROWS_WITH_AS((void)Encoder(&byte_tokenizer(), std::nullopt, options).whole_text(text),
                       "d.jsonl:8: the token id 257; the model's vocabulary has 257 and so no embedding for the "
                       "tokenizer's token \"<|im_end|>\"",
                       FormatError);
  CHECK(encoder("chatml", {.cutoff_len = 1}).whole_text(text) == Ids{'a', 257});
}

TEST_CASE("encode: what the template refuses names file and line") {
  CHECK_THROWS_WITH_AS(encoder("chatml")(talk({{"user", "a"}, {"assistant", "b", "hm"}})),
                       "d.json:3: template chatml has no place for reasoning apart from the content (turn 2)",
                       FormatError);
}

TEST_CASE("encode: a prompt ends where the answer would begin") {
  const auto decode = [](const Ids& ids) { return byte_tokenizer().decode(ids); };
  const auto sample = talk({{"user", "a"}, {"assistant", "b"}});
  CHECK(decode(encoder("chatml").prompt(sample)) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  EncodeOptions quiet;
  quiet.render.enable_thinking = false;
  CHECK(decode(encoder("qwen3", quiet).prompt(sample)).ends_with("assistant\n<think>\n\n</think>\n\n"));
}

TEST_CASE("encode: the summary counts what training will see") {
  data::EncodeSummary summary;
  summary.add({{1, 2, 3, 4}, {-100, -100, 3, 4}, 0});
  summary.add({{1, 2}, {1, -100}, 1, true});
  summary.add({{1, 2, 3, 4, 5, 6}, {-100, 2, 3, 4, 5, 6}, 2});
  CHECK(summary.records() == 3);
  CHECK(summary.tokens() == 12);
  CHECK(summary.labeled() == 7);
  CHECK(summary.truncated() == 1);
  CHECK(summary.left_out() == 1);
  CHECK(summary.text() ==
        "3 records, 12 tokens, 58.3 % labeled, 1 truncated, 1 left out; lengths 2 to 6, median 4, 95 % up to 6");
  CHECK(data::EncodeSummary().text().starts_with("0 records, 0 tokens, 0 % labeled"));

  data::EncodeSummary answers = summary;
  answers.add({{1, 2}, {-100, -100}, 3, false, true});
  CHECK(answers.left_out() == 1);
  CHECK(answers.text().find(" truncated, 1 left out, 1 without an answer; lengths") != std::string::npos);
  answers.pass_over(true);
  CHECK(answers.unanswered() == 2);
  CHECK(answers.text().find(" left out, 2 without an answer; lengths") != std::string::npos);

  data::EncodeSummary cut = summary;
  cut.cut_from(2);
  CHECK(cut.text() ==
        "3 blocks of 2 records, 12 tokens, 58.3 % labeled, 1 truncated, 1 left out; lengths 2 to 6, median 4, 95 % up "
        "to 6");

  for (int i = 0; i < 3; ++i) summary.pass_over();
  CHECK_FALSE(summary.complete());
  CHECK(summary.text() ==
        "6 records, judged by 3 of them: about 24 tokens, 58.3 % labeled, 2 truncated, 2 left out; lengths 2 to 6, "
        "median 4, 95 % up to 6");
}

TEST_CASE("encode: a preview without a tokenizer shows ids") {
  CHECK(data::preview({{7, 8, 9, 10}, {-100, 8, 9, -100}}, nullptr) == "7 ⟦8 9⟧ 10");
}

TEST_CASE("encode: the template is the one named, or the model's own") {
  CHECK(data::choose_template("qwen3", byte_tokenizer()).name() == "qwen3");
  const std::string none = test::message_of<ConfigError>([] { data::choose_template("auto", byte_tokenizer()); });
  CHECK(test::holds(none, ": the model has no chat template; set template to one of qwen2, "));
  CHECK(none.starts_with(byte_tokenizer().where()));
  CHECK(test::holds(none, "none, or put another text into its folder as chat_template.jinja"));
  CHECK_THROWS_AS(data::choose_template("alpaca", byte_tokenizer()), ConfigError);

  // With its own text, its last line end and all, where the key names what the model has.
  const test::TempFolder folder;
  const std::string own = io::read_file(test::template_data("smollm2.jinja")) + "\n";
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::write_file(folder / "chat_template.jinja", std::string_view(own));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  for (const char* key : {"auto", "smollm2"}) CHECK(data::choose_template(key, tokenizer).text() == own);
  CHECK(data::choose_template("chatml", tokenizer).text() == io::read_file(test::template_data("chatml.jinja")));
}

TEST_CASE("encode: alpaca and none are written with what the tokenizer puts before texts and at their end") {
  auto json = io::parse_json(test::byte_tokenizer_json(test::llama_marks), "test");
  json["post_processor"] = io::parse_json(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [260]}}})",
                                          "test");
  const test::TempFolder folder;
  io::write_json(folder / "tokenizer.json", json);
  io::write_file(folder / "tokenizer_config.json", std::string_view(R"({"eos_token":"<|im_end|>"})"));
  const auto first = tokenizer::Tokenizer::from_folder(folder.path());
  for (const std::string name : {"alpaca", "none"}) {
    const auto chat = data::choose_template(name, first);
    CHECK(chat.text() == "{{- \"<|begin_of_text|>\" }}\n" + io::read_file(test::template_data(name + ".jinja")));
    io::write_file(folder / "chat_template.jinja", std::string_view(chat.text()));
    const auto again = data::choose_template("auto", tokenizer::Tokenizer::from_folder(folder.path()));
    CHECK(again.name() == name);
    CHECK(again.end_of_turn() == "<|im_end|>");
    CHECK(again.text() == chat.text());
  }
}

TEST_CASE("encode: a marker that is no single token is an error that names it") {
  const auto message = [](auto&& call) { return test::message_of<FormatError>(call); };
  const auto without = [](const std::string& mark, std::span<const char* const> more = {}) {
    auto json = io::parse_json(test::byte_tokenizer_json(more), "test");
    auto& added = json["added_tokens"].get_ref<io::Json::array_t&>();
    std::erase_if(added, [&](const io::Json& token) { return token["content"] == mark; });
    return tokenizer::Tokenizer::from_json(io::to_text(json), "tokenizer.json");
  };
  // What ends a turn, opens it and names who speaks, each missing alone.
  const std::vector<std::string> of_chatml = {"<|im_start|>", "<|im_end|>"},
                                 of_llama = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                             "<|eot_id|>"};
  for (const auto& entry : data::detail::template_entries) {
    if (entry.name == "alpaca" || entry.name == "none") continue;
    CAPTURE(std::string(entry.name));
    const bool is_llama = entry.name.starts_with("llama");
    for (const std::string& mark : is_llama ? of_llama : of_chatml) {
      const auto tokenizer = is_llama ? without(mark, test::llama_marks) : without(mark);
      CHECK(test::holds(
          message([&] { data::choose_template(entry.name, tokenizer); }),
          concat("tokenizer.json: the template ", entry.name, " writes ", mark, ", which the tokenizer cuts into ")));
    }
  }
  const auto end = without("<|im_end|>"), think = without("</think>");
  CHECK(message([&] { data::choose_template("chatml", end); }) ==
        "tokenizer.json: the template chatml writes <|im_end|>, which the tokenizer cuts into 10 tokens; expected one: "
        "declare it in the \"added_tokens\" of tokenizer.json or the \"additional_special_tokens\" of "
        "tokenizer_config.json, or set template to another");

  // Those of reasoning and tools only where they are written.
  const auto said = [&](const char* name, const tokenizer::Tokenizer& tokenizer, const Sample& sample) {
    const auto chat = data::choose_template(name, tokenizer);
    const Encoder encode(&tokenizer, chat, {.cutoff_len = 4096});
    const auto of_check = message([&] { encode.check(sample); });
    CHECK(of_check == message([&] { encode(sample); }));
    return of_check;
  };
  const std::string nothing = message([] {});
  const auto plain = talk({{"user", "a"}, {"assistant", "b"}});
  CHECK(test::holds(said("qwen3", think, plain), "d.json:3: tokenizer.json: the template qwen3 writes </think>, "));
  CHECK(said("chatml", think, plain) == nothing);
  CHECK(said("qwen2_5", think, talk({{"user", "a"}, {"assistant", "<think>b</think>"}})) == nothing);
  const auto bytes = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "tokenizer.json");
  auto calling = plain;
  calling.messages[1].tool_calls.push_back({"f", io::Json::object()});
  auto told = plain;
  told.tools = {io::json_object({{"name", "f"}})};
  auto returned = plain;
  returned.messages[0].role = "tool";
  for (const char* name : {"qwen2_5", "qwen3", "qwen3_instruct_2507"}) {
    CAPTURE(std::string(name));
    CHECK(said(name, bytes, plain) == nothing);
    CHECK(test::holds(said(name, bytes, calling), " writes <tool_call>, "));
    CHECK(test::holds(said(name, bytes, told), " writes <tool_call>, "));
    CHECK(said(name, byte_tokenizer(), calling) == nothing);
  }
  // No token of Qwen2.5, but of Qwen3.
  CHECK(said("qwen2_5", bytes, returned) == nothing);
  CHECK(test::holds(said("qwen3", bytes, returned), " writes <tool_response>, "));
}

TEST_CASE("encode: records with tools are refused where the model has another template for them, unless one is named") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  const std::string own = io::read_file(test::template_data("qwen2_5.jinja"));
  const auto said = [&](const char* key, const std::string& tool_use, const Sample& sample) {
    io::Json list = io::Json::array();
    list.push_back({{"name", "default"}, {"template", own}});
    list.push_back({{"name", "tool_use"}, {"template", tool_use}});
    io::write_json(folder / "tokenizer_config.json", {{"chat_template", list}});
    const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
    const Encoder encode(&tokenizer, data::choose_template(key, tokenizer), {.cutoff_len = 4096});
    return test::message_of([&] { encode.check(sample); });
  };
  const std::string nothing = "nothing was thrown";
  const auto plain = talk({{"user", "a"}, {"assistant", "b"}});
  auto told = plain;
  told.tools = {io::json_object({{"name", "f"}})};
  CHECK(said("auto", own + " ", plain) == nothing);
  CHECK(said("auto", own + " ", told) ==
        "d.json:3: the record has tools, for which the model has a chat template of its own, tool_use, which is not "
        "supported; expected records without tools, or a choice by the key template");
  // As far as the markers that this small vocabulary lacks.
  CHECK(test::holds(said("auto", own, told), " writes <tool_call>, "));
  CHECK(test::holds(said("qwen2_5", own + " ", told), " writes <tool_call>, "));
}

TEST_CASE("encode: what is missing for a record is named with its place, and the least cutoff_len") {
  Sample text;
  text.kind = Sample::Kind::text;
  text.text = "AB";
  text.where = "d.jsonl:4";
  const Encoder bare(nullptr, std::nullopt, {}), plain(&byte_tokenizer(), std::nullopt, {});
  const auto told = [](auto&& call) { return test::message_of<ConfigError>(call); };
  const std::string without = "d.jsonl:4: only token records can be used without a tokenizer";
  CHECK(told([&] { bare(text); }) == without);
  CHECK(told([&] { bare.check(text); }) == without);
  CHECK(told([&] { bare.prompt(text); }) == without);
  CHECK(told([&] { bare.whole_text(text); }) == without);
  const std::string choices =
      "d.json:3: conversations need a chat template; set template to one of qwen2, qwen2_5, qwen2_5_base, qwen3, "
      "qwen3_instruct_2507, qwen3_thinking_2507, smollm2, smollm3, chatml, llama3, llama3_1, llama3_2, alpaca, none";
  const auto sample = talk({{"user", "a"}, {"assistant", "b"}});
  CHECK(told([&] { plain(sample); }) == choices);
  CHECK(told([&] { plain.check(sample); }) == choices);
  for (const Index none : {0, -1})
    CHECK(told([&] { encoder("chatml", {.cutoff_len = none}); }) ==
          concat("cutoff_len is ", none, "; expected at least 1"));
  CHECK_NOTHROW(encoder("chatml", {.cutoff_len = 1}));
  const EncodeOptions unset;
  CHECK((unset.cutoff_len == 2048 && unset.vocab_size == 0));
  CHECK_FALSE((unset.train_on_prompt || unset.train_on_last_turn_only));
}

TEST_CASE("encode: a record's size is its bytes or tokens, and a text has no more tokens than are foreseen") {
  Sample record;
  record.kind = Sample::Kind::text;
  record.text = "four";
  const Encoder encode = encoder("chatml", {.cutoff_len = 2});
  CHECK(encode.check(record) == 4);
  record.kind = Sample::Kind::tokens;
  record.tokens = record.labels = {5, 6, 7};
  CHECK(encode.check(record) == 3);
  const std::string rendering = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n";
  CHECK(encode.check(talk({{"user", "hi"}, {"assistant", "yo"}})) == rendering.size());
  CHECK(Encoder(nullptr, std::nullopt, {}).most_tokens(10) == 0);
  CHECK(encode.most_tokens(10) == static_cast<Index>(11 * byte_tokenizer().growth()) + 1);
  const Index vocabulary = byte_tokenizer().vocab_size();
  CHECK(encoder("chatml", {.vocab_size = vocabulary - 1}).may_pass_vocabulary());
  CHECK_FALSE(encoder("chatml", {.vocab_size = vocabulary}).may_pass_vocabulary());
  CHECK_FALSE(encoder("chatml").may_pass_vocabulary());
  CHECK_FALSE(Encoder(nullptr, std::nullopt, {.vocab_size = 1}).may_pass_vocabulary());
}

TEST_CASE("encode: ids that are none are told for each place where they may stand") {
  Sample tokens;
  tokens.kind = Sample::Kind::tokens;
  tokens.where = "d.jsonl:7";
  const Encoder encode(nullptr, std::nullopt, {.vocab_size = 100}), open(nullptr, std::nullopt, {});
  const auto told = [&](const Encoder& by, Ids ids, Ids labels) {
    tokens.tokens = std::move(ids);
    tokens.labels = std::move(labels);
    const std::string said = test::message_of<FormatError>([&] { by(tokens); });
    CHECK(test::message_of<FormatError>([&] { by.check(tokens); }) == said);
    return said;
  };
  const std::string vocabulary = "; the model's vocabulary has ", nothing = "nothing was thrown";
  CHECK(told(encode, {5, -3}, {5, 5}) == "d.jsonl:7: the token id -3" + vocabulary + "100");
  CHECK(told(encode, {5, 5}, {5, 100}) == "d.jsonl:7: the token id 100" + vocabulary + "100");
  CHECK(told(encode, {5, 5}, {5, -1}) == "d.jsonl:7: the token id -1" + vocabulary + "100");
  CHECK(told(encode, {5, 99}, {-100, 99}) == nothing);
  CHECK(told(open, {5, 1'000'000}, {5, 5}) == nothing);
  const Encoder two(nullptr, std::nullopt, {.cutoff_len = 2, .vocab_size = 100});  // what is cut off is not looked at
  CHECK(told(two, {5, 6, 100}, {5, 6, 100}) == nothing);
  CHECK(told(two, {5, 100, 6}, {5, 6, 6}) == "d.jsonl:7: the token id 100" + vocabulary + "100");
  CHECK(told(two, {5, 6, 6}, {5, 101, 6}) == "d.jsonl:7: the token id 101" + vocabulary + "100");
  CHECK(told(open, {-1, 5}, {5, 5}) == "d.jsonl:7: the token id -1" + vocabulary + "0");
}

TEST_CASE("encode: lengths of a summary are told at their ranks, rounded up, and what is lost is scaled as well") {
  data::EncodeSummary summary;
  for (const int length : {21, 3, 20, 1, 5, 4, 2, 19, 6, 18, 7, 17, 8, 16, 9, 15, 10, 14, 11, 13, 12})
    summary.add({Ids(static_cast<std::size_t>(length), 1), Ids(static_cast<std::size_t>(length), 1), 0});
  CHECK(summary.length_at(0) == 1);
  CHECK(summary.length_at(0.5) == 11);
  CHECK(summary.length_at(0.51) == 12);
  CHECK(summary.length_at(0.95) == 20);
  CHECK(summary.length_at(0.951) == 21);
  CHECK(summary.length_at(1) == 21);
  CHECK(summary.longest_record() == 0);
  summary.reaches(30, 40);
  summary.reaches(30, 41);
  summary.reaches(29, 42);
  CHECK(summary.length_at(1) == 30);
  CHECK(summary.longest_record() == 40);
  CHECK(summary.length_at(0.99) == 21);
  CHECK(summary.lost() == 0);
  data::EncodeSummary part;
  Example lost{{1, 2}, {-100, -100}, 0, true};
  lost.lost = true;
  part.add(lost);
  part.add({{1, 2, 3}, {1, 2, 3}, 1});
  CHECK((part.lost() == 1 && part.left_out() == 1 && part.truncated() == 1 && part.complete()));
  part.pass_over();
  CHECK(part.tokens() == 8);   // 5 x 3 / 2 = 7.5
  CHECK(part.labeled() == 3);  // 2 x 3 / 2
  CHECK(part.lost() == 2);     // 1.5
  CHECK(part.unanswered() == 0);
  data::EncodeSummary none;
  none.pass_over();
  CHECK((none.records() == 1 && none.tokens() == 0 && none.labeled() == 0 && none.length_at(0.5) == 0));
  none.reaches(7, 0);
  CHECK(none.length_at(0) == 7);  // all that is known
}

}  // namespace encode_test
