// The command generate to its end: what it writes is what whole forward passes of the library say, cut where it should
// be.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace generate_test {

using namespace lora;

namespace {

/// A model, an adapter of it, and more questions than are answered together.
struct Subject {
  test::TempFolder temp;
  std::vector<std::string> questions;

  Subject() {
    test::write_talking_model(temp / "model");
    test::write_talking_adapter(temp / "model", temp / "adapter");
    std::string text;
    for (int i = 0; i < 18; ++i) {
      questions.push_back(i == 16 ? questions[0] : concat("question ", i * i));
      io::Json turns = io::Json::array({{{"role", "user"}, {"content", questions.back()}}});
      if (i % 2 == 0) turns.push_back({{"role", "assistant"}, {"content", concat("label ", i)}});
      text += io::to_text({{"messages", turns}}, -1) + "\n";
    }
    io::write_file(temp / "questions.jsonl", std::string_view(text));
  }

  test::Outcome generate(std::vector<std::string> words) const {
    words.insert(words.begin(),
                 {"generate", "--model_name_or_path=" + (temp / "model").native(), "--dtype=float32", "--threads=1"});
    const bool told = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.starts_with("--template=") || (word.starts_with("--dataset=") && word != dataset());
    });
    if (!told) words.push_back("--template=chatml");
    auto outcome = test::run_program(LORA_PROGRAM, words);
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    return outcome;
  }
  /// The answer to one prompt, without the end of its line.
  std::string answer(std::vector<std::string> words) const {
    std::string text = generate(std::move(words)).output;
    REQUIRE(text.ends_with('\n'));
    text.pop_back();
    return text;
  }
  std::string dataset() const { return "--dataset=" + (temp / "questions.jsonl").native(); }
  std::string adapter() const { return "--adapter_name_or_path=" + (temp / "adapter").native(); }
};

}  // namespace

TEST_CASE("program: generate answers a prompt with the likeliest tokens, and as its adapter has them") {
  const Subject s;
  const std::string question = "What is a torus?";
  test::Listener base(s.temp / "model"), adapted(s.temp / "model", s.temp / "adapter");
  const std::string plain = base.answer(question, 12), other = adapted.answer(question, 12);
  CHECK(plain != other);
  CHECK(s.answer({"--prompt=" + question, "--max_new_tokens=12"}) == plain);
  CHECK(s.answer({"--prompt=" + question, "--max_new_tokens=12", s.adapter()}) == other);
}

TEST_CASE("program: generate says that an adapter belongs to another base, and to which") {
  const Subject s;
  test::write_foreign_adapter(s.temp / "foreign");
  const auto outcome = test::run_program(
      LORA_PROGRAM, {"generate", "--model_name_or_path=" + (s.temp / "model").native(), "--template=chatml",
                     "--prompt=Hi", "--adapter_name_or_path=" + (s.temp / "foreign").native()});
  CHECK(outcome.status == 1);
  CHECK(outcome.output.empty());
  CHECK(outcome.errors.ends_with(test::foreign_adapter_message));
}

TEST_CASE("program: generate answers a file, a JSON object per line, to standard output or to a file") {
  const Subject s;
  test::Listener base(s.temp / "model");
  const auto printed = s.generate({s.dataset(), "--max_new_tokens=5"}).output;
  const auto lines = test::json_lines(printed);
  REQUIRE(lines.size() == s.questions.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    io::Json expected = {{"prompt", s.questions[i]}, {"predict", base.answer(s.questions[i], 5)}};
    if (i % 2 == 0) expected["label"] = concat("label ", i);
    CHECK(lines[i] == expected);
  }
  const io::Path file = s.temp / "answers.jsonl";
  const auto silent = s.generate({s.dataset(), "--max_new_tokens=5", "--output_file=" + file.native()});
  CHECK(silent.output.empty());
  CHECK(io::read_file(file) == printed);
  const io::Path single = s.temp / "answer.jsonl";  // of a prompt too, where it is for a file
  CHECK(s.generate({"--prompt=" + s.questions[1], "--max_new_tokens=5", "--output_file=" + single.native()})
            .output.empty());
  CHECK(test::json_lines(io::read_file(single)) ==
        std::vector<io::Json>{{{"prompt", s.questions[1]}, {"predict", base.answer(s.questions[1], 5)}}});
  const auto some = s.generate({s.dataset(), "--max_new_tokens=5", "--max_samples=2"}).output;
  CHECK(some == printed.substr(0, some.size()));
  CHECK(test::json_lines(some).size() == 2);
  for (const auto& entry : std::filesystem::directory_iterator(s.temp.path()))
    CHECK_FALSE(test::holds(entry.path().filename().native(), "partial"));
}

