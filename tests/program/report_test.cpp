// lora report: a page of one run in its folder, of several where the command says.

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"

namespace report_test {

using namespace lora;

namespace {

test::Outcome report(std::vector<std::string> words) {
  words.insert(words.begin(), "report");
  return test::run_program(LORA_PROGRAM, words);
}

/// Trains for three steps.
io::Path trained(const test::TempFolder& temp, const std::string& name, const std::string& seed) {
  if (!io::is_there(temp / "model")) {
    test::write_random_model(temp / "model", {});
    test::write_tokens(temp / "data.jsonl", 12, 1);
  }
  const io::Path run = temp / name;
  const auto outcome =
      test::run_program(LORA_PROGRAM, {"train", "--device=cpu", "--model_name_or_path=" + (temp / "model").native(),
                                       "--dataset=" + (temp / "data.jsonl").native(), "--output_dir=" + run.native(),
                                       "--max_steps=3", "--logging_steps=1", "--val_size=2", "--seed=" + seed});
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  return run;
}

}  // namespace

TEST_CASE("report: training leaves a page and a picture, and lora report makes the same again") {
  const test::TempFolder temp;
  const io::Path run = trained(temp, "run", "1");
  const std::string page = io::read_file(run / "report.html"), picture = io::read_file(run / "loss.svg");
  CHECK(page.find("<h2>Evaluations</h2>") != std::string::npos);
  int evaluations = 0;
  std::istringstream log(io::read_file(run / "trainer_log.jsonl"));
  for (std::string line; std::getline(log, line);) {
    const io::Json json = io::parse_json(line, "trainer_log.jsonl");
    if (!json.contains("eval_loss")) continue;
    ++evaluations;
    for (const char* field : {"eval_loss", "eval_perplexity", "eval_token_accuracy"}) {
      CAPTURE(field);
      CHECK(page.find("title=\"" + io::to_text(json.at(field), -1) + "\"") != std::string::npos);
    }
  }
  CHECK(evaluations > 0);
  CHECK(picture.find("<svg ") != std::string::npos);
  const auto made = report({run.native()});
  CHECK(made.status == 0);
  CHECK(made.errors == "");
  CHECK(made.output == concat("the report is ", (run / "report.html").native(), "\nthe picture is ",
                              (run / "loss.svg").native(), "\n"));
  CHECK(io::read_file(run / "report.html") == page);
  CHECK(io::read_file(run / "loss.svg") == picture);
}

TEST_CASE("report: several runs stand side by side in the file that is given") {
  const test::TempFolder temp;
  const io::Path one = trained(temp, "one", "1"), two = trained(temp, "two", "2"), file = temp / "both.html";
  const auto made = report({one.native(), two.native(), "--output_file=" + file.native()});
  CHECK(made.status == 0);
  CHECK(made.output == concat("the report is ", file.native(), "\n"));
  const std::string page = io::read_file(file);
  CHECK(page.find("<tr><td>seed</td><td class=\"n\">1</td><td class=\"n\">2</td></tr>") != std::string::npos);
  const auto by_key = report({"--runs=" + one.native() + "," + two.native(), "--output_file", file.native()});
  CHECK(by_key.status == 0);
  CHECK(io::read_file(file) == page);
}

TEST_CASE("report: what is no run, or would be written over, is refused in a line") {
  const test::TempFolder temp;
  const auto refused = [](const std::vector<std::string>& words, int status, const std::string& text) {
    const auto outcome = report(words);
    CHECK(outcome.status == status);
    CHECK(outcome.output == "");
    CHECK(outcome.errors == "error: " + text + "\n");
  };
  refused({}, 2, "key runs: given nothing, allowed: folders of runs");
  refused(
      {temp.path().native()}, 2,
      concat("key runs: given ", temp.path().native(), ", but there is no run_config.json; allowed: folders of runs"));
  refused({"a", "b"}, 2,
          "key output_file: given nothing, allowed: with several runs, a file for the page that has them side by side");
  CHECK(report({"a", "--nonsense"}).errors.find("unknown key --nonsense") != std::string::npos);
  io::create_folders(temp / "run");
  io::write_json(temp / "run" / "run_config.json", io::Json::object());
  // A page that is there may show more.
  io::write_file(temp / "run" / "report.html", std::string_view("a page"));
  const std::string no_lines = ": trainer_log.jsonl is not there or has no line yet; expected a step's";
  refused({(temp / "run").native()}, 1, (temp / "run").native() + no_lines);
  CHECK(io::read_file(temp / "run" / "report.html") == "a page");
  io::write_file(temp / "run" / "trainer_log.jsonl", std::string_view("{\"step\": 1, \"loss\": 2.5}\n"));
  io::write_file(temp / "mine.html", std::string_view("mine"));
  refused({(temp / "run").native(), "--output_file=" + (temp / "mine.html").native()}, 1,
          (temp / "mine.html").native() + " is there and no report of lora, so it is left alone; move it away");
  CHECK(io::read_file(temp / "mine.html") == "mine");
}

}  // namespace report_test
