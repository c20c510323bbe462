// The command tokenize to its end, with a tokenizer whose ids can be told by hand.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/packed.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace tokenize_test {

using namespace lora;

namespace {

struct Subject {
  test::TempFolder temp;

  Subject() {
    io::create_folders(temp / "model");  // no config.json and no weights
    io::write_file(temp / "model" / "tokenizer.json", std::string_view(test::byte_tokenizer_json(test::llama_marks)));
  }

  std::vector<io::Json> lines(std::vector<std::string> words) const {
    words.insert(words.begin(), {"tokenize", "--model_name_or_path=" + (temp / "model").native()});
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK(outcome.errors.empty());
    return test::json_lines(outcome.output);
  }
  std::string file(const char* name, std::string_view content) const {
    io::write_file(temp / name, content);
    return "--file=" + (temp / name).native();
  }
};

void check(const std::vector<io::Json>& lines, const std::vector<std::string>& texts) {
  REQUIRE(lines.size() == texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(texts[i]);
    CHECK(lines[i] == io::Json(test::byte_tokens(texts[i])));
  }
}

}  // namespace

TEST_CASE("program: tokenize prints a text's ids, and those of each line of a file, whatever ends it") {
  const Subject s;
  check(s.lines({"--text=a torus <|im_end|>\n"}), {"a torus <|im_end|>\n"});
  check(s.lines({s.file("unix.txt", "one\n\ntwo words\nthree")}), {"one", "", "two words", "three"});
  check(s.lines({s.file("dos.txt", "one\r\n\r\ntwo\rwords\r\n")}), {"one", "", "two\rwords"});
  check(s.lines({s.file("marked.txt", "\xEF\xBB\xBFone\n")}), {"one"});
  check(s.lines({s.file("texts.jsonl", "{\"text\": \"one\\r\\n\"}\n{\"text\": \"two\"}\n")}), {"one\r\n", "two"});
}