TEST_CASE("program: generate replaces its own answers, and nothing else that is there") {
  const Subject s;
  const io::Path file = s.temp / "answers.jsonl";
  const std::vector<std::string> words = {"--prompt=one", "--max_new_tokens=2", "--output_file=" + file.native()};
  for (const std::string_view others : {"{\"prompt\": \"one\"}\n", "{\"predict\": 1}\n", "my notes\n", "{", "\n",
                                        "[{\"prompt\": 1, \"predict\": 2}]\n"}) {
    io::write_file(file, others);
    auto all = words;
    all.insert(all.begin(), {"generate", "--model_name_or_path=" + (s.temp / "model").native(), "--template=chatml"});
    const auto refused = test::run_program(LORA_PROGRAM, all);
    CHECK(refused.status == 2);
    CHECK(test::holds(refused.errors,
                      concat("key output_file: given ", file.native(), ", which generate did not write; ")));
    CHECK(io::read_file(file) == others);
  }
  io::write_file(file, std::string_view());
  s.generate(words);
  const std::string answered = io::read_file(file);
  CHECK(test::json_lines(answered).size() == 1);
  s.generate(words);
  CHECK(io::read_file(file) == answered);
}

TEST_CASE("program: generate asks as the template's keys say, and goes on after texts and tokens as they are") {
  const Subject s;
  test::Listener base(s.temp / "model");
  const std::string asked = test::chatml_question("one");
  const auto thinking = [&](const char* word) {
    return s.answer({"--prompt=one", "--max_new_tokens=24", "--template=qwen3", concat("--enable_thinking=", word)});
  };
  CHECK(thinking("true") == base.continuation(test::byte_tokens(asked), 24));
  CHECK(thinking("false") == base.continuation(test::byte_tokens(asked + "<think>\n\n</think>\n\n"), 24));
  CHECK(thinking("true") != thinking("false"));
  io::write_file(s.temp / "text.jsonl", std::string_view("{\"text\": \"once upon\"}\n{\"text\": \"a time\"}\n"));
  io::write_file(s.temp / "tokens.jsonl", std::string_view("{\"input_ids\": [111, 110, 101]}\n"));
  const auto lines = [&](const char* file) {
    return test::json_lines(s.generate({"--dataset=" + (s.temp / file).native(), "--max_new_tokens=6"}).output);
  };
  const auto expected = [&](const char* prompt) {
    return io::Json{{"prompt", prompt}, {"predict", base.continuation(test::byte_tokens(prompt), 6)}};
  };
  CHECK(lines("text.jsonl") == std::vector<io::Json>{expected("once upon"), expected("a time")});
  CHECK(lines("tokens.jsonl") == std::vector<io::Json>{expected("one")});
}

