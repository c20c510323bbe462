// What a run's folder tells, as a page: the numbers are the log's, and nothing in it is taken for markup.

#include "lora/report/page.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/io/file.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace page_test {

using namespace lora;
using namespace lora::report;
using test::message_of;

namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Run {
  test::TempFolder temp;
  io::Path folder = temp / "a <b>run";

  Run() {
    io::create_folders(folder);
    settings({{"dataset", "d"}, {"lora_rank", 8}, {"learning_rate", 0.0002}});
  }
  void settings(const io::Json& json) const { io::write_json(folder / "run_config.json", json); }
  void log(const std::string& lines) const { io::write_file(folder / "trainer_log.jsonl", std::string_view(lines)); }
  std::string told() const {
    return message_of<Error>([&] { read_run(folder); });
  }
};

constexpr const char* lines =
    R"({"step": 1, "loss": 2.123456789, "learning_rate": 0.0002, "grad_norm": 1.5, "tokens_per_second": 100, "peak_memory_gib": 0.5}
{"step": 2, "loss": null, "skipped": true, "learning_rate": 0.0001}
{"step": 2, "eval_loss": 1.987654321, "eval_perplexity": 7.298, "eval_token_accuracy": 0.625}
{"step": 3, "loss": 1.5, "learning_rate": 0.00005, "grad_norm": 1.25, "tokens_per_second": 120, "peak_memory_gib": 0.5}
)";

}  // namespace

TEST_CASE("page: a run is read from its folder: curves of what has numbers, evaluations, what its files say") {
  const Run run;
  run.log(lines);
  io::write_json(run.folder / "training_metrics.json", {{"steps", 3}});
  io::write_file(run.folder / "environment_info.txt", std::string_view("a machine\n"));
  const RunRecord record = read_run(run.folder);
  CHECK(record.name == "a <b>run");
  CHECK(record.settings.at("lora_rank") == 8);
  CHECK(record.metrics.at("steps") == 3);
  CHECK(record.environment == "a machine\n");
  CHECK(record.curve("loss") == std::vector<Point>{{1, 2.123456789}, {3, 1.5}});
  CHECK(record.curve("learning_rate") == std::vector<Point>{{1, 0.0002}, {2, 0.0001}, {3, 0.00005}});
  CHECK(record.curve("grad_norm") == std::vector<Point>{{1, 1.5}, {3, 1.25}});
  CHECK(record.curve("tokens_per_second") == std::vector<Point>{{1, 100}, {3, 120}});
  CHECK(record.curve("peak_memory_gib") == std::vector<Point>{{1, 0.5}, {3, 0.5}});
  CHECK(record.curve("eval_loss") == std::vector<Point>{{2, 1.987654321}});
  CHECK(record.curve("nothing").empty());
  REQUIRE(record.evaluations.size() == 1);
  CHECK(record.evaluations[0].at("eval_token_accuracy") == 0.625);
  CHECK(read_run(run.folder / "").name == "a <b>run");
}

TEST_CASE("page: a run that goes on lacks files, and the end of its log may be cut; anything else is an error") {
  const Run run;
  RunRecord record = read_run(run.folder);
  CHECK(record.metrics.is_null());
  CHECK(record.curve("loss").empty());
  run.log(std::string(lines) + R"({"step": 4, "lo)");
  CHECK(read_run(run.folder).curve("loss").size() == 2);
  const std::string log = (run.folder / "trainer_log.jsonl").native();
  run.log(R"({"step": 1, "loss": 1})"
          "\n"
          R"({"step": 2, "lo)"
          "\n"
          R"({"step": 3, "loss": 1})"
          "\n");
  CHECK(run.told().starts_with(log + ":2"));
  run.log("{\"loss\": 1}\n");
  CHECK(run.told().starts_with(log + ":1: \"step\""));
  run.log("[]\n");
  CHECK(run.told().starts_with(log + ":1: expected an object"));
  run.log("{\"step\": 1, \"x\": \"" + std::string(std::size_t{1} << 20, 'x') + "\"}\n");
  CHECK(run.told() == log + ":1: a line of 1048596 bytes; at most 1048576");
  run.settings(io::Json::array());
  CHECK(run.told() == (run.folder / "run_config.json").native() + ": must be a JSON object");
  CHECK(message_of<ConfigError>([&] { read_run(run.temp / "none"); }) ==
        concat("key runs: given ", (run.temp / "none").native(),
               ", but there is no run_config.json; allowed: folders of runs"));
}

