// What eval writes of odd sets: records without answers, equal and unlabeled ones, comparisons with other results, and
// events of the step that its adapter has.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tensorboard_events.hpp"

namespace eval_files_test {

using namespace lora;

namespace {

struct Subject {
  test::TempFolder temp;
  io::Path out = temp / "out";
  std::string adapter = (temp / "adapter").native();

  Subject() {
    test::write_talking_model(temp / "model");
    test::write_talking_adapter(temp / "model", temp / "adapter");
  }

  /// A file of these records, a line each.
  std::string data(const char* name, const std::vector<io::Json>& records) const {
    std::string text;
    for (const auto& record : records) text += io::to_text(record, -1) + "\n";
    io::write_file(temp / name, std::string_view(text));
    return (temp / name).native();
  }
  test::Outcome run(const std::string& dataset, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"eval",
                                      "--model_name_or_path=" + (temp / "model").native(),
                                      "--dtype=float32",
                                      "--threads=1",
                                      "--dataset=" + dataset,
                                      "--output_dir=" + out.native()};
    words.insert(words.end(), more.begin(), more.end());
    return test::run_program(LORA_PROGRAM, words);
  }
  io::Json eval(const std::string& dataset, const std::vector<std::string>& more = {}) const {
    const auto outcome = run(dataset, more);
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    return io::read_json(out / "evaluation_results.json");
  }
  std::string report() const { return io::read_file(out / "evaluation_report.md"); }
  /// Behind the one that says what the file is.
  std::vector<std::string> events() const {
    auto lines =
        test::lines_of_events(io::read_file(out / "tensorboard" / "evaluation" / "events.out.tfevents.lora"), {});
    REQUIRE(!lines.empty());
    CHECK(lines.front() == "0");
    lines.erase(lines.begin());
    return lines;
  }
};

io::Json tokens(const std::vector<int>& ids) { return {{"input_ids", ids}, {"labels", ids}}; }
io::Json pair(const std::string& prompt, const std::string& answer) {
  return {{"prompt", prompt}, {"completion", answer}};
}
float single(const io::Json& json, const char* name) { return static_cast<float>(json.at(name).get<double>()); }

}  // namespace

TEST_CASE(
    "program: predictions.jsonl names the set of a record where there are several, and scores what has an answer") {
  const Subject s;
  test::Listener listener(s.temp / "model");
  const std::string told = listener.answer("question a", 5);
  REQUIRE(told.find_first_not_of(' ') != told.npos);
  const std::string texts = s.data("texts.jsonl", {io::Json{{"text", "once upon"}}}),
                    pairs = s.data("pairs.jsonl", {pair("question a", told), pair("question b", "no no")});
  const std::vector<std::string> predict = {"--template=chatml", "--predict", "--max_new_tokens=5"};
  const io::Json results = s.eval(texts + "," + pairs, predict);
  const auto lines = test::json_lines(io::read_file(s.out / "predictions.jsonl"));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == io::Json{{"prompt", "once upon"},
                             {"predict", listener.continuation(test::byte_tokens("once upon"), 5)},
                             {"dataset", "texts"}});
  CHECK(lines[1].at("dataset") == "pairs");
  CHECK(lines[1].at("label") == told);
  CHECK(lines[1].at("exact_match") == true);
  CHECK(lines[1].at("rouge_l") == 1);
  CHECK(lines[2].at("dataset") == "pairs");
  CHECK(lines[2].at("exact_match") == false);
  CHECK(results.at("answers") == 2);
  CHECK(results.at("exact_matches") == 1);
  CHECK(results.at("exact_match") == 0.5);
  const io::Json& none = results.at("datasets")[0];
  const io::Json& both = results.at("datasets")[1];
  for (const char* name : {"answers", "exact_matches", "exact_match", "rouge_l"}) {
    CHECK_FALSE(none.contains(name));
    CHECK(both.at(name) == results.at(name));
  }
  // Cells of what was not scored are empty.
  CHECK(test::holds(s.report(), " % |  |  |\n| pairs | 2 | "));
  const std::vector<std::string> events = s.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0] ==
        concat("0 eval/loss=", single(results, "loss"), " eval/perplexity=", single(results, "perplexity"),
               " eval/token_accuracy=", single(results, "token_accuracy"),
               " eval/exact_match=0.5 eval/rouge_l=", single(results, "rouge_l"),
               " eval/texts/loss=", single(none, "loss"), " eval/texts/perplexity=", single(none, "perplexity"),
               " eval/texts/token_accuracy=", single(none, "token_accuracy"), " eval/pairs/loss=", single(both, "loss"),
               " eval/pairs/perplexity=", single(both, "perplexity"),
               " eval/pairs/token_accuracy=", single(both, "token_accuracy"),
               " eval/pairs/exact_match=0.5 eval/pairs/rouge_l=", single(both, "rouge_l")));
  (void)s.eval(pairs, predict);
  const auto alone = test::json_lines(io::read_file(s.out / "predictions.jsonl"));
  REQUIRE(alone.size() == 2);
  for (const auto& line : alone) CHECK_FALSE(line.contains("dataset"));
}

