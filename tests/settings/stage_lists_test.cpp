#include "lora/settings/stage_lists.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lora/settings/settings.hpp"
#include "support/message_of.hpp"

namespace stage_lists_test {

using namespace lora;
using namespace lora::settings;
using Stages = std::vector<data::CurriculumStage>;

namespace {

std::string said(const Stages& stages) {
  Config config;
  config.curriculum_stages = stages;
  return test::message_of<ConfigError>([&] { check(config, *find_key("curriculum_stages")); });
}

}  // namespace

TEST_CASE("stage lists: of thousands of stages there is what each says, and once what they share") {
  static_assert(sizeof(StageConfigs) <= sizeof(Config) + sizeof(void*));
  Config config;
  config.learning_rate = 0.5;
  config.cutoff_len = 7;
  for (Index i = 1; i <= 10'000; ++i) config.stages.push_back({.until_step = i});
  config.stages[9'000].learning_rate = 0.25;
  config.stages[9'001].cutoff_len = 9;
  const StageConfigs stages(config);
  REQUIRE(stages.size() == 10'000);
  CHECK(stages[8'999].learning_rate == 0.5);
  CHECK(stages[9'000].learning_rate == 0.25);
  CHECK(stages[9'001].cutoff_len == 9);
  CHECK(stages[9'001].stages.capacity() == 0);
  CHECK(longest_cutoff(config) == 9);
  CHECK_FALSE(any_curriculum(config));
  config.stages[5].use_curriculum = true;
  CHECK(any_curriculum(config));
  config.use_curriculum = true;
  for (StageSettings& stage : config.stages) stage.use_curriculum = false;
  CHECK_FALSE(any_curriculum(config));
}

TEST_CASE("stage lists: a stage's warm-up takes the place of the run's, whichever way it is said") {
  Config config;
  config.warmup_steps = 10;
  config.stages = {{.warmup_ratio = 0.5}, {.warmup_steps = 3}, {}};
  const StageConfigs by_steps(config);
  CHECK((by_steps[0].warmup_steps == 0 && by_steps[0].warmup_ratio == 0.5));
  CHECK((by_steps[1].warmup_steps == 3 && by_steps[1].warmup_ratio == 0));
  CHECK((by_steps[2].warmup_steps == 10 && by_steps[2].warmup_ratio == 0));
  config.warmup_steps = 0;
  config.warmup_ratio = 0.25;
  const StageConfigs by_ratio(config);
  CHECK((by_ratio[0].warmup_steps == 0 && by_ratio[0].warmup_ratio == 0.5));
  CHECK((by_ratio[1].warmup_steps == 3 && by_ratio[1].warmup_ratio == 0));
  CHECK((by_ratio[2].warmup_steps == 0 && by_ratio[2].warmup_ratio == 0.25));
}

TEST_CASE("stage lists: a curriculum is the same from the command line, a file and run_config.json") {
  const std::string text = R"([{"until": 0.25, "mix": {"b": 0.5, "a": 0.5}}, {"until": 1, "mix": {"c": 1}}])";
  const Stages stages = {{0.25, {{"b", 0.5}, {"a", 0.5}}}, {1, {{"c", 1}}}};
  const Key& key = *find_key("curriculum_stages");
  Config line, file, again;
  set_from_text(line, key, text);
  read_settings(file, io::json_object({{"curriculum_stages", io::parse_json(text, "file")}}), "file");
  read_settings(again, to_json(line, train_command), "run_config.json");
  CHECK(line.curriculum_stages == stages);
  CHECK(file.curriculum_stages == stages);
  CHECK(again.curriculum_stages == stages);
  CHECK_FALSE(is_given(Config{}, key));
  CHECK_FALSE(offence(Config{}.curriculum_stages));  // the default
}

TEST_CASE("stage lists: what is wrong with a curriculum is said by stage") {
  const std::string allowed =
      R"(, allowed: [{"until": share of the steps, "mix": {label: share, ...}}, ...] with until ascending to 1 and )"
      "shares that add up to 1";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<Stages, std::string> examples[] = {
      {{}, "no stage"},
      {{{0.5, {{"a", 1}}}}, "a last stage with until 0.5"},
      {{{0.5, {{"a", 1}}}, {0.5, {{"a", 1}}}}, "stage 2 with until 0.5 after 0.5"},
      {{{0.5, {{"a", 1}}}, {0.3, {{"a", 1}}}}, "stage 2 with until 0.3 after 0.5"},
      {{{1, {{"a", 1}}}, {1.5, {{"a", 1}}}}, "stage 2 with until 1.5 after 1"},
      {{{0, {{"a", 1}}}, {1, {{"a", 1}}}}, "stage 1 with until 0 after 0"},
      {{{nan, {{"a", 1}}}}, "stage 1 with until nan after 0"},
      {{{1, {{"a", 0.5}, {"b", 0.4}}}}, "stage 1 with shares that add up to 0.9"},
      {{{1, {}}}, "stage 1 with shares that add up to 0"},
      {{{1, {{"a", 1.5}, {"b", -0.5}}}}, "stage 1 with a share of -0.5 for b"},
      {{{1, {{"a", nan}}}}, "stage 1 with a share of nan for a"},
      {{{1, {{"a", 0.5}, {"a", 0.5}}}}, "stage 1 with two shares for a"},
  };
  for (const auto& [stages, message] : examples) {
    const std::string& expected = message;
    CAPTURE(expected);
    CHECK(said(stages) == "key curriculum_stages: given " + expected + allowed);
  }
  CHECK(said({{1, {{"a", 0.1}, {"b", 0.2}, {"c", 0.7}}}}) == "nothing was thrown");  // not 1 in floating point
}

TEST_CASE("stage lists: a stage is called by its number and its name, if that says more") {
  Config config;
  config.stages = {{.name = "stage 1"}, {.name = "everything"}, {.name = "stage 1"}, {}};
  CHECK(stage_name(config, 0) == "stage 1");
  CHECK(stage_name(config, 1) == "stage 2 (everything)");
  CHECK(stage_name(config, 2) == "stage 3 (stage 1)");
  CHECK(stage_name(config, 3) == "stage 4");
}

TEST_CASE("stage lists: JSON of another form is refused with its place") {
  const std::pair<const char*, const char*> examples[] = {
      {"explain", "the value:1:1: "},
      {"null", "given null"},
      {R"({"until": 1})", "curriculum_stages: expected an array of stages"},
      {R"([3])", "stage 1: expected an object"},
      {R"([{"until": 1}])", R"(stage 1: "mix" must be an object of labels and their shares)"},
      {R"([{"mix": {"a": 1}}])", R"(stage 1: "until" is missing)"},
      {R"([{"until": "1", "mix": {"a": 1}}])", R"(stage 1: "until" must be a number, found)"},
      {R"([{"until": 1, "mix": {"a": "1"}}])", R"(stage 1: mix: "a" must be a number, found)"},
      {R"([{"until": 1, "mix": {"a": 1}, "seed": 3}])", R"(stage 1: the field "seed"; expected until, mix)"},
  };
  for (const auto& [text, message] : examples) {
    Config config;
    const std::string value = text, expected = message;
    CAPTURE(value);
    const std::string told =
        test::message_of<ConfigError>([&] { set_from_text(config, *find_key("curriculum_stages"), value); });
    CAPTURE(told);
    CHECK(told.starts_with("key curriculum_stages: " + expected));
    CHECK(told.find("allowed: [{") != told.npos);
    CHECK(config.curriculum_stages == Config{}.curriculum_stages);
  }
}

TEST_CASE("stage lists: files are the same from the command line, a file and run_config.json") {
  const std::string text = R"(["a.jsonl", {"path": "b,c.txt", "weight": 2, "name": "b", "max_samples": 7}])";
  data::DataFile file("b,c.txt");
  file.weight = 2;
  file.name = "b";
  file.max_samples = 7;
  const std::vector<data::DataFile> files = {"a.jsonl", file};
  const Key& key = *find_key("dataset");
  Config line, json, again;
  set_from_text(line, key, text);
  read_settings(json, io::json_object({{"dataset", io::parse_json(text, "file")}}), "file");
  read_settings(again, to_json(line, train_command), "run_config.json");
  CHECK(line.dataset == files);
  CHECK(json.dataset == files);
  CHECK(again.dataset == files);
  // One object needs no brackets.
  read_settings(json, io::json_object({{"dataset", io::json_object({{"path", "a"}, {"weight", 3}})}}), "file");
  REQUIRE(json.dataset.size() == 1);
  CHECK(json.dataset[0].path == "a");
  CHECK(json.dataset[0].weight == 3);
  // Parts of the command line come joined by commas.
  set_from_text(line, key, R"({"path": "a"},{"path": "b", "max_samples": 1})");
  REQUIRE(line.dataset.size() == 2);
  CHECK(line.dataset[0] == data::DataFile("a"));
  CHECK(line.dataset[1].max_samples == 1);
  for (const char* spaced : {"[ {\"path\": \"a\"}]", " [\n{ \"path\": \"a\"} ]", "{ \"path\": \"a\" }"}) {
    set_from_text(line, key, spaced);
    CHECK(line.dataset == std::vector<data::DataFile>{"a"});
  }
  CHECK_THROWS_WITH_AS(set_from_text(line, key, R"(a.jsonl,{"path":"b"})"), doctest::Contains("write one array"),
                       Error);
  set_from_text(line, key, "a.json, b [c].txt");
  CHECK(line.dataset == std::vector<data::DataFile>{"a.json", "b [c].txt"});
  set_from_text(line, *find_key("interleave_probs"), "0.5, 0.25,0.25");
  CHECK(line.interleave_probs == std::vector<double>{0.5, 0.25, 0.25});
  read_settings(json, io::json_object({{"interleave_probs", io::Json::array({0.25, 0.75})}}), "file");
  CHECK(json.interleave_probs == std::vector<double>{0.25, 0.75});
}

TEST_CASE("stage lists: what is wrong with a file is said by its number") {
  const auto said = [](const std::string& text) {
    return test::message_of<ConfigError>([&] {
      Config read;
      set_from_text(read, *find_key("dataset"), text);
    });
  };
  const std::string allowed = std::string("; allowed: ") + settings::allowed(*find_key("dataset"));
  CHECK(said(R"([{"path": "a"}, {"file": "b"}])") ==
        "key dataset: file 2: the field \"file\"; expected path, weight, name, max_samples" + allowed);
  CHECK(said(R"([{"weight": 1}])") == "key dataset: file 1: \"path\" is missing" + allowed);
  CHECK(said(R"([{"path": "a", "weight": 0}])") ==
        "key dataset: file 1: \"weight\" is 0; expected a number above 0" + allowed);
  CHECK(said(R"([{"path": "a", "max_samples": 0}])") ==
        "key dataset: file 1: \"max_samples\" is 0; expected 1 or more" + allowed);
  CHECK(said(R"([{"path": "a"}, 3])") == "key dataset: file 2: expected an object" + allowed);
  CHECK(test::holds(said(R"([{"path": "a")"), "key dataset: the value:1:"));
  CHECK(said(R"([{"path": ""}])") == "key dataset: file 1: \"path\" is empty" + allowed);
  Config config;
  config.dataset = {"a"};
  config.dataset[0].weight = -1;
  CHECK(test::message_of<ConfigError>([&] {
          check(config, *find_key("dataset"));
        }).starts_with(R"(key dataset: given {"path":"a","weight":-1.0}, allowed: )"));
  const auto shares = [](const std::string& text) {
    return test::message_of<ConfigError>([&] {
      Config other;
      set_from_text(other, *find_key("interleave_probs"), text);
    });
  };
  CHECK(shares("0.5,half").starts_with("key interleave_probs: given 0.5,half, allowed: "));
  CHECK(shares("0.5,0").starts_with("key interleave_probs: given 0"));
}

}  // namespace stage_lists_test
