// The command eval to its end: every number that it writes, from the logits of whole forward passes.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace eval_test {

using namespace lora;

namespace {

/// Sums over labeled tokens, to hold results against.
struct Sums {
  double loss = 0;
  Index labeled = 0, correct = 0, tokens = 0;

  /// Tokens of which those from `first` on are labeled.
  void add(test::Listener& listener, const test::Tokens& tokens_of, std::size_t first) {
    const auto scores = listener.scores(tokens_of);
    for (std::size_t i = std::max<std::size_t>(first, 1); i < tokens_of.size(); ++i) {
      loss += scores[i - 1].loss;
      correct += scores[i - 1].likeliest;
      ++labeled;
    }
  }
  void check(const io::Json& results) const {
    const double mean = loss / static_cast<double>(labeled);
    CHECK(results.at("labelled_tokens") == labeled);
    // Logits of float32 sums of 16 and 24 terms through two layers, next to each other in another order.
    CHECK(results.at("loss").get<double>() == doctest::Approx(mean).epsilon(1e-5));
    CHECK(results.at("perplexity").get<double>() == std::exp(results.at("loss").get<double>()));
    CHECK(results.at("token_accuracy").get<double>() == static_cast<double>(correct) / static_cast<double>(labeled));
    CHECK(results.at("tokens") == tokens);
  }
};

struct Subject {
  test::TempFolder temp;
  io::Path out = temp / "out";

  Subject() {
    test::write_talking_model(temp / "model");
    test::write_talking_adapter(temp / "model", temp / "adapter");
  }

  void write(const std::vector<io::Json>& records) const {
    std::string text;
    for (const auto& record : records) text += io::to_text(record, -1) + "\n";
    io::write_file(temp / "data.jsonl", std::string_view(text));
  }
  std::vector<std::string> words(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {
        "eval",        "--model_name_or_path=" + (temp / "model").native(), "--dtype=float32",
        "--threads=1", "--dataset=" + (temp / "data.jsonl").native(),       "--output_dir=" + out.native()};
    if (!test::holds(io::read_file(temp / "data.jsonl"), "input_ids")) all.push_back("--template=chatml");
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string eval_errors(const std::vector<std::string>& more) const {
    return test::run_program(LORA_PROGRAM, words(more)).errors;
  }
  /// The results, which standard output and the file both hold.
  io::Json eval(const std::vector<std::string>& more) const {
    const auto outcome = test::run_program(LORA_PROGRAM, words(more));
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    const io::Json results = io::read_json(out / "evaluation_results.json");
    CHECK(io::parse_json(outcome.output, "standard output") == results);
    return results;
  }
};

io::Json pair(std::string_view question, std::string_view answer) {
  return {{"messages",
           {{{"role", "user"}, {"content", std::string(question)}},
            {{"role", "assistant"}, {"content", std::string(answer)}}}}};
}

}  // namespace

TEST_CASE("program: eval writes the loss and the accuracy of every labeled token, with the adapter or without") {
  const Subject s;
  std::vector<io::Json> records;
  for (int i = 0; i < 11; ++i) records.push_back(pair(concat("question ", i), concat("it is ", i * i)));
  s.write(records);
  for (const bool adapted : {false, true}) {
    CAPTURE(adapted);
    test::Listener listener(s.temp / "model", adapted ? s.temp / "adapter" : io::Path());
    Sums sums;
    for (int i = 0; i < 11; ++i) {
      const auto question = test::byte_tokens(test::chatml_question(concat("question ", i)));
      auto tokens = question;
      for (const auto id : test::byte_tokens(concat("it is ", i * i, "<|im_end|>"))) tokens.push_back(id);
      sums.add(listener, tokens, question.size());
      sums.tokens += static_cast<Index>(tokens.size());
    }
    const auto results = adapted ? s.eval({"--adapter_name_or_path=" + (s.temp / "adapter").native()}) : s.eval({});
    sums.check(results);
    CHECK(results.at("records") == 11);
    CHECK(results.at("model_name_or_path") == (s.temp / "model").native());
    CHECK(results.at("adapter_name_or_path") == (adapted ? io::Json((s.temp / "adapter").native()) : io::Json()));
    CHECK(results.at("dataset") == io::Json::array({(s.temp / "data.jsonl").native()}));
    CHECK_FALSE(results.contains("exact_match"));
    CHECK_FALSE(std::filesystem::exists(s.out / "predictions.jsonl"));
    const std::string report = io::read_file(s.out / "evaluation_report.md");
    CHECK(test::holds(report, concat("\n| loss | ", fixed(results.at("loss"), 4), " |\n")));
    CHECK(report.starts_with("# Evaluation\n\n- model: " + (s.temp / "model").native()));
    CHECK(test::holds(report, "- adapter: ") == adapted);
  }
}

TEST_CASE("program: eval counts what it computed where records begin alike, and says where nothing was shared") {
  const Subject s;
  s.write({pair("What is this?", "a"), pair("What is this?", "b"), pair("What is this?", "c")});
  const io::Json shared = s.eval({}), whole = s.eval({"--share_prefixes=false"});
  CHECK(shared.at("tokens") == whole.at("tokens"));
  CHECK(shared.at("computed_tokens") < shared.at("tokens"));
  CHECK(shared.at("datasets").at(0).at("computed_tokens") == shared.at("computed_tokens"));
  CHECK_FALSE(whole.contains("computed_tokens"));
  CHECK(shared.at("loss").get<double>() == doctest::Approx(whole.at("loss").get<double>()).epsilon(1e-5));
  const std::string warning = "share_prefixes: no records that are evaluated together had anything in common; ";
  CHECK_FALSE(test::holds(s.eval_errors({"--share_prefixes=true"}), warning));
  CHECK_FALSE(test::holds(s.eval_errors({"--per_device_eval_batch_size=1"}), warning));
  CHECK(test::holds(s.eval_errors({"--share_prefixes=true", "--per_device_eval_batch_size=1"}), warning));
}

TEST_CASE("program: eval reads long tokens in windows, half of one apart, and scores each label once") {
  const Subject s;
  test::Listener listener(s.temp / "model");
  test::Tokens tokens{7};
  for (std::int32_t i = 1; i < 50; ++i) tokens.push_back(i % 3 == 0 ? i * i % 251 : listener.next(tokens, 264));
  s.write({io::Json{{"input_ids", tokens}, {"labels", tokens}}});
  Sums sums;
  sums.tokens = 50;
  for (std::size_t begin = 0, scored = 0; scored < tokens.size(); begin += 8) {
    const std::size_t end = std::min(begin + 16, tokens.size());
    sums.add(listener,
             {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end)},
             scored - begin);
    scored = end;
  }
  sums.check(s.eval({"--cutoff_len=16"}));
  CHECK(sums.labeled == 49);
  CHECK(sums.correct > 5);
}