TEST_CASE("program: numbers of all sets are those of each added up, of the base model as well") {
  const Subject s;
  const std::string first = s.data("first.jsonl", {tokens({5, 6, 7, 8}), tokens({101, 102})}),
                    second = s.data("second.jsonl", {tokens({'a', 'b', 'c', 'd', 'e', 'f', 'g'})});
  const io::Json results = s.eval(first + "," + second, {"--adapter_name_or_path=" + s.adapter, "--compare_base"});
  const auto check = [&](const auto& of) {
    const io::Json whole = of(results), a = of(results.at("datasets")[0]), b = of(results.at("datasets")[1]);
    CHECK(a.at("records") == 2);
    CHECK(b.at("records") == 1);
    CHECK(whole.at("records") == 3);
    CHECK(a.at("tokens") == 6);
    CHECK(b.at("tokens") == 7);
    CHECK(whole.at("tokens") == 13);
    // The first token of a record has nothing to be told from.
    CHECK(a.at("labelled_tokens") == 4);
    CHECK(b.at("labelled_tokens") == 6);
    CHECK(whole.at("labelled_tokens") == 10);
    for (const char* name : {"loss", "token_accuracy"})
      CHECK(whole.at(name).template get<double>() ==
            doctest::Approx(0.4 * a.at(name).template get<double>() + 0.6 * b.at(name).template get<double>()));
    CHECK(whole.at("perplexity").template get<double>() == std::exp(whole.at("loss").template get<double>()));
    CHECK(a.at("loss") != b.at("loss"));
  };
  check([](const io::Json& json) { return json; });
  check([](const io::Json& json) { return json.at("base"); });
  CHECK(results.at("loss") != results.at("base").at("loss"));
  CHECK(results.at("datasets")[0].at("path") == first);
  CHECK(results.at("datasets")[1].at("path") == second);
  CHECK(results.at("dataset") == io::Json::array({first, second}));
  CHECK(results.at("cutoff_len") == 2048);
  CHECK(results.at("seconds") > 0);
  CHECK(results.at("datasets")[0].at("checksum") != results.at("datasets")[1].at("checksum"));
}