TEST_CASE("page: its numbers are those of the files, rounded to six digits with the whole one behind them") {
  const Run run;
  run.log(lines);
  io::write_json(run.folder / "training_metrics.json",
                 {{"steps", 3}, {"train_loss", 1.5}, {"total_tokens", 1234567}, {"ended_early", "patience <1>"}});
  const std::string page =
      page_of({read_run(run.folder)}, {{"dataset", "d"}, {"lora_rank", 4}, {"learning_rate", 0.0002}});
  CHECK(page.starts_with("<!DOCTYPE html>\n<!-- a report of lora -->\n<html lang=\"en\">"));
  for (const char* part :
       {"<td class=\"n\">3</td>", "<td class=\"n\" title=\"1.5\">1.5</td>", "<td class=\"n\">1234567</td>",
        "<td class=\"n\" title=\"1.987654321\">1.98765</td>", "<td class=\"n\" title=\"0.625\">0.625</td>",
        "patience &lt;1&gt;", "<h1>a &lt;b&gt;run</h1>", "<title>evaluation, 2: 1.98765</title>",
        "<title>loss by step</title>", "<title>learning rate</title>", "<title>norm of the gradient</title>",
        "<title>tokens a second</title>", "<title>peak memory, GiB</title>"}) {
    CAPTURE(part);
    CHECK(holds(page, part));
  }
  CHECK_FALSE(holds(page, "exact match"));  // which no evaluation has
  // What is not the default, and only that.
  const std::string table =
      page.substr(page.find("Settings that are not"), page.find("All settings") - page.find("Settings that are not"));
  CHECK(holds(table, "<tr><td>lora_rank</td><td class=\"n\">8</td></tr>"));
  CHECK_FALSE(holds(table, "learning_rate"));
  CHECK_FALSE(holds(table, "dataset"));
  CHECK(holds(page_of({read_run(run.folder)}, {}),
              "<tr><td>learning_rate</td><td class=\"n\" title=\"0.0002\">0.0002</td></tr>"));
}

TEST_CASE("page: what only some evaluations or runs have is a column, empty for the others") {
  const Run run, other;
  run.log(std::string(lines) + "{\"step\": 3, \"eval_loss\": 1.5, \"eval_exact_match\": 0.25}\n");
  const std::string page = page_of({read_run(run.folder)}, {});
  CHECK(holds(page, "exact match"));
  CHECK(holds(page, "title=\"0.25\">0.25</td>"));
  CHECK(holds(page, "title=\"0.625\">0.625</td>"));  // the accuracy, which the last one lacks
  // A run that has not ended yet beside one that has.
  io::write_json(run.folder / "training_metrics.json", {{"steps", 3}, {"total_tokens", 1234567}});
  CHECK(holds(page_of({read_run(run.folder), read_run(other.folder)}, {}), "<td class=\"n\">1234567</td>"));
}

TEST_CASE("page: the first and the last generated answers stand beside what the data has") {
  const Run run;
  const auto evaluation = [](int step, const char* answer) {
    return concat("{\"step\": ", step,
                  ", \"eval_loss\": 1, \"eval_samples\": [{\"prompt\": \"why <i>\", \"predict\": \"", answer,
                  "\", \"label\": \"so\"}]}\n");
  };
  const std::string none = "{\"step\": 9, \"eval_loss\": 1}\n";
  const auto samples = [&](const std::string& log) {
    run.log(log);
    const std::string page = page_of({read_run(run.folder)}, {});
    const auto begin = page.find("<h2>Samples</h2>");
    return begin == page.npos ? "" : page.substr(begin, page.find("</table>", begin) - begin);
  };
  const std::string table = "<h2>Samples</h2>\n<div class=\"wide\"><table>\n<tr><th>prompt</th><th>in the data</th>";
  const std::string row = "<tr><td class=\"v\">why &lt;i&gt;</td><td class=\"v\">so</td>";
  CHECK(samples(none).empty());
  CHECK(samples(evaluation(4, "ah") + none) ==
        table + "<th>answer after step 4</th></tr>\n" + row + "<td class=\"v\">ah</td></tr>\n");
  CHECK(samples(evaluation(0, "ah") + evaluation(4, "eh") + evaluation(8, "oh") + none) ==
        table + "<th>answer after step 0</th><th>answer after step 8</th></tr>\n" + row +
            "<td class=\"v\">ah</td><td class=\"v\">oh</td></tr>\n");
  // Of another program's log, what can't be shown is left out.
  CHECK(samples("{\"step\": 1, \"eval_loss\": 1, \"eval_samples\": [3]}\n").empty());
}

