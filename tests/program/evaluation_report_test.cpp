// evaluation_report.md, word for word: every row of every table, from the numbers of evaluation_results.json.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
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
#include "support/tensorboard_events.hpp"

namespace evaluation_report_test {

using namespace lora;

namespace {

std::string printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// The number of a field as the report has it.
std::string loss_in(const io::Json& json) { return printed("%.4f", json.at("loss").get<double>()); }
std::string percent_in(const io::Json& json, const char* name) {
  return printed("%.1f %%", 100 * json.at(name).get<double>());
}
std::string count_in(const io::Json& json, const char* name) { return concat(json.at(name).get<Index>()); }
/// Five digits, those before the point whole.
std::string perplexity_in(const io::Json& json) {
  const double value = json.at("perplexity").get<double>();
  REQUIRE(value >= 1);
  REQUIRE(value < 1e9);
  constexpr const char* formats[] = {"%.4f", "%.3f", "%.2f", "%.1f"};
  const std::size_t whole = printed("%.0f", std::floor(value)).size();
  return printed(whole <= 4 ? formats[whole - 1] : "%.0f", value);
}
std::string signed_number(double value) { return (value < 0 ? "−" : "+") + printed("%.4f", std::fabs(value)); }

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}
std::string head(const std::vector<std::string>& cells) {
  std::string rule = "|---|";
  for (std::size_t i = 1; i < cells.size(); ++i) rule += "---:|";
  return row(cells) + rule + "\n";
}

/// Two data sets, of which one has an answer that the model with its adapter gives.
struct Subject {
  test::TempFolder temp;
  std::vector<std::string> files = {(temp / "some_data.jsonl").native(), (temp / "other.jsonl").native()};

  Subject() {
    test::write_talking_model(temp / "model");
    test::write_talking_adapter(temp / "model", temp / "adapter");
    test::Listener adapted(temp / "model", temp / "adapter");
    for (std::size_t f = 0; f < files.size(); ++f) {
      std::string text;
      for (std::size_t i = 0; i < 3; ++i) {
        const std::string prompt = concat("a | b ", f, " ", i);
        const std::string answer = f == 0 && i == 0 ? adapted.answer(prompt, 4) : concat("e f ", i);
        text += io::to_text(io::Json{{"prompt", prompt}, {"completion", answer}}, -1) + "\n";
      }
      io::write_file(files[f], std::string_view(text));
    }
  }
  /// A file's path as Markdown.
  std::string in_report(std::size_t f) const {
    std::string file = files[f];
    if (f == 0) file.replace(file.find("some_data"), 9, "some\\_data");
    return file;
  }
  io::Json eval(const std::string& out, const std::string& dataset, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"eval",
                                      "--model_name_or_path=" + (temp / "model").native(),
                                      "--template=chatml",
                                      "--dtype=float32",
                                      "--threads=1",
                                      "--dataset=" + dataset,
                                      "--output_dir=" + (temp / out).native()};
    words.insert(words.end(), more.begin(), more.end());
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    return io::read_json(temp / out / "evaluation_results.json");
  }
  std::string report(const std::string& out) const { return io::read_file(temp / out / "evaluation_report.md"); }
};

}  // namespace