TEST_CASE("program: the worst records are five at most, the first of equal ones, and none without a label") {
  const Subject s;
  std::vector<io::Json> records(9, tokens({'a', 'b', 'c'}));
  records[1] = io::Json{{"input_ids", {3, 4, 5}}, {"labels", {-100, -100, -100}}};
  records[8] = tokens({263, 262, 261});  // which no tokenizer has
  const io::Json results = s.eval(s.data("equal.jsonl", records));
  const io::Json& worst = results.at("datasets")[0].at("worst_records");
  REQUIRE(worst.size() == 5);
  std::vector<int> order, expected = {0, 2, 3, 4, 5, 6, 7};
  for (const io::Json& one : worst) {
    order.push_back(one.at("record"));
    const bool strange = one.at("record") == 8;
    CHECK(one.at("where") == concat((s.temp / "equal.jsonl").native(), ":", order.back() + 1));
    CHECK(one.at("labelled_tokens") == 2);
    CHECK(one.at("perplexity").get<double>() == std::exp(one.at("loss").get<double>()));
    CHECK(one.at("text") == (strange ? "" : "abc"));
  }
  // The strange one has another loss than all the others: it is the worst, or not among them.
  const io::Json least = s.eval(s.data("strange.jsonl", {records[8]}));
  const bool strange_is_worst = least.at("loss") > s.eval(s.data("usual.jsonl", {records[0]})).at("loss");
  if (strange_is_worst) expected.insert(expected.begin(), 8);
  expected.resize(5);
  CHECK(order == expected);
  CHECK(least.at("datasets")[0].at("worst_records")[0].at("text") == "");

  // A long beginning loses its middle, and without a tokenizer there is none.
  std::string words;
  for (int i = 0; words.size() < 200; ++i) words += concat("w", i, " ");
  words.resize(200);
  const io::Json cut = s.eval(s.data("long.jsonl", {io::Json{{"text", words}}}));
  CHECK(cut.at("datasets")[0].at("worst_records")[0].at("text") == words.substr(0, 90) + " ... " + words.substr(170));
  std::filesystem::remove(s.temp / "model" / "tokenizer.json");
  const io::Json bare = s.eval((s.temp / "usual.jsonl").native());
  CHECK(bare.at("datasets")[0].at("worst_records")[0].at("text") == "");
  CHECK(test::holds(s.report(), concat("\n| ", (s.temp / "usual.jsonl").native(), ":1 | ")));
}

TEST_CASE("program: an evaluation's events are of its adapter's step, where that is known") {
  const Subject s;
  const std::string data = s.data("data.jsonl", {tokens({5, 6, 7})});
  const io::Path folder = s.temp / "run" / "final_model";
  std::filesystem::create_directories(folder.parent_path());
  std::filesystem::copy(s.temp / "adapter", folder);
  std::vector<std::string> steps;
  const auto evaluate = [&](const io::Path& adapter, const char* step) {
    (void)s.eval(data, {"--adapter_name_or_path=" + adapter.native()});
    steps.emplace_back(step);
  };
  const io::Path metrics = s.temp / "run" / "training_metrics.json", state = s.temp / "adapter" / "trainer_state.json";
  evaluate(folder, "0");
  for (const char* text : {"{\"steps\": -4}", "{\"step\": 4}", "{"}) {
    io::write_file(metrics, std::string_view(text));
    evaluate(folder, "0");
  }
  io::write_file(metrics, std::string_view("{\"steps\": 12}"));
  evaluate(folder, "12");
  evaluate(s.temp / "run", "12");
  evaluate(folder.native() + "/", "12");
  evaluate(folder / "..", "12");
  evaluate(folder / ".", "12");
  io::write_file(s.temp / "training_metrics.json", std::string_view("{\"steps\": 13}"));
  evaluate(s.temp / "adapter", "0");  // which is no final model
  for (const char* text : {"{\"step\": -3}", "{\"steps\": 3}", "{\"step\": \"3\"}", "{"}) {
    io::write_file(state, std::string_view(text));
    evaluate(s.temp / "adapter", "0");
  }
  io::write_file(state, std::string_view("{\"step\": 7}"));
  evaluate(s.temp / "adapter", "7");
  std::vector<std::string> found;
  for (const std::string& line : s.events()) found.push_back(line.substr(0, line.find(' ')));
  CHECK(found == steps);
}

