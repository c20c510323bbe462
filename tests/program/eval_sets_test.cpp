// The command eval over several data sets, with comparisons: the numbers of transformers, and what its files say.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tensorboard_events.hpp"

namespace eval_sets_test {

using namespace lora;

namespace {

const io::Path stories = io::Path(LORA_FIXTURES) / "stories";

/// The data sets of tests/make/text_steps.py.
struct Stories {
  test::TempFolder temp;
  io::Json expected = io::read_json(stories / "perplexity.json");

  Stories() {
    const std::string text = io::read_file(stories / "text.txt");
    std::size_t end = 0;
    for (int line = 0; line < expected.at("text_lines").get<int>(); ++line) end = text.find('\n', end) + 1;
    io::write_file(temp / "text.txt", std::string_view(text).substr(0, end));
    std::string records;
    for (const io::Json& record : expected.at("prompted")) records += io::to_text(record, -1) + "\n";
    io::write_file(temp / "prompted.jsonl", std::string_view(records));
  }
  test::Outcome run(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"eval", "--dtype=float32", "--threads=1",
                                      "--output_dir=" + (temp / out).native()};
    words.insert(words.end(), more.begin(), more.end());
    const auto lacks = [&](std::string_view key) {
      return std::none_of(more.begin(), more.end(), [&](const std::string& word) { return word.starts_with(key); });
    };
    if (lacks("--model_name_or_path")) words.push_back("--model_name_or_path=" + stories.native());
    if (lacks("--cutoff_len")) words.push_back("--cutoff_len=64");
    return test::run_program(LORA_PROGRAM, words);
  }
  std::string both() const { return concat("--dataset=", (temp / "text.txt").native(), ",", prompted()); }
  std::string prompted() const { return (temp / "prompted.jsonl").native(); }
  io::Json eval(const std::string& out, const std::vector<std::string>& more) const {
    const auto outcome = run(out, more);
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    const io::Json results = io::read_json(temp / out / "evaluation_results.json");
    CHECK(io::parse_json(outcome.output, "standard output") == results);
    return results;
  }
  std::string report(const std::string& out) const { return io::read_file(temp / out / "evaluation_report.md"); }
};

}  // namespace

TEST_CASE("program: eval of a text and of tokens has transformers' perplexity of each and of both") {
  const Stories s;
  const io::Json results = s.eval("out", {s.both()});
  const auto check = [](const io::Json& found, const io::Json& expected) {
    CHECK(found.at("labelled_tokens") == expected.at("labeled"));
    CHECK(found.at("loss").get<double>() == doctest::Approx(expected.at("loss").get<double>()).epsilon(1e-5));
    CHECK(found.at("perplexity").get<double>() ==
          doctest::Approx(expected.at("perplexity").get<double>()).epsilon(1e-5));
  };
  check(results, s.expected.at("results").at("all"));
  REQUIRE(results.at("datasets").size() == 2);
  for (const io::Json& set : results.at("datasets")) {
    const std::string name = set.at("name");
    CAPTURE(name);
    check(set, s.expected.at("results").at(name));
    // The worst records, each of which alone has the loss that is said of it.
    const io::Json& worst = set.at("worst_records");
    REQUIRE(worst.size() == 5);
    for (std::size_t i = 1; i < 5; ++i) CHECK(worst[i].at("loss") <= worst[i - 1].at("loss"));
    const bool text = name == "text";
    const std::string all = io::read_file(s.temp / (text ? "text.txt" : "prompted.jsonl"));
    std::size_t begin = 0;
    for (int line = 0; line < worst[0].at("record").get<int>(); ++line) begin = all.find('\n', begin) + 1;
    const io::Path one = s.temp / (text ? "one.txt" : "one.jsonl");
    io::write_file(one, std::string_view(all).substr(begin, all.find('\n', begin) + 1 - begin));
    const io::Json alone = s.eval("one", {"--dataset=" + one.native()});
    CHECK(alone.at("labelled_tokens") == worst[0].at("labelled_tokens"));
    CHECK(alone.at("loss").get<double>() == doctest::Approx(worst[0].at("loss").get<double>()).epsilon(1e-6));
    CHECK(worst[0].at("where").get<std::string>().ends_with(concat(":", worst[0].at("record").get<int>() + 1)));
    CHECK(!worst[0].at("text").get<std::string>().empty());
  }
  const std::string report = s.report("out");
  for (const char* words : {"\n| text | 12 | 1673 | 6.4848 | 655.", "\n| prompted | 17 | 1694 | 6.4877 | 657.",
                            "\n| all | 29 | 3367 | 6.4863 | 656.", "\n## Worst records\n"})
    CHECK(test::holds(report, words));
  // As many records of each.
  const io::Json few = s.eval("few", {s.both(), "--max_samples=3"});
  for (const io::Json& set : few.at("datasets")) CHECK(set.at("records") == 3);
  CHECK(few.at("records") == 6);
}

