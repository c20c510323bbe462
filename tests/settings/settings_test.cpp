#include "lora/settings/settings.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace settings_test {

using namespace lora;
using namespace lora::settings;

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
  CHECK(config.dataset == std::vector<data::DataFile>{"a.json", "b.json"});
  CHECK(config.enable_thinking == true);
  CHECK(config.save_total_limit == 3);
  CHECK(config.from_command_line.contains("shuffle"));
  CHECK_FALSE(config.from_command_line.contains("seed"));
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
  CHECK(config.dataset == std::vector<data::DataFile>{"a,b.json"});
  CHECK(config.lora_target == std::vector<std::string>{"q_proj", "k_proj"});
  CHECK_FALSE(config.save_total_limit);
  CHECK(config.prompt == "of another command");
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
  CHECK(message_of([] { read(R"({"lr_scheduler_type": "cosin"})"); }) ==
        "run.json: key lr_scheduler_type: given cosin, allowed: one of linear, cosine, constant; nearest: cosine");
  CHECK(message_of([] { read(R"({"output_dir": ""})"); }) ==
        "run.json: key output_dir: given nothing, allowed: a text");
  CHECK(message_of([] { read(R"({"lr_scheduler_type": 7})"); }) ==
        "run.json: key lr_scheduler_type: given 7, allowed: one of linear, cosine, constant");
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

TEST_CASE("settings: an epsilon that is 0 or infinite in float32 is refused with the limits") {
  for (const char* none : {"1e-50", "1e-38", "0", "1e+39"}) {
    Config config;
    CHECK(test::message_of<ConfigError>([&] { set(config, "adam_epsilon", none); }) ==
          concat("key adam_epsilon: given ", std::string_view(none),
                 ", allowed: a number, at least 1.2e-38 and at most 3.4e+38"));
  }
  Config config;
  set(config, "adam_epsilon", "1.2e-38");
  CHECK(std::isnormal(static_cast<float>(config.adam_epsilon)));
}

TEST_CASE("settings: what is written reads back the same") {
  Config config;
  set(config, "learning_rate", "0.1");
  set(config, "no_rope_layers", "3..5");
  set(config, "enable_thinking", "false");
  set(config, "output_dir", "out");
  const io::Json json = to_json(config, train_command);
  CHECK(json.size() > 40);
  CHECK(json.at("learning_rate") == 0.1);
  CHECK(json.at("lora_alpha").is_null());
  CHECK_FALSE(json.contains("prompt"));
  Config again;
  read_settings(again, json, "run_config.json");
  CHECK(to_json(again, train_command) == json);
}

TEST_CASE("settings: defaults as the help page prints them") {
  CHECK(default_text(*find_key("learning_rate")) == "0.0002");
  CHECK(default_text(*find_key("lora_alpha")) == "2 x lora_rank");
  CHECK(default_text(*find_key("lora_target")) == "all");
  CHECK(default_text(*find_key("shuffle")) == "true");
  CHECK(default_text(*find_key("output_dir")) == "");
  CHECK(default_text(*find_key("seed")) == "42");
}

// A changed default changes the runs of everybody who did not give the key: docs/cli.md has them all.
TEST_CASE("settings: each default is the one that docs/cli.md promises") {
  const std::pair<const char*, const char*> promised[] = {{"device", "auto"},
                                                          {"dtype", "auto"},
                                                          {"template", "auto"},
                                                          {"val_size", "0"},
                                                          {"cutoff_len", "2048"},
                                                          {"train_on_prompt", "false"},
                                                          {"train_on_last_turn_only", "false"},
                                                          {"skip_empty_answers", "false"},
                                                          {"shuffle", "true"},
                                                          {"text_column", "text"},
                                                          {"preview", "0"},
                                                          {"finetuning_type", "lora"},
                                                          {"lora_rank", "8"},
                                                          {"lora_alpha", "2 x lora_rank"},
                                                          {"lora_dropout", "0"},
                                                          {"lora_target", "all"},
                                                          {"use_rslora", "false"},
                                                          {"per_device_train_batch_size", "1"},
                                                          {"gradient_accumulation_steps", "8"},
                                                          {"step_units", "1"},
                                                          {"per_device_eval_batch_size", "8"},
                                                          {"learning_rate", "0.0002"},
                                                          {"num_train_epochs", "3"},
                                                          {"max_steps", "-1"},
                                                          {"lr_scheduler_type", "linear"},
                                                          {"warmup_steps", "0"},
                                                          {"warmup_ratio", "0"},
                                                          {"weight_decay", "0"},
                                                          {"adam_beta1", "0.9"},
                                                          {"adam_beta2", "0.999"},
                                                          {"adam_epsilon", "1e-08"},
                                                          {"max_grad_norm", "1"},
                                                          {"on_non_finite", "stop"},
                                                          {"gradient_checkpointing", "false"},
                                                          {"seed", "42"},
                                                          {"logging_steps", "10"},
                                                          {"save_steps", "500"},
                                                          {"load_best_model_at_end", "false"},
                                                          {"overwrite_output_dir", "false"},
                                                          {"profile", "false"},
                                                          {"predict", "false"},
                                                          {"max_new_tokens", "256"},
                                                          {"temperature", "0"},
                                                          {"top_p", "1"},
                                                          {"top_k", "0"},
                                                          {"max_shard_size", "5GB"},
                                                          {"add_generation_prompt", "false"}};
  for (const auto& entry : promised) {
    CAPTURE(entry.first);
    CHECK(default_text(*find_key(entry.first)) == entry.second);
  }
  for (const char* open : {"model_name_or_path", "dataset", "output_dir", "prompt", "text", "file"})
    CHECK(default_text(*find_key(open)).empty());
  CHECK(Config().rank() == 8);
  CHECK(Config().alpha() == 16);
  Config wide;
  wide.lora_rank = 6;
  CHECK(wide.alpha() == 12);
}