TEST_CASE("program: what eval compares with says what it was, and why a set is not compared") {
  const Subject s;
  const std::string data = s.data("some.jsonl", {tokens({5, 6, 7})});
  const io::Json then = s.eval(data, {"--adapter_name_or_path=" + s.adapter});
  const io::Path file = s.temp / "then.json";
  const auto compared = [&](const io::Json& earlier) {
    io::write_json(file, earlier);
    const io::Json comparison = s.eval(data, {"--compare_with=" + file.native()}).at("comparisons")[0];
    CHECK(comparison.at("file") == file.native());
    return comparison;
  };
  const io::Json whole = compared(then), now = io::read_json(s.out / "evaluation_results.json");
  CHECK(whole.at("model_name_or_path") == (s.temp / "model").native());
  CHECK(whole.at("adapter_name_or_path") == s.adapter);
  CHECK(test::holds(s.report(), concat("\n## Against ", file.native(), "\n\n- model: ", (s.temp / "model").native(),
                                       "\n- adapter: ", s.adapter, "\n\n| data set | loss then | loss |")));
  const double before = then.at("loss"), loss = now.at("loss");
  REQUIRE(before != loss);
  CHECK(whole.at("datasets")[0] == io::Json{{"name", "some"},
                                            {"loss", before},
                                            {"perplexity", then.at("perplexity")},
                                            {"loss_difference", loss - before},
                                            {"perplexity_ratio", std::exp(loss - before)}});
  const auto differs = [&](const io::Json& earlier, const char* why) {
    const io::Json line = compared(earlier).at("datasets")[0];
    CHECK(line.at("differs") == why);
    CHECK(line.contains("loss") == (std::string_view(why) != "it was not evaluated then"));
    CHECK_FALSE(line.contains("perplexity_ratio"));
    CHECK(test::holds(s.report(), concat("\n- some is not compared: ", why, "\n")));
  };
  const char* tokens_differ = "other tokens were labeled then";
  io::Json other = then;
  other["cutoff_len"] = 9;
  differs(other, "it was read in other windows then");
  other["datasets"][0]["labelled_tokens"] = 3;
  differs(other, tokens_differ);
  other["datasets"][0]["checksum"] = "0";
  differs(other, "it has other records now");
  other["datasets"][0]["name"] = "another";
  differs(other, "it was not evaluated then");
  // What is not said is no difference.
  other = then;
  other.erase("cutoff_len");
  other["datasets"][0].erase("checksum");
  for (const char* name : {"model_name_or_path", "adapter_name_or_path"}) other.erase(name);
  const io::Json silent = compared(other);
  CHECK(silent.at("adapter_name_or_path").is_null());
  CHECK(silent.at("datasets")[0].at("loss_difference") == loss - before);
  CHECK(test::holds(s.report(), concat("\n## Against ", file.native(), "\n\n\n| data set |")));
  // Results of a version that knew one set are that file's.
  other = then;
  other.erase("datasets");
  CHECK(compared(other).at("datasets")[0].at("loss_difference") == loss - before);
  other["labelled_tokens"] = 3;
  differs(other, tokens_differ);
  for (const io::Json& files : {io::Json::array({data, data}), io::Json::array({(s.temp / "another.jsonl").native()}),
                                io::Json::array({1}), io::Json::array(), io::Json(data)}) {
    other["dataset"] = files;
    differs(other, "it was not evaluated then");
  }
  other.erase("dataset");
  differs(other, "it was not evaluated then");
}