TEST_CASE("program: generate writes a conversation's last question, and the text of a column that is named") {
  const Subject s;
  test::Listener base(s.temp / "model");
  const auto turn = [](const char* role, const char* content) {
    return io::Json{{"role", role}, {"content", content}};
  };
  const io::Json talk = {{"messages",
                          {turn("system", "Be brief."), turn("user", "first"), turn("assistant", "one"),
                           turn("user", "second"), turn("assistant", "two")}}};
  io::write_file(s.temp / "talk.jsonl", io::to_text(talk, -1) + "\n");
  const auto lines = [&](std::vector<std::string> words) {
    words.push_back("--max_new_tokens=6");
    return test::json_lines(s.generate(std::move(words)).output);
  };
  const std::string asked =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nfirst<|im_end|>\n<|im_start|>assistant\none<|im_end|>"
      "\n<|im_start|>user\nsecond<|im_end|>\n<|im_start|>assistant\n";
  CHECK(lines({"--dataset=" + (s.temp / "talk.jsonl").native(), "--template=chatml"}) ==
        std::vector<io::Json>{
            {{"prompt", "second"}, {"predict", base.continuation(test::byte_tokens(asked), 6)}, {"label", "two"}}});
  io::write_file(s.temp / "body.jsonl", std::string_view("{\"text\": \"no\", \"body\": \"once upon\"}\n"));
  CHECK(lines({"--dataset=" + (s.temp / "body.jsonl").native(), "--text_column=body"}) ==
        std::vector<io::Json>{
            {{"prompt", "once upon"}, {"predict", base.continuation(test::byte_tokens("once upon"), 6)}}});
}

TEST_CASE("program: generate names the fields of records that it does not use") {
  const Subject s;
  io::write_file(s.temp / "more.jsonl", std::string_view("{\"text\": \"once\", \"colour\": 1, \"size\": 2}\n"));
  const auto outcome = s.generate({"--dataset=" + (s.temp / "more.jsonl").native(), "--max_new_tokens=1"});
  CHECK(test::holds(outcome.errors, "more.jsonl: fields of records that are not used: colour, size"));
}

TEST_CASE("program: generate and eval log what they compute with") {
  const Subject s;
  const std::string errors = s.generate({"--prompt=a", "--max_new_tokens=1"}).errors;
  CHECK(errors.starts_with("lora " LORA_VERSION " for "));
  CHECK(std::regex_search(errors, std::regex("; cpu, 1 thread[^;]*; products by [^;]+; computing in float32\n")));
  CHECK(std::count(errors.begin(), errors.end(), '\n') == 1);
}

TEST_CASE("program: generate ends an answer before the first of its stop texts") {
  const Subject s;
  const std::string question = "question 1";
  const std::string whole = test::Listener(s.temp / "model").answer(question, 14);
  const std::string early = whole.substr(1, 2), late = whole.substr(8, 3);
  REQUIRE((early + late).find(' ') == std::string::npos);
  const auto stopped = [&](const std::string& stops) {
    return s.answer({"--prompt=" + question, "--max_new_tokens=14", "--stop=" + stops});
  };
  CHECK(stopped(early) == whole.substr(0, whole.find(early)));
  CHECK(stopped(late + "," + early) == whole.substr(0, std::min(whole.find(early), whole.find(late))));
  CHECK(stopped("NO SUCH WORDS") == whole);
}

TEST_CASE("program: generate ends an answer at the ids that generation_config.json lists") {
  const Subject s;
  const std::string question = "Where does it end?";
  test::Listener base(s.temp / "model");
  const std::string whole = base.answer(question, 14);
  const std::int32_t stop = whole[5];
  io::write_json(s.temp / "model" / "generation_config.json", {{"eos_token_id", {259, stop}}});
  CHECK(s.answer({"--prompt=" + question, "--max_new_tokens=14"}) == base.answer(question, 14, {stop}));
}

