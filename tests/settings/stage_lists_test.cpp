#include "lora/settings/stage_lists.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
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
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
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
      {{{1, {{"a", 0.5}, {"b", infinity}}}}, "stage 1 with a share of inf for b"},
      {{{0.5, {{"a", 1}}}, {1, {{"a", 0.5}, {"b", 0.5 + 0x1p-19}}}},
       "stage 2 with shares that add up to 1.0000019073486328"},
      {{{1, {{"a", 0.5}, {"b", 0.5 - 0x1p-19}}}}, "stage 1 with shares that add up to 0.9999980926513672"},
      {{{1, {{"a", 0.5}, {"a", 0.5}}}}, "stage 1 with two shares for a"},
  };
  for (const auto& [stages, message] : examples) {
    const std::string& expected = message;
    CAPTURE(expected);
    CHECK(said(stages) == "key curriculum_stages: given " + expected + allowed);
  }
  CHECK(said({{1, {{"a", 0.1}, {"b", 0.2}, {"c", 0.7}}}}) == "nothing was thrown");  // not 1 in floating point
  for (const double most : {0.5 - 0x1p-20, 0.5 + 0x1p-20})
    CHECK(said({{1, {{"a", 0.5}, {"b", most}}}}) == "nothing was thrown");
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
      {R"([{"until": 1, "mix": 3}])", R"(stage 1: "mix" must be an object of labels and their shares)"},
      {R"([{"until": 0.5, "mix": {"a": 1}}, {"until": 1, "mix": []}])",
       R"(stage 2: "mix" must be an object of labels and their shares)"},
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
  const std::string text =
      R"(["a.jsonl", {"path": "b,c.txt", "weight": 2, "name": "b", "max_samples": 7}, )"
      R"({"path": "d", "num_samples": 9, "split": "train[:5]"}, {"path": "e", "num_samples": 9, "max_samples": 4}])";
  data::DataFile file("b,c.txt");
  file.weight = 2;
  file.name = "b";
  file.max_samples = 7;
  std::vector<data::DataFile> files = {"a.jsonl", file, "d", "e"};
  for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) files[i].num_samples = 9;
  files[2].split = "train[:5]";
  files[3].max_samples = 4;
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
        "key dataset: file 2: the field \"file\"; expected path, weight, name, max_samples, num_samples, split, "
        "columns, tags" +
            allowed);
  CHECK(said(R"([{"weight": 1}])") == "key dataset: file 1: \"path\" is missing" + allowed);
  CHECK(said(R"([{"path": "a", "weight": 0}])") ==
        "key dataset: file 1: \"weight\" is 0; expected a number above 0" + allowed);
  CHECK(said(R"([{"path": "a", "max_samples": 0}])") ==
        "key dataset: file 1: \"max_samples\" is 0; expected 1 or more" + allowed);
  CHECK(
      said(R"([{"path": "a", "split": "test"}])")
          .starts_with("key dataset: file 1: \"split\" is test, and the records of a file are of no split but train"));
  CHECK(said(R"([{"path": "a", "num_samples": -1}])") ==
        "key dataset: file 1: \"num_samples\" is -1; expected 1 or more" + allowed);
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

