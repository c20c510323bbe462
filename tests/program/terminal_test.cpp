// What the commands show of their progress on a terminal, and elsewhere.

#include "support/terminal.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/message_of.hpp"
#include "support/random_tokens.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace terminal_test {

using namespace lora;

namespace {

/// What stood in the last line one after the other: each bar begins by going back to the line's first column.
std::vector<std::string> bars_of(const std::string& screen) {
  const std::string begin = "\r\033[K";
  std::vector<std::string> bars;
  for (auto at = screen.find(begin); at != screen.npos;) {
    const auto from = at + begin.size();
    at = screen.find(begin, from);
    const std::string text = screen.substr(from, std::min(at, screen.find("\r\n", from)) - from);
    if (text.find(" 0/") != text.npos || text.starts_with('[')) bars.push_back(text);
  }
  return bars;
}

struct Subject {
  test::TempFolder temp;

  Subject() {
    test::write_talking_model(temp / "model");
    std::string text;
    for (int i = 0; i < 3; ++i)
      text += concat("{\"instruction\": \"question ", i, "\", \"output\": \"answer ", i, "\"}\n");
    io::write_file(temp / "data.jsonl", std::string_view(text));
  }

  std::vector<std::string> words(std::vector<std::string> others) const {
    others.insert(others.end(), {"--model_name_or_path=" + (temp / "model").native(), "--template=chatml",
                                 "--dataset=" + (temp / "data.jsonl").native(), "--dtype=float32", "--threads=1"});
    return others;
  }
  std::string output(const std::string& name) const { return "--output_dir=" + (temp / name).native(); }
};

}  // namespace

TEST_CASE("program: on 80 columns the bar of training is there before the first step, and says the most important") {
  const Subject subject;
  const auto outcome = test::run_on_terminal(
      LORA_PROGRAM, subject.words({"train", subject.output("run"), "--max_steps=3", "--val_size=1"}), 80);
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  const auto bars = bars_of(outcome.errors);
  REQUIRE(bars.size() >= 4);
  CHECK(bars[0] == "[                    ]  step 0/3");
  for (const auto& bar : bars) CHECK(bar.size() < 80);
  for (const char* step : {"step 1/3", "step 2/3", "step 3/3"}) {
    const auto bar = std::find_if(bars.begin(), bars.end(), [&](const auto& text) { return test::holds(text, step); });
    REQUIRE(bar != bars.end());
    for (const char* fact : {"loss ", " left", " tokens/s"}) CHECK(test::holds(*bar, fact));
  }
  CHECK(test::holds(outcome.errors, "evaluating 0/1 records"));
}

TEST_CASE("program: eval and generate show a bar on a terminal, and nothing of it elsewhere") {
  const Subject subject;
  const auto eval = subject.words({"eval", subject.output("results"), "--predict", "--max_new_tokens=4"});
  const auto generate = subject.words({"generate", "--max_new_tokens=4"});
  const auto measured = test::run_on_terminal(LORA_PROGRAM, eval, 80);
  CHECK(measured.status == 0);
  CHECK(test::holds(measured.errors, "evaluating 0/3 records"));
  CHECK(test::holds(measured.errors, "answering 0/3 records"));
  CHECK(test::holds(test::run_on_terminal(LORA_PROGRAM, generate, 80).errors, "answering 0/3 records"));
  auto twice = generate;
  twice.insert(twice.end(), {"--temperature=1", "--num_return_sequences=2"});
  CHECK(test::holds(test::run_on_terminal(LORA_PROGRAM, twice, 80).errors, "answering 0/6 records"));
  for (const auto& words : {eval, generate}) {
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CHECK(outcome.status == 0);
    CHECK_FALSE(test::holds(outcome.errors, "/3 records"));
    CHECK_FALSE(test::holds(outcome.errors, "\033"));
  }
}

TEST_CASE("program: a text of a data file does not control the terminal, and goes as it is elsewhere") {
  const Subject subject;
  io::write_file(subject.temp / "data.jsonl", std::string_view("{\"instruction\": \"\\u001b[31mred\\tand\\nmore\", "
                                                               "\"output\": \"yes\"}\n"));
  const auto words = subject.words({"train", "--preview=1"});
  CHECK(test::holds(test::run_on_terminal(LORA_PROGRAM, words, 80, true).errors, "\\x1B[31mred\tand\r\nmore"));
  CHECK(test::holds(test::run_program(LORA_PROGRAM, words).output, "\x1B[31mred\tand\nmore"));
}

TEST_CASE("program: of several sets the bars of answers say which, and of the base's evaluation that it is it") {
  const Subject subject;
  test::write_talking_adapter(subject.temp / "model", subject.temp / "adapter");
  io::write_file(subject.temp / "more.jsonl", std::string_view("{\"instruction\": \"a\", \"output\": \"b\"}\n"));
  auto words = subject.words({"eval", subject.output("results"), "--predict", "--max_new_tokens=2", "--compare_base",
                              "--adapter_name_or_path=" + (subject.temp / "adapter").native()});
  for (std::string& word : words)
    if (word.starts_with("--dataset=")) word += "," + (subject.temp / "more.jsonl").native();
  const auto outcome = test::run_on_terminal(LORA_PROGRAM, words, 80);
  CHECK(outcome.status == 0);
  for (const char* bar :
       {"evaluating the base 0/3 records", "evaluating the base 0/1 records", "evaluating 0/3 records",
        "evaluating 0/1 records", "answering data 0/3 records", "answering more 0/1 records"})
    CHECK_MESSAGE(test::holds(outcome.errors, bar), bar);
}

TEST_CASE("program: an evaluation leaves no answers of an earlier one beside its results") {
  const Subject subject;
  const io::Path answers = subject.temp / "results" / "predictions.jsonl";
  CHECK(test::run_program(LORA_PROGRAM,
                          subject.words({"eval", subject.output("results"), "--predict", "--max_new_tokens=4"}))
            .status == 0);
  REQUIRE(std::filesystem::exists(answers));
  CHECK(test::run_program(LORA_PROGRAM, subject.words({"eval", subject.output("results")})).status == 0);
  CHECK_FALSE(std::filesystem::exists(answers));
  // In a folder of something else it is not ours.
  io::create_folders(subject.temp / "other");
  io::write_file(subject.temp / "other" / "predictions.jsonl", std::string_view("mine"));
  CHECK(test::run_program(LORA_PROGRAM, subject.words({"eval", subject.output("other")})).status == 2);
  CHECK(io::read_file(subject.temp / "other" / "predictions.jsonl") == "mine");
}

TEST_CASE("program: an adapter may be named by the folder of its run") {
  const Subject subject;
  REQUIRE(test::run_program(LORA_PROGRAM,
                            subject.words({"train", subject.output("run"), "--max_steps=3", "--learning_rate=0.1"}))
              .status == 0);
  const auto answers = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"generate", "--max_new_tokens=4"});
    return test::run_program(LORA_PROGRAM, subject.words(words)).output;
  };
  const std::string run = (subject.temp / "run").native();
  CHECK(answers({"--adapter_name_or_path=" + run}) == answers({"--adapter_name_or_path=" + run + "/final_model"}));
  CHECK(answers({"--adapter_name_or_path=" + run}) != "");
}

}  // namespace terminal_test