TEST_CASE("program: evaluation_report.md has every number of evaluation_results.json, shortened, and nothing else") {
  const Subject s;
  const std::string adapter = (s.temp / "adapter").native();
  const io::Json earlier = s.eval("earlier", s.files[0]);
  const io::Json results = s.eval("out", s.files[0] + "," + s.files[1],
                                  {"--adapter_name_or_path=" + adapter, "--compare_base", "--predict",
                                   "--max_new_tokens=4", "--compare_with=" + (s.temp / "earlier").native()});
  REQUIRE(results.at("datasets").size() == 2);
  CHECK(results.at("version") == LORA_VERSION);
  CHECK(results.at("dtype") == "float32");
  CHECK(results.at("template") == "chatml");
  CHECK(std::regex_match(results.at("time").get<std::string>(), std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d UTC)")));
  CHECK(results.at("device").get<std::string>().starts_with("cpu, 1 thread"));

  std::string expected = "# Evaluation\n\n- model: " + (s.temp / "model").native() + "\n- adapter: " + adapter + "\n";
  for (std::size_t f = 0; f < 2; ++f) expected += "- data: " + s.in_report(f) + "\n";
  expected += concat("- template: chatml\n- computed in float32 on ", results.at("device").get<std::string>(),
                     "\n- lora ", LORA_VERSION, ", ", results.at("time").get<std::string>(), "\n\n");
  expected += head({"measure", "value"});
  expected += row({"loss", loss_in(results)}) + row({"perplexity", perplexity_in(results)}) +
              row({"token accuracy", percent_in(results, "token_accuracy")}) +
              row({"exact match", percent_in(results, "exact_match")}) +
              row({"ROUGE-L", percent_in(results, "rouge_l")}) +
              row({"labeled tokens", count_in(results, "labelled_tokens")}) + row({"records", "6"});
  expected +=
      "\nLoss and perplexity are over all labeled tokens; records longer than 2048 tokens are read in windows of that "
      "length, each half a window on.\n";

  const auto each = [&](const auto& line) {
    return line("some\\_data", results.at("datasets")[0]) + line("other", results.at("datasets")[1]) +
           line("all", results);
  };
  expected += "\n## Data sets\n\n" + head({"data set", "records", "labeled tokens", "loss", "perplexity",
                                           "token accuracy", "exact match", "ROUGE-L"});
  expected += each([](const char* name, const io::Json& set) {
    return row({name, count_in(set, "records"), count_in(set, "labelled_tokens"), loss_in(set), perplexity_in(set),
                percent_in(set, "token_accuracy"), percent_in(set, "exact_match"), percent_in(set, "rouge_l")});
  });

  expected += "\n## Against the base model\n\n" + head({"data set", "loss of the base", "loss", "difference",
                                                        "perplexity of the base", "perplexity", "ratio"});
  expected += each([](const char* name, const io::Json& set) {
    const double difference = set.at("loss").get<double>() - set.at("base").at("loss").get<double>();
    return row({name, loss_in(set.at("base")), loss_in(set), signed_number(difference), perplexity_in(set.at("base")),
                perplexity_in(set), printed("%.4g", std::exp(difference))});
  });

  const io::Json& comparison = results.at("comparisons")[0];
  expected += concat("\n## Against ", (s.temp / "earlier" / "evaluation\\_results.json").native(),
                     "\n\n- model: ", (s.temp / "model").native(), "\n\n");
  expected += head({"data set", "loss then", "loss", "difference", "perplexity then", "perplexity", "ratio"});
  const io::Json& first = results.at("datasets")[0];
  expected +=
      row({"some\\_data", loss_in(earlier), loss_in(first),
           signed_number(comparison.at("datasets")[0].at("loss_difference").get<double>()), perplexity_in(earlier),
           perplexity_in(first), printed("%.4g", comparison.at("datasets")[0].at("perplexity_ratio").get<double>())});
  expected +=
      row({"other", "", loss_in(results.at("datasets")[1]), "", "", perplexity_in(results.at("datasets")[1]), ""});
  expected += "\n- other is not compared: it was not evaluated then\n";

  expected += "\n## Worst records\n";
  for (std::size_t f = 0; f < 2; ++f) {
    expected += concat("\n", f == 0 ? "some\\_data" : "other", ":\n\n",
                       head({"record", "loss", "perplexity", "labeled tokens"}));
    for (const io::Json& record : results.at("datasets")[f].at("worst_records")) {
      const int number = record.at("record").get<int>();
      expected += row({concat(s.in_report(f), ":", number + 1, ": a \\| b ", f, " ", number), loss_in(record),
                       perplexity_in(record), count_in(record, "labelled_tokens")});
    }
  }
  CHECK(s.report("out") == expected);

  // For TensorBoard too each data set has its own.
  std::string events;
  for (const std::string& line : test::lines_of_events(
           io::read_file(s.temp / "out" / "tensorboard" / "evaluation" / "events.out.tfevents.lora"), {}))
    events += line + " ";
  CAPTURE(events);
  const auto has_event = [&](const std::string& name, const io::Json& set) {
    for (const char* measure : {"loss", "token_accuracy", "exact_match", "rouge_l"})
      CHECK(test::holds(events,
                        concat(" ", name, "/", measure, "=", static_cast<float>(set.at(measure).get<double>()), " ")));
  };
  has_event("eval", results);
  has_event("eval/some_data", first);
  has_event("eval/other", results.at("datasets")[1]);
  CHECK(first.at("rouge_l") != results.at("rouge_l"));
  // No number has more digits than a person compares.
  CHECK_FALSE(std::regex_search(s.report("out"), std::regex(R"(\| [^|]*\d\.\d{5,}[^|]* \|)")));
}

TEST_CASE("program: a perplexity of any size stands in evaluation_report.md with five digits") {
  const Subject s;
  const io::Json earlier = s.eval("earlier", s.files[0]);
  const double values[] = {1,       3.16,      3.1712345, 9.99941,   31.6,     31.712345,
                           99.9941, 317.12345, 3171.2345, 31712.345, 317123.45};
  std::string files;
  for (const double value : values) {
    io::Json other = earlier;
    other["datasets"][0]["perplexity"] = value;
    const auto file = s.temp / concat(value, ".json");
    io::write_json(file, other);
    files += (files.empty() ? "" : ",") + file.native();
  }
  static_cast<void>(s.eval("out", s.files[0], {"--compare_with=" + files}));
  const std::string report = s.report("out"), loss = loss_in(earlier);
  for (const double value : values) {
    const std::string then = perplexity_in({{"perplexity", value}});
    CAPTURE(then);
    CHECK(test::holds(report, concat("| some\\_data | ", loss, " | ", loss, " | +0.0000 | ", then, " | ")));
  }
}

TEST_CASE("program: evaluation_report.md of plain texts names no template and no answers") {
  const Subject s;
  io::write_file(s.temp / "text.txt", std::string_view("some words\nand more of them\n"));
  std::vector<std::string> words = {"eval", "--model_name_or_path=" + (s.temp / "model").native(), "--threads=1",
                                    "--dataset=" + (s.temp / "text.txt").native(),
                                    "--output_dir=" + (s.temp / "out").native()};
  REQUIRE(test::run_program(LORA_PROGRAM, words).status == 0);
  const std::string report = s.report("out");
  CHECK(test::holds(report, "\n- computed in float32 on cpu, 1 thread"));  // nobody named it
  CHECK(io::read_json(s.temp / "out" / "evaluation_results.json").at("dtype") == "float32");
  for (const char* word : {"template", "ROUGE", "exact match", "## Data sets", "## Against"})
    CHECK_FALSE(test::holds(report, word));
  CHECK(io::read_json(s.temp / "out" / "evaluation_results.json").at("template").is_null());
}

}  // namespace evaluation_report_test
