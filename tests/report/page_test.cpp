// What a run's folder tells, as a page: the numbers are the log's, and nothing in it is taken for markup.

#include "lora/report/page.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/report/chart.hpp"
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
  const io::Json sample = {{"prompt", script}, {"label", script}, {"predict", script}};
  run.log(io::to_text({{"step", 1}, {"eval_loss", 1}, {"eval_samples", {sample}}}, -1) + "\n");
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

namespace {

/// A run that is no folder.
RunRecord record_of(const std::string& name, const io::Json& metrics = {}) {
  RunRecord record;
  record.name = name;
  record.settings = io::Json::object();
  record.metrics = metrics;
  return record;
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const auto at = text.find(begin);
  return at == text.npos ? "" : text.substr(at, text.find(end, at) - at);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace

TEST_CASE("page: scores have their titles and stand under them, a run a row") {
  io::Json metrics = io::Json::object();
  int number = 0;
  for (const char* field : {"steps", "train_loss", "mean_train_loss", "eval_loss", "best_eval_loss", "best_step",
                            "final_model_step", "ended_early", "total_tokens", "computed_tokens", "tokens_per_second",
                            "peak_memory_gib", "seconds", "of no column"})
    metrics[field] = ++number;
  std::string head = "<tr><th>run</th>", row = "<tr><td>a</td>";
  for (const char* title :
       {"steps", "last loss", "mean loss", "evaluation loss", "best evaluation loss", "at step",
        "final_model&#39;s step", "ended early", "tokens", "of them computed", "tokens/s", "peak GiB", "seconds"})
    head += concat("<th class=\"n\">", title, "</th>");
  for (int i = 1; i <= 13; ++i) row += concat("<td class=\"n\">", i, "</td>");
  const std::string page = page_of({record_of("a", metrics)}, {});
  CHECK(between(page, "<tr>", "</table>") == head + "</tr>\n" + row + "</tr>\n");
  const std::string ending = "<p>The training has not ended yet.</p>\n";
  CHECK_FALSE(holds(page, ending));
  CHECK(holds(page_of({record_of("a")}, {}), "</h1>\n" + ending + "<div class=\"charts\">\n</div>\n<h2>Settings"));
  CHECK(holds(page_of({record_of("a", {{"of no column", 1}})}, {}), ending));
}

TEST_CASE("page: evaluations have their titles, and the run's name where there are several") {
  RunRecord one = record_of("a"), two = record_of("b");
  one.evaluations = {{{"step", 1}, {"eval_loss", 2}, {"eval_perplexity", 3}, {"eval_token_accuracy", 4}},
                     {{"step", 5}, {"eval_loss", 6}, {"eval_exact_match", 7}, {"eval_rouge_l", 8}}};
  two.evaluations = {{{"step", 9}, {"eval_loss", 10}}};
  const auto cells = [](const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers)
      text += number == 0 ? "<td class=\"v\"></td>" : concat("<td class=\"n\">", number, "</td>");
    return text + "</tr>\n";
  };
  std::string head;
  for (const char* title : {"loss", "perplexity", "token accuracy", "exact match", "ROUGE-L"})
    head += concat("<th class=\"n\">", title, "</th>");
  const auto table = [](const std::string& page) { return between(page, "<h2>Evaluations</h2>", "</table>"); };
  const std::string begin = "<h2>Evaluations</h2>\n<div class=\"wide\"><table>\n<tr>";
  CHECK(table(page_of({one}, {})) == begin + "<th>step</th>" + head + "</tr>\n<tr>" + cells({1, 2, 3, 4, 0, 0}) +
                                         "<tr>" + cells({5, 6, 0, 0, 7, 8}));
  CHECK(table(page_of({one, two}, {})) ==
        begin + "<th>run</th><th class=\"n\">step</th>" + head + "</tr>\n<tr><td>a</td>" + cells({1, 2, 3, 4, 0, 0}) +
            "<tr><td>a</td>" + cells({5, 6, 0, 0, 7, 8}) + "<tr><td>b</td>" + cells({9, 10, 0, 0, 0, 0}));
  CHECK(table(page_of({two}, {})) == begin + "<th>step</th><th class=\"n\">loss</th></tr>\n<tr>" + cells({9, 10}));
}

TEST_CASE("page: more than twenty points have their mean in front of them, over a sixtieth to both sides") {
  const auto chart = [](int points, const char* field) {
    RunRecord run = record_of("a");
    for (int i = 0; i < points; ++i) run.curves[field].add(i, i % 2);
    return page_of({run}, {});
  };
  for (const char* field : {"loss", "grad_norm", "tokens_per_second"}) {
    CAPTURE(field);
    CHECK(count_of(chart(20, field), "c0 faint") == 0);
    CHECK(count_of(chart(21, field), "c0 faint") == 1);
    CHECK(count_of(chart(21, field), "class=\"c0\"") >= 1);
  }
  for (const char* field : {"learning_rate", "peak_memory_gib"}) CHECK(count_of(chart(21, field), "c0 faint") == 0);
  RunRecord run = record_of("a");
  for (int i = 0; i <= 60; ++i) run.curves["loss"].add(i, i);
  std::vector<Point> mean;
  for (int i = 0; i <= 60; ++i) mean.push_back({1.0 * i, i == 0 ? 0.5 : i == 60 ? 59.5 : i});
  const std::string expected =
      svg_of(Chart{"loss by step", {{"training", run.curve("loss"), 0, true}, {"training", mean, 0}}});
  CHECK(holds(page_of({run}, {}), "<div>" + expected + "</div>\n"));
}

TEST_CASE("page: charts tell what they are of, whose a curve is, and its color stays a run's") {
  RunRecord one = record_of("one"), two = record_of("two");
  one.curves["learning_rate"].add(1, 2);
  for (RunRecord* run : {&one, &two})
    for (const char* field : {"loss", "eval_loss", "grad_norm"})
      for (int i = 0; i < 3; ++i) run->curves[field].add(i, i);
  two.curves["grad_norm"].add(3, 4);
  const std::vector<Point>& points = one.curve("loss");
  const std::string both = page_of({one, two}, {});
  CHECK(holds(both, svg_of(Chart{"loss by step",
                                 {{"one, training", points, 0},
                                  {"one, evaluation", points, 6, false, true},
                                  {"two, training", points, 1},
                                  {"two, evaluation", points, 7, false, true}}})));
  CHECK(holds(both, svg_of(Chart{"norm of the gradient", {{"one", points, 0}, {"two", two.curve("grad_norm"), 1}}})));
  CHECK(holds(both, svg_of(Chart{"learning rate", {{"one", {{1, 2}}, 0}}})));
  CHECK(holds(page_of({two, one}, {}), svg_of(Chart{"learning rate", {{"one", {{1, 2}}, 1}}})));
  const std::string alone = page_of({one}, {});
  CHECK(holds(alone, svg_of(Chart{"loss by step", {{"training", points, 0}, {"evaluation", points, 1, false, true}}})));
  CHECK(holds(alone, svg_of(Chart{"learning rate", {{"", {{1, 2}}, 0}}})));
  CHECK(count_of(alone, "<svg ") == 3);
  CHECK(
      loss_picture(one) ==
      std::string(picture_begin) +
          svg_of(Chart{"one: loss by step", {{"training", points, 0}, {"evaluation", points, 1, false, true}}}, true));
}

TEST_CASE("page: records of labels and files are drawn where the file has lists of them, sixty rows at most") {
  const auto page = [](const io::Json& metrics) { return page_of({record_of("a", metrics)}, {}); };
  io::Json stages = io::Json::array();
  for (int i = 0; i < 61; ++i)
    stages.push_back({{"from_step", i}, {"to_step", i + 1}, {"counts", {{"x", 1}, {concat("of ", i), 2}}}});
  const std::string many = page({{"curriculum", stages}});
  CHECK(holds(many, ">steps 60 to 60</text>"));
  CHECK_FALSE(holds(many, ">steps 61 to 61</text>"));
  CHECK(count_of(many, ">x</text>") == 1);
  CHECK(holds(many, ">of 60</text>"));
  const std::string odd = page({{"curriculum", {{{"counts", 3}}, {{"to_step", "b"}, {"counts", {{"x", "y"}}}}}},
                                {"datasets", {{{"records", 2}}, {{"name", 7}, {"records", nullptr}}}}});
  CHECK(count_of(odd, ">steps 1 to 0</text>") == 2);
  CHECK(holds(odd, "<title>all steps, : 2, 100.0 %</title>"));
  CHECK(holds(odd, ">7</text>"));
  for (const io::Json& other : {io::Json(io::Json::array()), io::Json(3), io::Json::array({1}), io::Json()}) {
    CHECK_FALSE(holds(page({{"curriculum", other}}), "<h2>Curriculum"));
    CHECK_FALSE(holds(page({{"datasets", other}}), "<h2>Files"));
  }
  CHECK_FALSE(holds(page_of({record_of("a", {{"datasets", {{{"name", "a"}, {"records", 1}}}}}), record_of("b")}, {}),
                    "<h2>Files"));
}

TEST_CASE("page: samples of the last evaluation may be fewer than of the first, and are a run's alone") {
  RunRecord run = record_of("a");
  const io::Json first = {{"prompt", "p"}, {"label", "l"}, {"predict", "one"}};
  const io::Json second = {{"prompt", "q"}, {"label", "m"}, {"predict", "two"}};
  run.evaluations = {{{"step", 1}, {"eval_loss", 1}, {"eval_samples", {first, second}}},
                     {{"step", 2}, {"eval_loss", 1}, {"eval_samples", io::Json::array({{{"predict", "three"}}})}}};
  const std::string page = page_of({run}, {});
  const std::string v = "<td class=\"v\">", end = "</td>";
  CHECK(holds(page, "<tr>" + v + "p" + end + v + "l" + end + v + "one" + end + v + "three" + end + "</tr>\n<tr>" + v +
                        "q" + end + v + "m" + end + v + "two" + end + v + end + "</tr>\n"));
  CHECK_FALSE(holds(page_of({run, record_of("b")}, {}), "<h2>Samples"));
}

TEST_CASE("page: settings and environment of each run stand at its end, under its name where there are several") {
  RunRecord one = record_of("o<e"), two = record_of("two");
  one.settings = {{"a", 1}, {"b", "x&y"}};
  two.settings = {{"b", "x&y"}, {"c", nullptr}};
  one.environment = "host & home\n";
  const auto end_of = [](const std::string& page) { return page.substr(page.find("<details>")); };
  const auto details = [](const std::string& title, const std::string& text) {
    return "<details><summary>" + title + "</summary><pre>" + text + "</pre></details>\n";
  };
  const std::string settings = escaped(io::to_text(one.settings, 2)), others = escaped(io::to_text(two.settings, 2)),
                    environment = "host &amp; home\n", last = "</body></html>\n";
  CHECK(end_of(page_of({one}, {})) == details("All settings", settings) + details("Environment", environment) + last);
  const std::string both = page_of({one, two}, {});
  CHECK(end_of(both) == details("All settings of o&lt;e", settings) + details("Environment of o&lt;e", environment) +
                            details("All settings of two", others) + last);
  CHECK(holds(both,
              "<h2>Settings that differ</h2>\n<div class=\"wide\"><table>\n<tr><th>key</th><th>o&lt;e</th>"
              "<th>two</th></tr>\n<tr><td>a</td><td class=\"n\">1</td><td class=\"v\"></td></tr>\n</table>"));
  CHECK(holds(page_of({one}, {{"a", 1}}),
              "<h2>Settings that are not the defaults</h2>\n<div class=\"wide\"><table>\n<tr><th>key</th>"
              "<th>value</th></tr>\n<tr><td>b</td><td class=\"v\">x&amp;y</td></tr>\n</table></div>\n<details>"));
  CHECK(holds(both, "<title>o&lt;e, two</title>\n<style>:root{"));
  CHECK(holds(both, std::string(chart_style()) + "</style></head><body>\n<h1>o&lt;e, two</h1>\n"));
}

TEST_CASE("page: a log's line may have a mebibyte, and evaluations and steps are told apart by their loss") {
  const Run run;
  const std::string begin = "{\"step\": 1, \"x\": \"", end = "\", \"loss\": 2}";
  run.log(begin + std::string((std::size_t{1} << 20) - begin.size() - end.size(), 'x') + end + "\n");
  CHECK(read_run(run.folder).curve("loss") == std::vector<Point>{{1, 2}});
  run.log(begin + std::string((std::size_t{1} << 20) - begin.size() - end.size() + 1, 'x') + end + "\n");
  CHECK(test::holds(run.told(), ":1: a line of 1048577 bytes; at most 1048576"));
  run.log("{\"step\": 1, \"eval_loss\": 3, \"loss\": 2}\n{\"step\": 2, \"mean_loss\": 4}\n");
  const RunRecord record = read_run(run.folder);
  CHECK(record.curve("loss").empty());
  CHECK(record.curve("eval_loss") == std::vector<Point>{{1, 3}});
  CHECK(record.curve("mean_loss") == std::vector<Point>{{2, 4}});
  CHECK(record.evaluations.size() == 1);
  std::filesystem::remove(run.folder / "trainer_log.jsonl");
  std::filesystem::create_symlink("trainer_log.jsonl", run.folder / "trainer_log.jsonl");  // a loop
  CHECK(run.told() == "cannot read " + (run.folder / "trainer_log.jsonl").native());
}

TEST_CASE("page: steps of long runs are told to their last digit") {
  const io::Json stages = io::Json::array({{{"from_step", 1234567}, {"to_step", 12345678}, {"counts", {{"a", 1}}}}});
  RunRecord run = record_of("a", {{"curriculum", stages}});
  const io::Json samples = io::Json::array({{{"prompt", "p"}, {"label", "l"}, {"predict", "one"}}});
  run.evaluations = {{{"step", 12345678}, {"eval_loss", 1}, {"eval_samples", samples}}};
  const std::string page = page_of({run}, {});
  CHECK(holds(page, ">steps 1234568 to 12345678</text>"));
  CHECK(holds(page, "<th>answer after step 12345678</th>"));
}

TEST_CASE("page: its parts come in an order that stays, under a head that stands on its own") {
  RunRecord run = record_of("a", {{"steps", 1},
                                  {"curriculum", io::Json::array({{{"to_step", 1}, {"counts", {{"x", 1}}}}})},
                                  {"datasets", io::Json::array({{{"name", "d"}, {"records", 1}}})}});
  for (const char* field : {"loss", "learning_rate", "grad_norm", "tokens_per_second", "peak_memory_gib"})
    run.curves[field].add(1, 2);
  const io::Json samples = io::Json::array({{{"prompt", "p"}, {"label", "l"}, {"predict", "one"}}});
  run.evaluations = {{{"step", 1}, {"eval_loss", 1}, {"eval_samples", samples}}};
  run.settings = {{"seed", 1}};
  run.environment = "a machine";
  const std::string page = page_of({run}, {});
  CHECK(page.starts_with(std::string(page_begin) +
                         "<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                         "content=\"width=device-width, initial-scale=1\">\n<title>a</title>\n<style>:root{"));
  std::size_t at = 0;
  for (const char* part :
       {"<h1>a</h1>\n<div class=\"wide\"><table>\n<tr><th>run</th>",
        "</table></div>\n<div class=\"charts\">\n<div><svg ", "<title>loss by step</title>",
        "</svg>\n</div>\n<div><svg ", "<title>learning rate</title>", "<title>norm of the gradient</title>",
        "<title>tokens a second</title>", "<title>peak memory, GiB</title>",
        "</svg>\n</div>\n</div>\n<h2>Evaluations</h2>\n", "</table></div>\n<h2>Samples</h2>\n",
        "</table></div>\n<h2>Curriculum</h2>\n<div><svg ", "</svg>\n</div>\n<details><summary>Counts</summary><pre>[",
        "</pre></details>\n<h2>Files</h2>\n<div><svg ",
        "</pre></details>\n<h2>Settings that are not the defaults</h2>\n",
        "</table></div>\n<details><summary>All settings</summary>", "<details><summary>Environment</summary>"}) {
    CAPTURE(part);
    const auto found = page.find(part, at);
    REQUIRE(found != page.npos);
    at = found + 1;
  }
  // Its style is whole, and has what the tables and charts are marked with.
  const std::string style = between(page, "<style>", "</style>");
  CHECK(count_of(style, "{") == count_of(style, "}"));
  for (const char* rule : {".charts{display:grid;", ".wide{overflow-x:auto}", "td,th{border:1px solid var(--line);",
                           "td.n,th.n{text-align:right;", "td.v{overflow-wrap:anywhere;", "pre{background:var(--soft);",
                           "@media print{.charts{", "--paper:#fff;", "--paper:#0d1117;"}) {
    CAPTURE(rule);
    CHECK(count_of(style, rule) == 1);
  }
}

}  // namespace page_test