TEST_CASE("program: tokenize puts conversations through the template, with the opening of an answer where asked") {
  const Subject s;
  const std::string talk = s.file("talk.jsonl",
                                  "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n"
                                  "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                  "{\"role\": \"assistant\", \"content\": \"b\"}]}\n");
  const std::string first = "<|im_start|>user\nhello<|im_end|>\n",
                    second = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n",
                    opening = "<|im_start|>assistant\n";
  check(s.lines({talk, "--template=chatml"}), {first, second});
  check(s.lines({talk, "--template=chatml", "--add_generation_prompt"}), {first + opening, second + opening});

  const std::string hello = s.file("hello.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n");
  const auto qwen3 = [&](const char* thinking) {
    return s.lines({hello, "--template=qwen3", "--add_generation_prompt", concat("--enable_thinking=", thinking)});
  };
  check(qwen3("true"), {first + opening});
  check(qwen3("false"), {first + opening + "<think>\n\n</think>\n\n"});
  // As in training: without thinking, what an answer thought is left out.
  const std::string thought =
      s.file("thought.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
             "\"content\": \"<think>\\nc\\n</think>\\n\\nb\"}]}\n");
  const std::string empty =
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nb<|im_end|>\n";
  check(s.lines({thought, "--template=qwen3", "--enable_thinking=false"}), {empty});
  const auto dated = s.lines({hello, "--template=llama3_2", "--date=2023-02-28"});
  REQUIRE(dated.size() == 1);
  std::string text;
  for (const auto& id : dated[0])
    if (id < 256) text += static_cast<char>(id.get<int>());
  CHECK(text.find("Today Date: 28 Feb 2023") != text.npos);
}

TEST_CASE("program: tokenize prints ids as a JSON array a line, of packed files and of tokens too") {
  const Subject s;
  const auto printed = [&](const std::string& word) {
    return test::run_program(LORA_PROGRAM, {"tokenize", "--model_name_or_path=" + (s.temp / "model").native(), word});
  };
  CHECK(printed("--text=abc").output == "[97, 98, 99]\n");
  CHECK(printed("--text=a").output == "[97]\n");
  CHECK(printed("--text=").output == "[]\n");
  CHECK(printed(s.file("one.txt.gz", test::gzipped("ab\n\nc"))).output == "[97, 98]\n[]\n[99]\n");
  CHECK(printed(s.file("empty.txt", "")).output.empty());
  CHECK(printed(s.file("ids.jsonl", "{\"input_ids\": [5, 300, 7]}\n{\"input_ids\": [9]}\n")).output ==
        "[5, 300, 7]\n[9]\n");
}

TEST_CASE("program: tokenize names the line that is no text, and the fields that are not used") {
  const Subject s;
  const auto outcome = [&](const std::string& word) {
    return test::run_program(LORA_PROGRAM, {"tokenize", "--model_name_or_path=" + (s.temp / "model").native(), word});
  };
  const auto bad = outcome(s.file("bad.txt", "one\n\ntw\xFFo\n"));
  CHECK(bad.status == 1);
  CHECK(bad.output == "[111, 110, 101]\n[]\n");
  CHECK(bad.errors == "error: " + (s.temp / "bad.txt").native() + ":3: text is not valid UTF-8 at byte 2\n");
  const auto unused = outcome(s.file("more.jsonl", "{\"text\": \"a\", \"colour\": 1}\n"));
  CHECK(unused.status == 0);
  CHECK(unused.output == "[97]\n");
  CHECK(test::holds(unused.errors, "more.jsonl: fields of records that are not used: colour"));
}

TEST_CASE("program: tokenize names the record whose template writes a mark that the tokenizer does not have") {
  const Subject s;
  const std::string word =
      s.file("talk.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n"
             "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"tools\": [{\"type\": \"function\", "
             "\"function\": {\"name\": \"add\", \"parameters\": {}}}]}\n");
  const auto outcome = test::run_program(
      LORA_PROGRAM, {"tokenize", "--model_name_or_path=" + (s.temp / "model").native(), "--template=qwen3", word});
  CHECK(outcome.status == 1);
  check(test::json_lines(outcome.output), {"<|im_start|>user\nhello<|im_end|>\n"});
  CHECK(outcome.errors.starts_with(
      concat("error: ", (s.temp / "talk.jsonl").native(), ":2: ", (s.temp / "model" / "tokenizer.json").native(),
             ": the template qwen3 writes <tool_call>, which the tokenizer cuts into 11 ")));
}

TEST_CASE("program: tokenize puts a record's tools where its template has them") {
  const Subject s;
  io::Json plain = {{"messages", io::Json::array({{{"role", "user"}, {"content", "hello"}}})}}, asks = plain;
  const io::Json function = {{"name", "add_numbers"}, {"parameters", io::Json::object()}};
  asks["tools"] = io::Json::array({{{"type", "function"}, {"function", function}}});
  const std::string with = s.file("tools.jsonl", io::to_text(asks, -1) + "\n" + io::to_text(plain, -1) + "\n");
  constexpr const char* marks[] = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"};
  io::write_file(s.temp / "model" / "tokenizer.json", std::string_view(test::byte_tokenizer_json(marks)));
  const auto lines = s.lines({with, "--template=qwen3"});
  REQUIRE(lines.size() == 2);
  std::string texts[2];
  for (std::size_t i = 0; i < 2; ++i)
    for (const auto& id : lines[i])
      if (id < 256) texts[i] += static_cast<char>(id.get<int>());
  CHECK(test::holds(texts[0], "add_numbers"));
  CHECK_FALSE(test::holds(texts[1], "add_numbers"));
  for (const std::string& text : texts) CHECK(test::holds(text, "hello"));
}

TEST_CASE("program: tokenize refuses texts in UTF-16, marked or not") {
  using namespace std::string_view_literals;
  const Subject s;
  for (const auto content : {"h\0i\0\n\0"sv, "\xFF\xFEh\0i\0\n\0"sv, "\x2D\x4E\x87\x65\n\0"sv}) {
    const auto outcome = test::run_program(
        LORA_PROGRAM, {"tokenize", "--model_name_or_path=" + (s.temp / "model").native(), s.file("wide.txt", content)});
    CHECK(outcome.status == 1);
    CHECK(outcome.output.empty());
    CHECK(outcome.errors.find("wide.txt: the text is UTF-16") != outcome.errors.npos);
  }
}

TEST_CASE("program: keys of templates are refused where no record goes through one") {
  const Subject s;
  const std::string texts = s.file("texts.jsonl", "{\"text\": \"one\"}\n"),
                    ids = s.file("ids.jsonl", "{\"input_ids\": [1, 2]}\n");
  for (const std::string& file : {texts, ids})
    for (const std::string key :
         {"template=chatml", "add_generation_prompt=true", "date=2023-02-28", "enable_thinking=true"}) {
      CAPTURE(key);
      const auto outcome = test::run_program(
          LORA_PROGRAM, {"tokenize", "--model_name_or_path=" + (s.temp / "model").native(), file, "--" + key});
      CAPTURE(outcome.errors);
      CHECK(outcome.status == 2);
      CHECK(outcome.output.empty());
      CHECK(test::holds(outcome.errors, "key " + key.substr(0, key.find('=')) + ": given"));
    }
}

TEST_CASE("program: tokenize with a model that has no tokenizer says which files were looked for") {
  const Subject s;
  io::remove_file(s.temp / "model" / "tokenizer.json");
  const io::Path model = s.temp / "model";
  const auto outcome =
      test::run_program(LORA_PROGRAM, {"tokenize", "--model_name_or_path=" + model.native(), "--text=a torus"});
  CHECK(outcome.status == 1);
  CHECK(outcome.errors == "error: " + model.native() + ": no tokenizer.json and no tokenizer.model\n");
}

TEST_CASE("program: texts that memory does not hold are one line and exit 1") {
  const Subject s;
  const std::string little = "sh -c 'ulimit -v 250000; exec \"$0\" \"$@\"' " + test::shell_word(LORA_PROGRAM);
  const auto run = [&](const std::string& text) {
    return test::run_program(little, {"tokenize", "--model_name_or_path=" + (s.temp / "model").native(), text});
  };
  if (run("--text=a").status != 0) {
    test::skipped("a program that is short of memory: sanitizers and emulators hold address space themselves");
    return;
  }
  const auto is_refused = [&](const std::string& text) {
    const auto outcome = run(text);
    CHECK(outcome.status == 1);
    CHECK(outcome.errors == "error: out of memory\n");
  };
  is_refused(s.file("long.txt", std::string(std::size_t{64} << 20, 'a')));
  // A list of JSON that has got so long takes memory to be given back, too.
  std::string numbers = "{\"long\": [1";
  for (int i = 1; i < 10'000'000; ++i) numbers += ",1";
  io::write_file(s.temp / "model" / "tokenizer_config.json", std::string_view(numbers + "]}"));
  is_refused("--text=a");
}

}  // namespace tokenize_test