TEST_CASE("program: generate draws by its seed, temperature, top_k and top_p, each answer by numbers of its own") {
  const Subject s;
  const std::string question = "--prompt=Roll the dice";
  const std::string likeliest = test::Listener(s.temp / "model").answer("Roll the dice", 16);
  const auto drawn = [&](std::vector<std::string> words) {
    words.insert(words.end(), {question, "--max_new_tokens=16"});
    return s.answer(std::move(words));
  };
  const std::string one = drawn({"--temperature=1", "--seed=1"});
  CHECK(one != likeliest);
  CHECK(one == drawn({"--temperature=1", "--seed=1"}));
  CHECK(one != drawn({"--temperature=1", "--seed=2"}));
  CHECK(one != drawn({"--temperature=3", "--seed=1"}));
  CHECK(drawn({"--temperature=3", "--top_k=1"}) == likeliest);
  CHECK(drawn({"--temperature=3", "--top_p=1e-9"}) == likeliest);

  // The first and the seventeenth question are the same, and answered in different groups.
  const auto lines =
      test::json_lines(s.generate({s.dataset(), "--max_new_tokens=16", "--temperature=1", "--seed=1"}).output);
  CHECK(lines.at(0).at("prompt") == lines.at(16).at("prompt"));
  CHECK(lines.at(0).at("predict") != lines.at(16).at("predict"));
}

TEST_CASE("program: generate draws as the model's makers advise, several answers to a prompt, alone or in a file") {
  const Subject s;
  io::write_json(s.temp / "model" / "generation_config.json",
                 {{"eos_token_id", {259}}, {"temperature", 3}, {"repetition_penalty", 1.2}, {"top_k", 20}});
  const std::vector<std::string> words = {"--max_new_tokens=16", "--seed=1"};
  const auto drawn = [&](std::vector<std::string> more) {
    more.insert(more.end(), words.begin(), words.end());
    return s.generate(std::move(more)).output;
  };
  const std::string prompt = "--prompt=" + s.questions[0];
  const std::string one = drawn({prompt, "--sample"});
  CHECK(one == drawn({prompt, "--temperature=3", "--repetition_penalty=1.2", "--top_k=20"}));
  CHECK(one != drawn({prompt, "--sample", "--repetition_penalty=1"}));
  CHECK(one != drawn({prompt, "--sample", "--min_p=0.5"}));
  const std::string three = drawn({prompt, "--sample", "--num_return_sequences=3"});
  CHECK(three.starts_with("--- answer 1 of 3\n" + one + "--- answer 2 of 3\n"));
  const auto lines = test::json_lines(drawn({s.dataset(), "--sample", "--num_return_sequences=3"}));
  REQUIRE(lines.size() == 3 * s.questions.size());
  std::string first;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i].at("prompt") == s.questions[i / 3]);
    CHECK(lines[i].at("index") == i % 3);
    if (i < 3) first += concat("--- answer ", i + 1, " of 3\n", lines[i].at("predict").get<std::string>(), "\n");
  }
  CHECK(three == first);
}

TEST_CASE("program: generate writes an answer as it comes, the same as at once, and nothing of a stop text") {
  const Subject s;
  const std::string whole = s.answer({"--prompt=one", "--max_new_tokens=16"});
  CHECK(s.answer({"--prompt=one", "--max_new_tokens=16", "--stream"}) == whole);
  const std::string stop = "--stop=" + whole.substr(5, 4);
  CHECK(s.answer({"--prompt=one", "--max_new_tokens=16", "--stream", stop}) ==
        s.answer({"--prompt=one", "--max_new_tokens=16", stop}));
}