TEST_CASE("program: eval with predict writes each answer, and counts those that match but for white space") {
  const Subject s;
  test::Listener listener(s.temp / "model");
  constexpr std::size_t length = 8;
  std::vector<std::string> questions, whole, answers, labels;
  for (int i = 0; i < 40; ++i) {
    questions.push_back(concat("question ", i));
    whole.push_back(listener.answer(questions.back(), length));
  }
  // A stop id at which some answers end, of which one has white space at an end: or neither would be seen.
  char stop = 'a' - 1;
  for (bool stops = false, spaced = false; !stops || !spaced;) {
    REQUIRE(++stop <= 'z');
    stops = spaced = false;
    answers.clear();
    for (const std::string& text : whole) {
      answers.push_back(text.substr(0, text.find(stop)));
      stops = stops || (answers.back() != text && !answers.back().empty());
      spaced = spaced || answers.back().starts_with(' ') || answers.back().ends_with(' ');
    }
  }
  io::write_json(s.temp / "model" / "generation_config.json",
                 {{"eos_token_id", static_cast<int>(stop)}, {"stop_strings", {"e"}}});
  std::vector<io::Json> records;
  Index exact = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string& answer = answers[i];
    // The answer itself, with white space around it or without, or another; each is an answer to compare with.
    const auto begin = answer.find_first_not_of(' ');
    const std::string bare = begin == answer.npos ? "" : answer.substr(begin, answer.find_last_not_of(' ') + 1 - begin);
    const bool same = !bare.empty() && i % 4 != 3;
    labels.push_back(!same ? "something else" : i % 4 == 0 ? bare : i % 4 == 1 ? "\n " + bare + "\t" : answer);
    exact += same;
    records.push_back(pair(questions[i], labels[i]));
  }
  s.write(records);
  const std::string unfollowed = "generation_config.json: not followed: stop_strings\n";
  CHECK_FALSE(test::holds(s.eval_errors({}), unfollowed));
  CHECK(test::holds(s.eval_errors({"--predict", "--max_new_tokens=1"}), unfollowed));
  const auto results = s.eval({"--predict", concat("--max_new_tokens=", length)});
  CHECK(results.at("answers") == 40);
  CHECK(results.at("exact_matches") == exact);
  CHECK(results.at("exact_match").get<double>() == static_cast<double>(exact) / 40);
  const auto lines = test::json_lines(io::read_file(s.out / "predictions.jsonl"));
  REQUIRE(lines.size() == 40);
  for (std::size_t i = 0; i < lines.size(); ++i)
    CHECK(lines[i] == io::Json{{"prompt", questions[i]},
                               {"predict", answers[i]},
                               {"label", labels[i]},
                               {"exact_match", labels[i] != "something else"},
                               {"rouge_l", data::rouge_l(data::strip(answers[i]), data::strip(labels[i]))}});
  CHECK(test::holds(io::read_file(s.out / "evaluation_report.md"),
                    "\n| exact match | " + fixed(100 * results.at("exact_match").get<double>(), 1) + " % |\n"));
}

TEST_CASE("program: eval of records without a label, or a predict that nothing can answer, fails before it writes") {
  const Subject s;
  const auto refuses = [&](int status, const std::string& what, const std::vector<std::string>& more) {
    const auto outcome = test::run_program(LORA_PROGRAM, s.words(more));
    CAPTURE(outcome.errors);
    CHECK(outcome.status == status);
    CHECK(test::holds(outcome.errors, what));
    CHECK_FALSE(std::filesystem::exists(s.out));
  };
  const std::string place = (s.temp / "data.jsonl").native() + ":1: ";
  const io::Json tokens{{"input_ids", {3, 4, 5}}, {"labels", {3, 4, 5}}};
  s.write({tokens});
  refuses(1, place + "predict needs records with an answer; there is none", {"--predict"});
  s.write({io::Json{{"input_ids", {3, 4, 5}}, {"labels", {-100, -100, -100}}}});
  refuses(1, place + "nothing to evaluate: none of 1 records has a labeled token", {});
  s.write({tokens});
  std::filesystem::remove(s.temp / "model" / "tokenizer.json");
  refuses(2, "key predict: given true, allowed: false where the model has no tokenizer files", {"--predict"});
}

}  // namespace eval_test