TEST_CASE("stage lists: what a stage says is that key of its settings, and no other") {
  const std::pair<std::string, std::string> said[] = {
      {"finetuning_type", R"("full")"},
      {"trainable", R"(["x","y"])"},
      {"learning_rate", "0.5"},
      {"lr_scheduler_type", R"("cosine")"},
      {"warmup_steps", "3"},
      {"warmup_ratio", "0.5"},
      {"cutoff_len", "9"},
      {"per_device_train_batch_size", "2"},
      {"max_tokens_per_micro_batch", "99"},
      {"gradient_accumulation_steps", "3"},
      {"gradient_checkpointing", "true"},
      {"use_curriculum", "true"},
      {"curriculum_stages", R"([{"until":1.0,"mix":{"a":1.0}}])"},
  };
  std::string names;
  std::size_t at = 0;
  for_each_stage_key([&](const char* name, auto, auto) {
    REQUIRE(at < std::size(said));
    CHECK(said[at++].first == name);
    names += concat(", ", std::string_view(name));
  });
  CHECK(at == std::size(said));
  const io::Json plain = to_json(Config{}, train_command);
  for (const auto& entry : said) {
    const std::string name = entry.first, text = concat(R"([{"until_step":4,")", name, "\":", entry.second, "},{}]");
    CAPTURE(text);
    Config config;
    set_from_text(config, *find_key("stages"), text);
    CHECK(io::to_text(as_json(config.stages), -1) == text);
    const StageConfigs stages(config);
    io::Json first = to_json(stages[0], train_command);
    CHECK(io::to_text(first.at(name), -1) == entry.second);
    CHECK(first.at(name) != plain.at(name));
    first[name] = plain.at(name);
    CHECK(first == plain);
    CHECK(to_json(stages[1], train_command) == plain);
    const std::string null = concat(R"([{"until_step":4,")", name, "\":null}]");
    set_from_text(config, *find_key("stages"), null);
    CHECK(config.stages == std::vector<StageSettings>{{.until_step = 4}});
  }
  Config config;
  CHECK(test::message_of<ConfigError>([&] {
          set_from_text(config, *find_key("stages"), R"([{"until_step": 1}, {"until": 3}])");
        }) == "key stages: stage 2: the field \"until\"; expected name, until_step, until_epoch" + names +
                  "; allowed: " + allowed(*find_key("stages")));
  CHECK(test::message_of<ConfigError>([&] {
          set_from_text(config, *find_key("stages"), R"([{"warmup_steps": "3"}])");
        }) == "key stages: stage 1: \"warmup_steps\" is \"3\"; allowed: a whole number, at least 0; allowed: " +
                  allowed(*find_key("stages")));
}

TEST_CASE("stage lists: only a stage that has a curriculum takes what the run says of it") {
  Config config;
  const Stages own = {{1, {{"a", 1}}}}, other = {{1, {{"b", 1}}}};
  config.use_curriculum = true;
  config.curriculum_field = "level";
  config.curriculum_seed = 7;
  config.curriculum_stages = own;
  config.stages = {{},
                   {.use_curriculum = false},
                   {.use_curriculum = false, .curriculum_stages = other},
                   {.curriculum_stages = other}};
  const Config plain;
  for (const bool by_run : {true, false}) {
    config.use_curriculum = by_run;
    if (!by_run) config.stages[0].use_curriculum = config.stages[3].use_curriculum = true;
    const StageConfigs stages(config);
    REQUIRE(stages.size() == 4);
    for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
      CHECK(stages[i].use_curriculum);
      CHECK(stages[i].curriculum_field == "level");
      CHECK(stages[i].curriculum_seed == 7);
      CHECK(stages[i].curriculum_stages == (i == 0 ? own : other));
    }
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
      CHECK_FALSE(stages[i].use_curriculum);
      CHECK(stages[i].curriculum_field == plain.curriculum_field);
      CHECK(stages[i].curriculum_seed == plain.curriculum_seed);
      CHECK(stages[i].curriculum_stages == (i == 1 ? plain.curriculum_stages : other));
    }
  }
  config.stages.clear();
  config.use_curriculum = true;
  const StageConfigs one(config);
  REQUIRE(one.size() == 1);
  CHECK((one[0].curriculum_seed == 7 && one[0].curriculum_stages == own));
  CHECK(any_curriculum(config));
  CHECK(longest_cutoff(config) == 2048);
  config.stages = {{.cutoff_len = 9}, {.cutoff_len = 7}};
  CHECK(longest_cutoff(config) == 9);
  config.cutoff_len = 8;
  CHECK(longest_cutoff(config) == 9);  // which no stage leaves to the run
  config.stages = {{.cutoff_len = 5}, {}, {.cutoff_len = 7}};
  CHECK(longest_cutoff(config) == 8);
}