TEST_CASE("settings: no text, list or word is taken that says nothing, but a prompt or a text of its own") {
  for (const char* json : {R"({"output_dir": ""})", R"({"dtype": ""})", R"({"text_column": ""})",
                           R"({"dataset": [""]})", R"({"dataset": ","})", R"({"max_shard_size": ""})"}) {
    CAPTURE(json);
    CHECK_THROWS_AS(read(json), ConfigError);
  }
  Config config;
  CHECK(message_of([&] { set(config, "output_dir", ""); }) == "key output_dir: given nothing, allowed: a text");
  CHECK(read(R"({"prompt": ""})").prompt == "");
  config.text_column = "";
  CHECK(message_of([&] { validate(config, train_command); }) == "key text_column: given nothing, allowed: a text");
}

/// A value of the key's type that its rule leaves out, as the command line gives it; empty where any is allowed.
std::string wrong_value(const Key& key) {
  if (key.form.fits) return "true";
  if (!key.choices.empty()) return "no-such";
  if (key.range.high < 0x1p40) return key.range.high < 2 ? "1.5" : "1099511627776";
  if (std::isfinite(key.range.low)) return key.range.also ? "-2" : "-1";
  return is_switch(key) ? "" : "caf\xE9";  // a text or a list of texts, in Latin-1
}

/// The same assigned in code, without a look at what is allowed.
void assign(Config& config, const Key& key, const std::string& text) {
  std::visit(
      [&]<class V>(V Config::*member) {
        using Value = typename lora::settings::detail::Unwrapped<V>::type;
        if constexpr (std::is_same_v<Value, Index>) config.*member = *parse_number<Index>(text);
        if constexpr (std::is_same_v<Value, double>) config.*member = *parse_number<double>(text);
        if constexpr (std::is_same_v<Value, std::string>) config.*member = text;
        if constexpr (std::is_same_v<Value, std::vector<std::string>>) config.*member = {text};
        if constexpr (std::is_same_v<Value, std::vector<data::DataFile>>) config.*member = {text};
        if constexpr (std::is_same_v<Value, std::vector<double>>) config.*member = {*parse_number<double>(text)};
        if constexpr (std::is_same_v<Value, std::vector<Index>>) config.*member = {*parse_number<Index>(text)};
      },
      key.member);
}

TEST_CASE("settings: every key is held against its rule, and in code with the program's words") {
  for (const Key& key : keys()) {
    if (type_of(key) == ValueType::stages) continue;  // stage_lists_test.cpp
    CAPTURE(std::string(key.name));
    const std::string wrong = wrong_value(key);
    CHECK(wrong.empty() == is_switch(key));  // no other key without a rule
    if (wrong.empty()) continue;
    Config by_text, by_assignment;
    const std::string said = message_of([&] { set(by_text, key.name, wrong); });
    CHECK(said.starts_with(concat("key ", key.name, ": given ", tokenizer::unicode::replace_invalid_utf8(wrong),
                                  ", allowed: ", allowed(key))));
    assign(by_assignment, key, wrong);
    for (const Command command : all_commands) CHECK(message_of([&] { validate(by_assignment, command); }) == said);
  }
}

TEST_CASE("settings: a number that is none is refused in code too") {
  const auto said = [](auto set) {
    Config config;
    set(config);
    return message_of([&] { validate(config, train_command); });
  };
  CHECK(said([](Config& c) { c.learning_rate = std::nan(""); }) ==
        "key learning_rate: given nan, allowed: a number, at least 0");
  CHECK(said([](Config& c) { c.learning_rate = -std::nan(""); }).starts_with("key learning_rate: given nan"));
  CHECK(said([](Config& c) { c.weight_decay = std::numeric_limits<double>::infinity(); }) ==
        "key weight_decay: given inf, allowed: a number, at least 0");
  CHECK(said([](Config& c) {
          c.threads = -3;
        }).starts_with("key threads: given -3, allowed: a whole number, at least 1"));
  CHECK(said([](Config& c) { c.finetuning_type = "freeze"; }) ==
        "key finetuning_type: given freeze, allowed: one of lora, full");
  CHECK(said([](Config& c) {
          c.lora_target = {"q_proj", "v_prj"};
        }) ==
        "key lora_target: given v_prj, allowed: a list of all, q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
        "down_proj; nearest: v_proj");
}

}  // namespace settings_test