TEST_CASE("program: a sequence longer than those that the model was made for is told of, once") {
  const Subject s;
  const auto config = s.temp / "model" / "config.json";
  io::Json json = io::read_json(config);
  const auto warnings = [&](Index longest, std::vector<std::string> words) {
    json["max_position_embeddings"] = longest;
    io::write_json(config, json);
    const std::string errors = s.generate(std::move(words)).errors;
    Index count = 0;
    for (auto at = errors.find("the model was made for "); at != errors.npos; at = errors.find("made for", at + 30))
      ++count;
    return count;
  };
  // "ab" is a prompt of two letters between the marks of ChatML, and its answer has four.
  const auto prompt = static_cast<Index>(test::byte_tokens(test::chatml_question("ab")).size());
  const std::vector<std::string> words = {"--prompt=ab", "--max_new_tokens=4"};
  CHECK(warnings(prompt + 4, words) == 0);
  CHECK(warnings(prompt + 3, words) == 1);
  CHECK(warnings(prompt - 1, words) == 1);
  CHECK(warnings(0, words) == 0);
  CHECK(warnings(8, {s.dataset(), "--max_new_tokens=2"}) == 1);
  // Of several answers to each question it is the question that is named.
  const io::Path file = s.temp / "three.jsonl";
  std::string text;
  for (const char* question : {"ab", "abc", "ab"})
    text += io::to_text({{"messages", io::Json::array({{{"role", "user"}, {"content", question}}})}}, -1) + "\n";
  io::write_file(file, std::string_view(text));
  json["max_position_embeddings"] = prompt + 4;
  io::write_json(config, json);
  const auto drawn = s.generate({"--dataset=" + file.native(), "--template=chatml", "--max_new_tokens=4",
                                 "--temperature=1", "--num_return_sequences=2"});
  CHECK(test::holds(drawn.errors, concat("three.jsonl:2: ", prompt + 5, " tokens, but the model was made for ")));
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  CHECK(warnings(prompt, words) == 0);
}

TEST_CASE(
    "program: generate ends answers at the longest sequence that the model computes, and refuses a longer prompt") {
  const Subject s;
  const auto length = [](const char* question) {
    return std::ssize(test::byte_tokens(test::chatml_question(question)));
  };
  const Index longest = length("ab") + 4;
  test::write_talking_model(s.temp / "model", DType::f32, test::longrope_model(longest));
  test::Listener base(s.temp / "model");
  const auto warnings = [](const test::Outcome& outcome) {
    return outcome.errors.substr(std::min(outcome.errors.find("Warning: "), outcome.errors.size()));
  };
  const std::string warning = concat(" at ", longest, " tokens, prompt included: beyond ", longest,
                                     " the model's longrope scaling has other factors, which are not supported\n");
  for (const bool streams : {false, true}) {
    std::vector<std::string> words = {"--prompt=ab", "--max_new_tokens=4"};
    if (streams) words.push_back("--stream");
    CHECK(warnings(s.generate(words)).empty());
    words[1] = "--max_new_tokens=5";
    const auto cut = s.generate(words);
    CHECK(cut.output == base.answer("ab", 4) + "\n");
    CHECK(warnings(cut) == "Warning: prompt: the answer ends" + warning);
  }
  CHECK(warnings(s.generate({"--prompt=ab", "--max_new_tokens=5", "--stop=" + base.answer("ab", 4)})).empty());

  const io::Path file = s.temp / "three.jsonl";
  const auto ask = [&](std::vector<std::string> questions) {
    std::string text;
    for (const std::string& question : questions)
      text += io::to_text({{"messages", io::Json::array({{{"role", "user"}, {"content", question}}})}}, -1) + "\n";
    io::write_file(file, std::string_view(text));
  };
  const std::vector<std::string> words = {"--dataset=" + file.native(), "--template=chatml", "--max_new_tokens=4"};
  ask({"a", "abc", "ab", "abcdef"});
  const auto several = s.generate(words);
  const auto lines = test::json_lines(several.output);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].at("predict") == base.answer("a", 4));
  CHECK(lines[1].at("predict") == base.answer("abc", 3));
  CHECK(lines[2].at("predict") == base.answer("ab", 4));
  CHECK(lines[3].at("predict") == "");
  CHECK(warnings(several) == concat("Warning: ", file.native(), ":2: the answer and 1 other end", warning));

  ask({"a", "abcdefg"});
  const auto refused = test::run_program(
      LORA_PROGRAM,
      {"generate", "--model_name_or_path=" + (s.temp / "model").native(), words[0], words[1], words[2], "--threads=1"});
  CHECK(refused.status == 2);
  CHECK(refused.output.empty());
  CHECK(refused.errors.ends_with(
      concat("error: ", file.native(), ":2: a prompt of ", longest + 1, " tokens, but beyond ", longest,
             " the model's longrope scaling has other factors, which are not supported; ", "allowed: no more\n")));
}

}  // namespace generate_test