TEST_CASE("stage lists: the default curriculum is the one that docs/curriculum.md promises") {
  const Stages promised = {{0.3, {{"explain", 0.8}, {"reasoning", 0.2}, {"topology", 0}}},
                           {0.7, {{"explain", 0.4}, {"reasoning", 0.4}, {"topology", 0.2}}},
                           {1, {{"explain", 0.25}, {"reasoning", 0.35}, {"topology", 0.4}}}};
  CHECK(Config{}.curriculum_stages == promised);
}

TEST_CASE("stage lists: where stages end is ascending, steps and epochs each on their own") {
  using List = std::vector<StageSettings>;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::pair<List, std::string> examples[] = {
      {{}, ""},
      {{{}}, ""},
      {{{.until_step = 1}, {.until_step = 2}}, ""},
      {{{.until_epoch = 0.5}, {.until_epoch = 1e6}}, ""},
      {{{.until_step = 9}, {.until_epoch = 1}, {}}, ""},
      {{{.until_step = 5}, {.until_step = 5}}, "stage 2 with until_step 5 after 5"},
      {{{.until_step = 5}, {.until_epoch = 1}, {.until_step = 4}}, "stage 3 with until_step 4 after 5"},
      {{{.until_epoch = 2}, {.until_step = 9}, {.until_epoch = 1.5}}, "stage 3 with until_epoch 1.5 after 2"},
      {{{.until_epoch = 2}, {.until_epoch = 2}}, "stage 2 with until_epoch 2 after 2"},
      {{{.until_epoch = 1000000.5}}, "stage 1 with until_epoch 1000000.5 after 0"},
      {{{.until_epoch = infinity}}, "stage 1 with until_epoch inf after 0"},
      {{{.until_epoch = 0}}, "stage 1 with until_epoch 0 after 0"},
      {{{.until_step = 0}}, "stage 1 with until_step 0 after 0"},
      {{{.until_step = 1}, {}, {.until_step = 3}}, "stage 2 with neither until_step nor until_epoch"},
      {{{.until_step = 1}, {.until_step = 2, .until_epoch = 2}}, "stage 2 with both until_step and until_epoch"},
  };
  for (const auto& example : examples) {
    CAPTURE(example.second);
    CHECK(offence(example.first).value_or("") == example.second);
  }
}

TEST_CASE("stage lists: a name stays within a line, and JSON has what a stage says") {
  Config config;
  config.stages = {{.name = "a \"b\"\n", .until_epoch = 1.5}, {.name = "rest"}};
  CHECK(stage_name(config, 0) == R"(stage 1 (a \"b\"\n))");
  CHECK(io::to_text(as_json(config.stages), -1) == R"([{"name":"a \"b\"\n","until_epoch":1.5},{"name":"rest"}])");
  CHECK(in_line("x") == "x");
  CHECK(in_line("") == R"("")");
}

TEST_CASE("stage lists: the share of a file is its part of the sum, of probabilities or of weights") {
  using Shares = std::vector<double>;
  Config config;
  config.dataset = {"a", "b", "c", "d"};
  CHECK(shares_of(config) == Shares{0.25, 0.25, 0.25, 0.25});
  const double weights[] = {1, 3, 4, 8};
  for (std::size_t i = 0; i < 4; ++i) config.dataset[i].weight = weights[i];
  CHECK(shares_of(config) == Shares{0.0625, 0.1875, 0.25, 0.5});
  config.interleave_probs = {0.5, 0.25, 0.125, 0.125};
  CHECK(shares_of(config) == config.interleave_probs);
  config.interleave_probs = {1, 1, 2, 4};
  CHECK(shares_of(config) == Shares{0.125, 0.125, 0.25, 0.5});
}