TEST_CASE("program: eval compares with earlier results, where they are of the same data") {
  const Stories s;
  s.eval("text", {"--dataset=" + (s.temp / "text.txt").native()});
  const io::Json first = s.eval("first", {s.both()});
  const io::Json again = s.eval("again", {s.both(), concat("--compare_with=", (s.temp / "first").native(), ",",
                                                           (s.temp / "text" / "evaluation_results.json").native())});
  REQUIRE(again.at("comparisons").size() == 2);
  for (const io::Json& line : again.at("comparisons")[0].at("datasets")) {
    CHECK(line.at("loss_difference") == 0);
    CHECK(line.at("perplexity_ratio") == 1);
  }
  const io::Json& partly = again.at("comparisons")[1].at("datasets");
  CHECK(partly[0].at("loss_difference") == 0);
  CHECK(partly[1].at("differs") == "it was not evaluated then");
  CHECK(test::holds(s.report("again"), "- prompted is not compared: it was not evaluated then"));

  const std::string before = "--compare_with=" + (s.temp / "first").native();
  const auto differs = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {before};
    words.insert(words.end(), more.begin(), more.end());
    const io::Json line = s.eval("other", words).at("comparisons")[0].at("datasets")[0];
    CHECK_FALSE(line.contains("loss_difference"));
    return line.at("differs").get<std::string>();
  };
  CHECK(differs({s.both(), "--cutoff_len=32"}) == "it was read in other windows then");
  CHECK(differs({s.both(), "--max_samples=2"}) == "it has other records now");
  // Results of a version that knew one data set.
  io::Json old = io::read_json(s.temp / "text" / "evaluation_results.json");
  for (const char* field : {"datasets", "cutoff_len"}) old.erase(field);
  io::write_json(s.temp / "old.json", old);
  old["loss"] = old.at("loss").get<double>() + 1;
  io::write_json(s.temp / "worse.json", old);
  const io::Json line = s.eval("other", {s.both(), concat("--compare_with=", (s.temp / "worse.json").native())})
                            .at("comparisons")[0]
                            .at("datasets")[0];
  CHECK(line.at("loss_difference").get<double>() == doctest::Approx(-1));
  CHECK(line.at("perplexity_ratio").get<double>() == doctest::Approx(std::exp(-1.0)));
}

TEST_CASE("program: eval compares with each earlier evaluation once") {
  const Stories s;
  s.eval("first", {s.both()});
  const std::string first = (s.temp / "first").native(), file = first + "/evaluation_results.json";
  const auto said = [&](const std::string& list) {
    const auto outcome = s.run("again", {s.both(), "--compare_with=" + list});
    CHECK(outcome.status == 2);
    return outcome.errors;
  };
  CHECK(said(concat(first, ",", first)) ==
        concat("error: key compare_with: given ", file, " twice, as ", first, " too; allowed: each evaluation once\n"));
  CHECK(said(concat(file, ",", file)) ==
        concat("error: key compare_with: given ", file, " twice; allowed: each evaluation once\n"));
  CHECK_FALSE(std::filesystem::exists(s.temp / "again"));
}