TEST_CASE("program: earlier results that lack a number are refused with its place") {
  const Subject s;
  const std::string data = s.data("some.jsonl", {tokens({5, 6, 7})}), file = (s.temp / "then.json").native();
  const auto refused = [&](const std::string& text, const std::string& why) {
    io::write_file(file, std::string_view(text));
    const auto outcome = s.run(data, {"--compare_with=" + file});
    CHECK(outcome.status == 1);
    CHECK_MESSAGE(test::holds(outcome.errors, why), outcome.errors);
    CHECK(outcome.errors.starts_with("error: " + file + ": "));
    CHECK_FALSE(std::filesystem::exists(s.out));
  };
  const std::string good = R"("loss": 0, "perplexity": 1, "labelled_tokens": 3)";
  refused(R"({"perplexity": 1, "labelled_tokens": 3})", "\"loss\" is missing");
  refused(R"({"loss": 1, "labelled_tokens": 3})", "\"perplexity\" is missing");
  refused(R"({"loss": 1, "perplexity": 2})", "\"labelled_tokens\" is missing");
  refused(R"({"loss": -0.5, "perplexity": 2, "labelled_tokens": 3})",
          "\"loss\" is -0.5; expected a finite number from 0\n");
  for (const char* list : {"{}", "4", "\"a\""})
    refused("{" + good + ", \"datasets\": " + list + "}", "datasets: expected a list of data sets\n");
  const auto second = [&](const std::string& set, const std::string& why) {
    refused("{" + good + ", \"datasets\": [{" + good + ", \"name\": \"some\"}, {" + set + "}]}", why);
  };
  second(good, "\"name\" is missing");
  second(R"("perplexity": 1, "labelled_tokens": 3, "name": "b")", "\"loss\" is missing");
  second(R"("loss": 1, "labelled_tokens": 3, "name": "b")", "\"perplexity\" is missing");
  second(R"("loss": 1, "perplexity": 1, "name": "b")", "\"labelled_tokens\" is missing");
  second(R"("loss": -2, "perplexity": 1, "labelled_tokens": 3, "name": "b")", "\"loss\" is -2; expected a finite");
  io::write_file(file, std::string_view("{" + good + "}"));
  CHECK(s.run(data, {"--compare_with=" + file}).status == 0);
}

TEST_CASE("program: each file of an evaluation is in the way where no evaluation wrote it") {
  const Subject s;
  const std::string data = s.data("some.jsonl", {tokens({5, 6, 7})});
  const auto refused = [&](const char* name) {
    const auto outcome = s.run(data);
    CAPTURE(name);
    CHECK(outcome.status == 2);
    CHECK(outcome.output.empty());
    CHECK(outcome.errors == concat("error: key output_dir: given ", s.out.native(), ", where ", (s.out / name).native(),
                                   " is in the way, which no evaluation wrote; hint: give another folder, or move "
                                   "that away\n"));
  };
  const char* names[] = {"evaluation_report.md", "predictions.jsonl", "tensorboard/evaluation/events.out.tfevents.lora",
                         "evaluation_results.json"};
  for (const char* name : names) {
    io::create_folders((s.out / name).parent_path());
    io::write_file(s.out / name, std::string_view("mine"));
    refused(name);
    CHECK(io::read_file(s.out / name) == "mine");
    std::filesystem::remove(s.out / name);
  }
  // Results are an evaluation's if they have all three of these numbers.
  for (const char* text : {"{\"loss\": 1, \"perplexity\": 2}", "{\"loss\": 1, \"labelled_tokens\": 2}",
                           "{\"perplexity\": 1, \"labelled_tokens\": 2}", "[1]"}) {
    io::write_file(s.out / names[3], std::string_view(text));
    refused(names[3]);
  }
  io::write_file(s.out / names[3], std::string_view("{\"loss\": 1, \"perplexity\": 2, \"labelled_tokens\": 3}"));
  for (int i = 0; i < 3; ++i) {  // a folder is nobody's file
    std::filesystem::remove_all(s.out / names[i]);
    io::create_folders(s.out / names[i]);
    refused(names[i]);
    std::filesystem::remove_all(s.out / names[i]);
  }
  CHECK(s.run(data).status == 0);
}