TEST_CASE("page: what was drawn of each label and each file is a picture, with the counts behind it") {
  const Run run;
  io::write_json(
      run.folder / "training_metrics.json",
      {{"curriculum",
        {{{"from_step", 0}, {"to_step", 10}, {"counts", {{"easy", 30}, {"hard", 10}}}},
         {{"from_step", 10}, {"to_step", 12}, {"counts", {{"hard", 8}, {"<b>", 0}}}}}},
       {"datasets",
        {{{"name", "a"}, {"records", 3}, {"share", 0.75}}, {{"name", "b"}, {"records", 1}, {"share", 0.25}}}}});
  const std::string page = page_of({read_run(run.folder)}, {});
  for (const char* part :
       {"<h2>Curriculum</h2>", ">steps 1 to 10</text>", ">steps 11 to 12</text>",
        "<title>steps 1 to 10, easy: 30, 75.0 %</title>", "<title>steps 1 to 10, hard: 10, 25.0 %</title>",
        "<title>steps 11 to 12, hard: 8, 100.0 %</title>", ">&lt;b&gt;</text>", "&quot;to_step&quot;: 12",
        "<h2>Files</h2>", "<title>all steps, a: 3, 75.0 %</title>", "<title>all steps, b: 1, 25.0 %</title>"}) {
    CAPTURE(part);
    CHECK(holds(page, part));
  }
  CHECK_FALSE(holds(page, "11 to 12, easy"));  // of which there is nothing to point at
}

TEST_CASE("page: names and values of people's files are text") {
  const Run run;
  const std::string script = "<script>alert(1)</script>";
  run.settings({{"dataset", script}, {script, 1}});
  io::write_json(run.folder / "training_metrics.json",
                 {{"ended_early", script}, {"datasets", {{{"name", script}, {"records", 1}}}}});
  io::write_file(run.folder / "environment_info.txt", std::string_view(script));
  const RunRecord record = read_run(run.folder);
  for (const std::string& page : {page_of({record}, {}), page_of({record, record}, {}), loss_picture(record)}) {
    CHECK_FALSE(holds(page, "<script"));
    CHECK_FALSE(holds(page, "<b>"));
  }
  CHECK(holds(page_of({record}, {}), "&lt;script&gt;alert(1)&lt;/script&gt;"));
}

TEST_CASE("page: of several runs settings that differ have a column each, and curves a color") {
  const Run one, two;
  one.log(lines);
  two.log(lines);
  two.settings({{"dataset", "e"}, {"lora_rank", 8}, {"learning_rate", 0.0002}, {"seed", 3}});
  RunRecord first = read_run(one.folder), second = read_run(two.folder);
  first.name = "first";
  second.name = "second";
  const std::string page = page_of({first, second}, {});
  for (const char* part :
       {"<title>first, second</title>", "<h2>Settings that differ</h2>", "<th>first</th><th>second</th>",
        "<tr><td>dataset</td><td class=\"v\">d</td><td class=\"v\">e</td></tr>",
        "<tr><td>seed</td><td class=\"v\"></td><td class=\"n\">3</td></tr>", ">first, training</text>",
        ">second, evaluation</text>", "class=\"c1\"", "<td>second</td><td class=\"n\">2</td>"}) {
    CAPTURE(part);
    CHECK(holds(page, part));
  }
  const std::string differ =
      page.substr(page.find("Settings that differ"), page.find("All settings") - page.find("Settings that differ"));
  CHECK_FALSE(holds(differ, "lora_rank"));
}

TEST_CASE("page: only what is one, or a picture, is written over") {
  const Run run;
  const io::Path path = run.temp / "page.html";
  const RunRecord record = read_run(run.folder);
  write_page(path, page_of({record}, {}));
  write_page(path, page_of({record, record}, {}));
  CHECK(holds(io::read_file(path), "All settings of "));
  write_page(run.temp / "loss.svg", loss_picture(record));
  CHECK_NOTHROW(write_page(run.temp / "loss.svg", loss_picture(record)));
  CHECK(io::read_file(run.temp / "loss.svg").starts_with("<!-- a picture of lora -->\n<svg "));
  for (const char* other : {"", "mine", "<!DOCTYPE html>\n<html>"}) {
    io::write_file(path, std::string_view(other));
    CHECK(message_of<IoError>([&] { write_page(path, page_of({record}, {})); }) ==
          path.native() + " is there and no report of lora, so it is left alone; move it away");
    CHECK(io::read_file(path) == other);
  }
}

}  // namespace page_test