TEST_CASE("program: eval with compare_base evaluates both, and says what the adapter changes") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "model");
  test::write_talking_adapter(temp / "model", temp / "adapter");
  std::string text;
  for (int i = 0; i < 9; ++i) text += io::to_text(io::Json{{"text", concat("some text | ", i * i)}}, -1) + "\n";
  io::write_file(temp / "some_data.jsonl", std::string_view(text));
  const auto eval = [&](const char* out, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"eval",
                                      "--model_name_or_path=" + (temp / "model").native(),
                                      "--dtype=float32",
                                      "--threads=1",
                                      "--dataset=" + (temp / "some_data.jsonl").native(),
                                      concat("--output_dir=", (temp / out).native())};
    words.insert(words.end(), more.begin(), more.end());
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    return io::read_json(temp / out / "evaluation_results.json");
  };
  const std::string adapter = "--adapter_name_or_path=" + (temp / "adapter").native();
  const io::Json base = eval("base", {}), adapted = eval("adapted", {adapter}),
                 both = eval("both", {adapter, "--compare_base"});
  CHECK(base.at("loss") != adapted.at("loss"));
  CHECK_FALSE(adapted.contains("base"));
  for (const char* name : {"loss", "perplexity", "token_accuracy", "labelled_tokens"}) {
    CHECK(both.at(name) == adapted.at(name));
    CHECK(both.at("base").at(name) == base.at(name));
    CHECK(both.at("datasets")[0].at("base").at(name) == base.at(name));
  }
  const std::string report = io::read_file(temp / "both" / "evaluation_report.md");
  CHECK(test::holds(report, "## Against the base model"));
  CHECK(test::holds(report, "| some\\_data | " + fixed(base.at("loss"), 4) + " | " + fixed(adapted.at("loss"), 4)));
  CHECK(test::holds(report, "some text \\| "));
}

TEST_CASE("program: each evaluation in a folder adds events of its step for TensorBoard") {
  const Stories s;
  s.eval("out", {s.both()});
  const io::Path checkpoint = s.temp / "checkpoint-7";
  io::create_folders(checkpoint);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
    io::copy_file(stories / name, checkpoint / name);
  io::write_json(checkpoint / "trainer_state.json", {{"step", 7}});
  s.eval("out", {s.both(), "--model_name_or_path=" + checkpoint.native()});
  std::string lines;
  for (const std::string& line : test::lines_of_events(
           io::read_file(s.temp / "out" / "tensorboard" / "evaluation" / "events.out.tfevents.lora"), {}))
    lines += line + "\n";
  CAPTURE(lines);
  for (const char* tag :
       {"eval/loss", "eval/perplexity", "eval/token_accuracy", "eval/text/loss", "eval/prompted/perplexity"}) {
    CAPTURE(tag);
    CHECK(test::holds(lines, tag));
  }
  CHECK(test::holds(lines, "\n0 eval/loss"));
  CHECK(test::holds(lines, "\n7 eval/loss"));
}

TEST_CASE("program: eval refuses a file given twice, and earlier results that are none, before it writes") {
  const Stories s;
  const auto refuses = [&](int status, const std::string& what, const std::vector<std::string>& more) {
    const auto outcome = s.run("refused", more);
    CAPTURE(outcome.errors);
    CHECK(outcome.status == status);
    CHECK(test::holds(outcome.errors, what));
    CHECK_FALSE(io::is_there(s.temp / "refused" / "evaluation_results.json"));
  };
  refuses(2, "key dataset: given " + s.prompted() + " twice", {concat("--dataset=", s.prompted(), ",", s.prompted())});
  const auto with = [&](const std::string& text) {
    io::write_file(s.temp / "earlier.json", std::string_view(text));
    return std::vector<std::string>{s.both(), "--compare_with=" + (s.temp / "earlier.json").native()};
  };
  refuses(1, "earlier.json", with("{"));
  refuses(1, "earlier.json: expected an object", with("[]"));
  refuses(1, "\"perplexity\" is missing", with(R"({"loss": 1})"));
  refuses(1, "\"loss\" is -1; expected a finite number from 0", with(R"({"loss": -1})"));
  refuses(1, "earlier.json: datasets: expected a list",
          with(R"({"loss": 1, "perplexity": 2, "labelled_tokens": 3, "datasets": 4})"));
  refuses(1, "\"name\"", with(R"({"loss": 1, "perplexity": 2, "labelled_tokens": 3, "datasets": [{"loss": 1,
                              "perplexity": 2, "labelled_tokens": 3}]})"));
  refuses(1, "missing.json", {s.both(), "--compare_with=missing.json"});
  // The file that the results would replace.
  s.eval("mine", {s.both()});
  const auto outcome = s.run("mine", {s.both(), "--compare_with=" + (s.temp / "mine").native()});
  CHECK(outcome.status == 2);
  CHECK(test::holds(outcome.errors, "is the same file as"));
  // A stranger's events.
  io::create_folders(s.temp / "theirs" / "tensorboard" / "evaluation");
  io::write_file(s.temp / "theirs" / "tensorboard" / "evaluation" / "events.out.tfevents.lora", std::string_view("x"));
  CHECK(s.run("theirs", {s.both()}).status == 2);
}

}  // namespace eval_sets_test
