#include "lora/train/settings.hpp"

#include <doctest/doctest.h>

#include <string>

namespace settings_test {

using namespace lora;
using namespace lora::train;

namespace {

void set(Config& config, std::string_view key, std::string_view text) { set_from_text(config, *find_key(key), text); }

Config read(std::string_view text) {
  Config config;
  read_settings(config, io::parse_json(text, "run.json", true), "run.json");
  return config;
}

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("settings: texts of the command line become typed values") {
  Config config;
  set(config, "learning_rate", "1e-4");
  set(config, "max_steps", "-1");
  set(config, "gradient_checkpointing", "");
  set(config, "shuffle", "false");
  set(config, "lora_target", "q_proj, v_proj");
  set(config, "dataset", "a.json,b.json");
  set(config, "enable_thinking", "true");
  set(config, "save_total_limit", "3");
  CHECK(config.learning_rate == 1e-4);
  CHECK(config.max_steps == -1);
  CHECK(config.gradient_checkpointing);
  CHECK_FALSE(config.shuffle);
  CHECK(config.lora_target == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(config.dataset == std::vector<std::string>{"a.json", "b.json"});
  CHECK(config.enable_thinking == true);
  CHECK(config.save_total_limit == 3);
  CHECK(config.is_given("shuffle"));
  CHECK_FALSE(config.is_given("seed"));
}

TEST_CASE("settings: layers are indices and inclusive ranges, each once") {
  Config config;
  set(config, "no_rope_layers", "9,0..2,2");
  CHECK(config.no_rope_layers == std::vector<Index>{0, 1, 2, 9});
  CHECK(read(R"({"no_rope_layers": [3, "5..6"]})").no_rope_layers == std::vector<Index>{3, 5, 6});
  for (const char* wrong : {"2..1", "-1", "a", "1..", "..2", "0..999999999999", "1.5"})
    CHECK_THROWS_AS(set(config, "no_rope_layers", wrong), ConfigError);
  CHECK_THROWS_AS(read(R"({"no_rope_layers": [1.5]})"), ConfigError);
}

TEST_CASE("settings: a file may hold comments, lists as arrays, and null for the default") {
  const Config config = read(R"({
    // a comment
    "lora_rank": 16, "learning_rate": 1, "dataset": ["a,b.json"], "lora_target": "q_proj,k_proj",
    "save_total_limit": null, "prompt": "of another command" /* here too */ })");
  CHECK(config.lora_rank == 16);
  CHECK(config.learning_rate == 1.0);
  CHECK(config.dataset == std::vector<std::string>{"a,b.json"});
  CHECK(config.lora_target == std::vector<std::string>{"q_proj", "k_proj"});
  CHECK_FALSE(config.save_total_limit);
  CHECK_FALSE(config.is_given("save_total_limit"));
  CHECK(config.prompt == "of another command");
}

TEST_CASE("settings: an unknown key names the file, itself, what was given and the nearest") {
  const std::string message = message_of([] { read(R"({"learning_rat": 0.1})"); });
  CHECK(message ==
        "run.json: unknown key learning_rat, given 0.1; allowed: the keys of --help; nearest: learning_rate");
  CHECK_THROWS_AS(read("[1]"), ConfigError);
}

TEST_CASE("settings: a value of the wrong type or out of range names the key, what was given and what is allowed") {
  Config config;
  CHECK(message_of([&] { set(config, "learning_rate", "fast"); }) ==
        "key learning_rate: given fast, allowed: a number, at least 0");
  CHECK(message_of([&] { set(config, "lora_rank", ""); }) ==
        "key lora_rank: given nothing, allowed: a whole number, at least 1 and at most 65536");
  CHECK(message_of([&] { set(config, "lr_scheduler_type", "cosin"); }) ==
        "key lr_scheduler_type: given cosin, allowed: one of linear, cosine, constant; nearest: cosine");
  CHECK(message_of([] { read(R"({"lora_rank": "8"})"); }) ==
        "run.json: key lora_rank: given \"8\", allowed: a whole number, at least 1 and at most 65536");
  for (const auto& pair : {std::pair{"lora_rank", "0"},
                           {"lora_rank", "1.5"},
                           {"lora_rank", "8x"},
                           {"seed", "-1"},
                           {"lora_dropout", "1"},
                           {"learning_rate", "nan"},
                           {"learning_rate", "inf"},
                           {"learning_rate", "-1"},
                           {"max_steps", "0"},
                           {"warmup_ratio", "1.01"},
                           {"shuffle", "yes"},
                           {"lora_target", "q_proj,x_proj"},
                           {"lora_target", ","},
                           {"val_size", "2.5"},
                           {"top_p", "0"},
                           {"seed", "99999999999999999999"}}) {
    CAPTURE(pair.first);
    CAPTURE(pair.second);
    CHECK_THROWS_AS(set(config, pair.first, pair.second), ConfigError);
  }
  for (const char* json : {R"({"lora_rank": 8.5})", R"({"lora_rank": true})", R"({"lora_rank": 18446744073709551615})",
                           R"({"shuffle": 1})", R"({"shuffle": "true"})", R"({"learning_rate": "1e-4"})",
                           R"({"learning_rate": -1})", R"({"dataset": 3})", R"({"dataset": [3]})",
                           R"({"lora_target": ["x_proj"]})", R"({"output_dir": ["a"]})", R"({"stop": {}})"}) {
    CAPTURE(json);
    CHECK_THROWS_AS(read(json), ConfigError);
  }
}

TEST_CASE("settings: what is written reads back the same") {
  Config config;
  set(config, "learning_rate", "0.1");
  set(config, "no_rope_layers", "3..5");
  set(config, "enable_thinking", "false");
  set(config, "output_dir", "out");
  const io::Json json = settings_of(config, train_command);
  CHECK(json.size() > 40);
  CHECK(json.at("learning_rate") == 0.1);
  CHECK(json.at("lora_alpha").is_null());
  CHECK_FALSE(json.contains("prompt"));
  Config again;
  read_settings(again, json, "run_config.json");
  CHECK(settings_of(again, train_command) == json);
}

TEST_CASE("settings: defaults as the help page prints them") {
  CHECK(default_text(*find_key("learning_rate")) == "0.0002");
  CHECK(default_text(*find_key("lora_alpha")) == "2 x lora_rank");
  CHECK(default_text(*find_key("lora_target")) == "all");
  CHECK(default_text(*find_key("shuffle")) == "true");
  CHECK(default_text(*find_key("output_dir")) == "");
  CHECK(default_text(*find_key("seed")) == "42");
  CHECK(Config{}.resolved_lora_alpha() == 16);
}

TEST_CASE("settings: what a command needs or cannot have together is refused by name") {
  const auto refused = [](Command command, std::initializer_list<std::pair<const char*, const char*>> pairs) {
    Config config;
    for (const auto& [key, text] : pairs) set(config, key, text);
    return message_of([&] { validate(config, command); });
  };
  CHECK(refused(train_command, {}).starts_with("key model_name_or_path: given nothing"));
  CHECK(refused(train_command, {{"model_name_or_path", "m"}}).starts_with("key dataset: given nothing"));
  CHECK(refused(train_command, {{"model_name_or_path", "m"}, {"dataset", "d"}}).starts_with("key output_dir: given"));
  CHECK(refused(train_command, {{"model_name_or_path", "m"}, {"dataset", "d"}, {"preview", "2"}}) == "no error");
  CHECK(refused(train_command, {{"model_name_or_path", "m"}, {"dataset", "d"}, {"output_dir", "o"}}) == "no error");
  CHECK(refused(train_command,
                {{"model_name_or_path", "m"}, {"dataset", "d"}, {"output_dir", "o"}, {"load_best_model_at_end", ""}})
            .starts_with("key eval_dataset: given nothing"));
  CHECK(refused(train_command,
                {{"model_name_or_path", "m"}, {"dataset", "d"}, {"output_dir", "o"}, {"lora_target", "all,q_proj"}})
            .starts_with("key lora_target"));
  CHECK(refused(generate_command, {{"model_name_or_path", "m"}, {"prompt", ""}}) == "no error");
  CHECK(refused(generate_command, {{"model_name_or_path", "m"}, {"prompt", "p"}, {"dataset", "d"}})
            .starts_with("key prompt: given together with dataset"));
  CHECK(refused(
            merge_command,
            {{"model_name_or_path", "m"}, {"adapter_name_or_path", "a"}, {"output_dir", "o"}, {"max_shard_size", "5"}})
            .starts_with("key max_shard_size: given 5"));
  CHECK(refused(tokenize_command, {{"model_name_or_path", "m"}}).starts_with("key text: given nothing"));
}

TEST_CASE("settings: of two keys that exclude each other the command line's holds") {
  Config config = read(R"({"dataset": "train.json"})");
  set(config, "prompt", "hello");
  CHECK(prefers(config, "prompt", "dataset"));
  Config other = read(R"({"prompt": "hello"})");
  set(other, "dataset", "test.json");
  CHECK_FALSE(prefers(other, "prompt", "dataset"));
}

TEST_CASE("settings: sizes in powers of 1000 and of 1024") {
  CHECK(parse_size("5GB") == 5'000'000'000);
  CHECK(parse_size("1.5MiB") == 1'572'864);
  for (const char* wrong : {"", "GB", "0GB", "-1GB", "5", "5 GB", "1e30GB"})
    CHECK_THROWS_AS(parse_size(wrong), ConfigError);
}

}  // namespace settings_test