TEST_CASE("program: eval refuses a file that is given again later, and tells of windows the model was not made for") {
  const Subject s;
  const std::string first = s.data("first.jsonl", {tokens({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})}),
                    second = s.data("second.jsonl", {tokens({1, 2, 3})});
  CHECK(s.run(first + "," + second + "," + first).errors ==
        "error: key dataset: given " + first + " twice; allowed: each file, or split of one, once\n");
  CHECK_FALSE(std::filesystem::exists(s.out));
  io::Json config = io::read_json(s.temp / "model" / "config.json");
  config["max_position_embeddings"] = 8;
  io::write_json(s.temp / "model" / "config.json", config);
  const auto told = [&](const std::string& dataset, const std::vector<std::string>& more, int length) {
    const std::string errors = s.run(dataset, more).errors;
    CHECK(test::holds(errors, "the longest window has ") == (length > 0));
    if (length > 0)
      CHECK(test::holds(errors, concat("Warning: the longest window has ", length,
                                       " tokens, but the model was made for 8 (max_position_embeddings")));
  };
  told(second + "," + first, {}, 12);
  told(first, {"--cutoff_len=10"}, 10);
  told(first, {"--cutoff_len=8"}, 0);
  told(second, {}, 0);
  // Answers of the second set are enough to predict.
  const std::string pairs = s.data("pairs.jsonl", {pair("a", "b")});
  CHECK(s.run(second + "," + pairs, {"--predict", "--max_new_tokens=1", "--template=chatml"}).status == 0);
  CHECK(s.run(second + "," + first, {"--predict"})
            .errors.ends_with("error: " + second + ":1: predict needs records with an answer; there is none\n"));
  const io::Json silent = {{"input_ids", {3, 4, 5}}, {"labels", {-100, -100, -100}}};
  const std::string bare = s.data("bare.jsonl", {silent, silent});
  CHECK(test::holds(s.run(second + "," + bare).errors,
                    "error: " + bare + ":1: nothing to evaluate: none of 2 records has a labeled token\n"));
}

TEST_CASE("program: eval refuses what is longer than the model computes by file and line, and ends answers there") {
  const Subject s;
  const auto length = [](const char* question) {
    return std::ssize(test::byte_tokens(test::chatml_question(question)));
  };
  const Index longest = length("ab") + 4;
  test::write_talking_model(s.temp / "model", DType::f32, test::longrope_model(longest));
  const std::string first = s.data("first.jsonl", {pair("a", "b"), pair("ab", "bcd")}),
                    second = s.data("second.jsonl", {pair("a", "b"), pair("abcd", "b")}),
                    third = s.data("third.jsonl", {pair("a", "b"), pair("ab", "bcde")}),
                    fourth = s.data("fourth.jsonl", {pair("a", "b"), pair("abcdefg", "b")});
  const std::string limit =
      concat("beyond ", longest, " the model's longrope scaling has other factors, which are not supported");
  const std::vector<std::string> predict = {"--predict", "--max_new_tokens=5", "--template=chatml",
                                            concat("--cutoff_len=", longest)};
  const auto outcome = s.run(first + "," + second, predict);
  CHECK(outcome.status == 0);
  CHECK(outcome.errors.ends_with(concat("\nWarning: ", first, ":2: the answer and 1 other end at ", longest,
                                        " tokens, prompt included: ", limit, "\n")));
  CHECK(test::json_lines(io::read_file(s.out / "predictions.jsonl")).at(1).at("predict").get<std::string>().size() ==
        4);
  std::filesystem::remove_all(s.out);
  const auto check_refused = [&](const std::string& file, const std::vector<std::string>& more, const char* what) {
    const auto refused = s.run(first + "," + file, more);
    CHECK(refused.status == 2);
    CHECK_FALSE(io::is_there(s.out));
    CHECK(refused.errors ==
          concat("error: ", file, ":2: ", what, " of ", longest + 1, " tokens, but ", limit, "; allowed: no more\n"));
  };
  check_refused(third, {"--template=chatml"}, "a sequence");
  check_refused(fourth, predict, "a prompt");
}

}  // namespace eval_files_test