TEST_CASE("stage lists: a file in code is held against what one in a file can be") {
  const auto fit = [](auto change) {
    data::DataFile file("a");
    file.weight = 2;
    file.name = "b";
    file.max_samples = 1;
    change(file);
    return fits(file);
  };
  using File = data::DataFile;
  CHECK(fit([](File&) {}));
  CHECK(fit([](File& file) { file = "a"; }));
  CHECK_FALSE(fit([](File& file) { file.path = ""; }));
  CHECK_FALSE(fit([](File& file) { file.path = "\xE9"; }));
  CHECK_FALSE(fit([](File& file) { file.name = "\xE9"; }));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double weight : {0.0, -1.0, infinity, std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(weight);
    CHECK_FALSE(fit([&](File& file) { file.weight = weight; }));
  }
  CHECK_FALSE(fit([](File& file) { file.max_samples = 0; }));
  File weighted("a"), named("b"), counted("c");
  weighted.weight = 2;
  named.name = "n";
  counted.max_samples = 3;
  const std::vector<File> files = {weighted, named, counted, "d"};
  CHECK(io::to_text(as_json(files), -1) ==
        R"([{"path":"a","weight":2.0},{"path":"b","name":"n"},{"path":"c","max_samples":3},"d"])");
  CHECK(weights_in(files) == 1);
  CHECK(have_names(files));
  CHECK_FALSE(share_a_name(files));  // three have none
  CHECK_FALSE(have_names(std::vector<File>{weighted, "d"}));
  CHECK(share_a_name(std::vector<File>{named, "d", named}));
  // White space before what tells an array from a path; a path may begin like one.
  Config config;
  set_from_text(config, *find_key("dataset"), "[\r\n\t {\"path\": \"a\"}]");
  CHECK(config.dataset == std::vector<File>{"a"});
  set_from_text(config, *find_key("dataset"), R"(["a,b", "c"])");
  CHECK(config.dataset == std::vector<File>{"a,b", "c"});
  set_from_text(config, *find_key("dataset"), "[1].txt,{2}.txt");
  CHECK(config.dataset == std::vector<File>{"[1].txt", "{2}.txt"});
}

TEST_CASE("stage lists: of a stage that is no object, or whose own fields are of another type, the place is told") {
  const auto told = [](const std::string& text) {
    Config config;
    const std::string said = test::message_of<ConfigError>([&] { set_from_text(config, *find_key("stages"), text); });
    const std::string begin = "key stages: ", end = concat("; allowed: ", allowed(*find_key("stages")));
    REQUIRE(said.starts_with(begin));
    REQUIRE(said.ends_with(end));
    return said.substr(begin.size(), said.size() - begin.size() - end.size());
  };
  CHECK(told(R"([{"until_step": 1}, 3])") == "stage 2: expected an object");
  CHECK(told(R"([{"name": 3}])") == "stage 1: \"name\" must be a string, found 3");
  CHECK(told(R"([{"until_step": 1.5}])").starts_with("stage 1: \"until_step\" must be "));
  CHECK(told(R"([{"until_step": 1}, {"until_epoch": "1"}])") ==
        "stage 2: \"until_epoch\" must be a number, found \"1\"");
  CHECK(told(R"([{"use_curriculum": 1}])") == "stage 1: \"use_curriculum\" is 1; allowed: true or false");
  Config config;
  set_from_text(config, *find_key("stages"), R"([{"name": "a", "until_epoch": 0.5}, {"until_step": 7}])");
  REQUIRE(config.stages.size() == 2);
  CHECK((config.stages[0].name == "a" && config.stages[0].until_epoch == 0.5 && !config.stages[0].until_step));
  CHECK((config.stages[1].name.empty() && config.stages[1].until_step == 7 && !config.stages[1].until_epoch));
  set_from_text(config, *find_key("stages"), R"([{"until_step": 9}])");  // in place of those
  CHECK(config.stages == std::vector<StageSettings>{{.until_step = 9}});
}

}  // namespace stage_lists_test
