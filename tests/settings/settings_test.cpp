#include "lora/settings/settings.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "support/key_values.hpp"
#include "support/message_of.hpp"

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
  CHECK(message_of([] { read(R"({"template": "qwen"})"); }).ends_with("; nearest: qwen2_5, as LLaMA-Factory means it"));
  CHECK(message_of([] {
          read(R"({"template": "qwen3_nothink"})");
        }).ends_with("; nearest: qwen3_instruct_2507, as LLaMA-Factory means it"));
  CHECK(message_of([] { read(R"({"template": "gemma2"})"); }).ends_with("; nearest: auto, as LLaMA-Factory means it"));
  CHECK(message_of([&] { set(config, "report_to", "wandb"); }) ==
        "key report_to: given wandb, allowed: a list of tensorboard, jsonl, none; here: not there: nothing is sent "
        "anywhere; jsonl is for a program that sends its lines there (docs/watching.md)");
  CHECK(message_of([] { read(R"({"template": "qwen33"})"); }).ends_with("; nearest: qwen3"));
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

// A changed default changes the runs of everybody who did not give the key: docs/keys.md and the pages after it have
// them all.
TEST_CASE("settings: each default is the one that the manual promises") {
  const std::pair<const char*, const char*> promised[] = {
      {"device", "auto"},
      {"dtype", "auto"},
      {"template", "auto"},
      {"val_size", "0"},
      {"cutoff_len", "2048"},
      {"train_on_prompt", "false"},
      {"train_on_last_turn_only", "false"},
      {"skip_empty_answers", "false"},
      {"shuffle", "true"},
      {"dataset_dir", "data"},
      {"text_column", "text"},
      {"preview", "0"},
      {"finetuning_type", "lora"},
      {"lora_rank", "8"},
      {"lora_alpha", "2 x lora_rank"},
      {"lora_dropout", "0"},
      {"lora_target", "all"},
      {"use_rslora", "false"},
      {"per_device_train_batch_size", "1"},
      {"share_prefixes", "true, but false with lora_dropout or neftune_noise_alpha"},
      {"gradient_accumulation_steps", "8"},
      {"step_units", "1"},
      {"zero_stage", "0"},
      {"ddp_timeout", "1800"},
      {"deepspeed", "none"},
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
      {"report_to", "tensorboard"},
      {"save_steps", "500"},
      {"load_best_model_at_end", "false"},
      {"overwrite_output_dir", "false"},
      {"profile", "false"},
      {"predict", "false"},
      {"max_new_tokens", "256; of chat what the context has room for"},
      {"sample", "false"},
      {"temperature", "0"},
      {"top_p", "1"},
      {"top_k", "0"},
      {"min_p", "0"},
      {"repetition_penalty", "1"},
      {"num_return_sequences", "1"},
      {"stream", "false"},
      {"max_model_len", "what the model was made for"},
      {"jsonl", "false"},
      {"max_shard_size", "5GB"},
      {"outtype", "auto"},
      {"adapter_only", "false"},
      {"add_generation_prompt", "false"}};
  for (const auto& entry : promised) {
    CAPTURE(entry.first);
    CHECK(default_text(*find_key(entry.first)) == entry.second);
  }
  for (const char* open : {"model_name_or_path", "dataset", "output_dir", "prompt", "text", "file"})
    CHECK(default_text(*find_key(open)).empty());
  CHECK(Config().answer_tokens() == 256);
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
  if (key.form.fits) return key.name == "dataset_dir" ? "ONLINE" : "true";
  if (!key.choices.empty()) return "no-such";
  if (key.range.high < 0x1p40)
    return key.range.high >= 2 ? "1099511627776" : type_of(key) == ValueType::integer ? "2" : "1.5";
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
  CHECK(
      said([](Config& c) { c.finetuning_type = "freeze"; }) ==
      "key finetuning_type: given freeze, allowed: one of lora, full; here: finetuning_type full with trainable, such "
      "as layers\\.(2[0-9])\\.");
  CHECK(said([](Config& c) {
          c.lora_target = {"q_proj", "v_prj"};
        }) ==
        "key lora_target: given v_prj, allowed: a list of all, q_proj, k_proj, v_proj, qkv_proj, o_proj, gate_proj, "
        "up_proj, gate_up_proj, down_proj; nearest: v_proj");
}

TEST_CASE("settings: every key that is given is written and read back, and reset to what it was") {
  for (const Key& key : keys()) {
    CAPTURE(std::string(key.name));
    Config config;
    set(config, key.name, test::other_value(key));
    CHECK(config.from_command_line == std::set<std::string_view>{key.name});
    const io::Json value = value_of(config, key);
    for (const Command command : all_commands) {
      const io::Json json = to_json(config, command);
      CHECK(json.contains(std::string(key.name)) == ((key.commands & command) != 0));
      if (!(key.commands & command)) continue;
      CHECK(json.at(std::string(key.name)) == value);
      Config again;
      read_settings(again, json, "run_config.json");
      CHECK(value_of(again, key) == value);
      CHECK(again.from_command_line.empty());
      for (const Key& other : keys()) CHECK(is_given(again, other) == (&other == &key));
    }
    reset(config, key);
    CHECK_FALSE(is_given(config, key));
  }
}

TEST_CASE("settings: a switch may stand alone, and lists may be texts in a file") {
  Config config;
  for (const char* name : {"shuffle", "full_determinism", "use_rslora", "enable_thinking", "share_prefixes"}) {
    CAPTURE(name);
    const Key& key = *find_key(name);
    set(config, name, "false");
    CHECK(value_of(config, key) == false);
    set(config, name, "");
    CHECK(value_of(config, key) == true);
    set(config, name, "false");
    set(config, name, "true");
    CHECK(value_of(config, key) == true);
    const bool may_be_auto = key.name != "shuffle";
    CHECK(message_of([&] { set(config, name, "1"); }) ==
          concat("key ", std::string_view(name), ": given 1, allowed: ", may_be_auto ? "auto, " : "", "true or false"));
    if (!may_be_auto) {
      CHECK_FALSE(message_of([&] { set(config, name, "auto"); }).empty());
      continue;
    }
    set(config, name, "auto");
    CHECK_FALSE(is_given(config, key));
    CHECK_FALSE(is_given(read(concat("{\"", std::string_view(name), "\": \"auto\"}")), key));
  }
  CHECK(read(R"({"no_rope_layers": "7, 5..6,6"})").no_rope_layers == std::vector<Index>{5, 6, 7});
  CHECK(read(R"({"no_rope_layers": ["100000"]})").no_rope_layers == std::vector<Index>{100'000});
  CHECK(read(R"({"interleave_probs": "0.25, 0.75"})").interleave_probs == std::vector<double>{0.25, 0.75});
  CHECK(read(R"({"interleave_probs": 1})").interleave_probs == std::vector<double>{1});
  CHECK(read(R"({"interleave_probs": [1, 0.5]})").interleave_probs == std::vector<double>{1, 0.5});
  CHECK(read(R"({"dataset": "a, b"})").dataset == std::vector<data::DataFile>{"a", "b"});
  CHECK(read(R"({"stop": ["a, b", "c"]})").stop == std::vector<std::string>{"a, b", "c"});
  CHECK(read(R"({"stop": []})").stop.empty());
  set(config, "stop", "a");
  set(config, "stop", "b");  // in place of what was said before
  CHECK(config.stop == std::vector<std::string>{"b"});
  for (const char* text : {"true", "false"})
    CHECK(message_of([&] { set(config, "resume_from_checkpoint", text); }) ==
          concat("key resume_from_checkpoint: given ", std::string_view(text),
                 ", allowed: auto (the newest complete one), or the path of a checkpoint",
                 text == std::string_view("true") ? "; nearest: auto, as LLaMA-Factory means it" : ""));
  for (const char* text : {"auto", "checkpoint-7"}) {
    set(config, "resume_from_checkpoint", text);
    CHECK(config.resume_from_checkpoint == text);
  }
}

TEST_CASE("settings: what a list can't be is repeated whole, with what is allowed") {
  const auto refused = [](std::string_view json, std::string_view name) {
    const std::string said = message_of([&] { read(json); });
    const std::string begin = concat("run.json: key ", name, ": given "),
                      end = concat(", allowed: ", allowed(*find_key(name)));
    if (!said.starts_with(begin) || !said.ends_with(end)) return said;
    return said.substr(begin.size(), said.size() - begin.size() - end.size());
  };
  CHECK(refused(R"({"no_rope_layers": 3})", "no_rope_layers") == "3");
  CHECK(refused(R"({"no_rope_layers": [3, "6..5"]})", "no_rope_layers") == R"([3,"6..5"])");
  CHECK(refused(R"({"no_rope_layers": "3,x"})", "no_rope_layers") == R"("3,x")");
  CHECK(refused(R"({"no_rope_layers": [100001]})", "no_rope_layers") == "[100001]");
  CHECK(refused(R"({"interleave_probs": [0.5, "x"]})", "interleave_probs") == R"([0.5,"x"])");
  CHECK(refused(R"({"interleave_probs": "0.5,x"})", "interleave_probs") == R"("0.5,x")");
  CHECK(refused(R"({"interleave_probs": true})", "interleave_probs") == "true");
  CHECK(refused(R"({"interleave_probs": [0.5, -0.5]})", "interleave_probs") == "-0.5");
  CHECK(refused(R"({"stop": ["a", 3]})", "stop") == R"(["a",3])");
  CHECK(refused(R"({"stop": {"a": 1}})", "stop") == R"({"a":1})");
  CHECK(refused(R"({"stop": ["a", ""]})", "stop") == "nothing");
  CHECK(refused(R"({"dataset": 3})", "dataset") == "3");
  CHECK(refused(R"({"dataset": ["a", 3]})", "dataset") == R"(["a",3])");
  CHECK(refused(R"({"additional_target": ["norms", "heads"]})", "additional_target") == "heads");
  CHECK(refused(R"({"stages": 3})", "stages") == "3");
  CHECK(message_of([] { read(R"({"dataset": [{"path": "a", "weight": 0}]})"); }) ==
        "run.json: key dataset: file 1: \"weight\" is 0; expected a number above 0; allowed: " +
            allowed(*find_key("dataset")));
  CHECK(message_of([] { read(R"({"curriculum_stages": {}})"); }) ==
        "run.json: key curriculum_stages: curriculum_stages: expected an array of stages; allowed: " +
            allowed(*find_key("curriculum_stages")));
}

TEST_CASE("settings: a text that is no UTF-8 is shown as far as it can be, and UTF-8 is asked for") {
  const auto said = [](std::string_view name, std::string_view text) {
    Config config;
    return message_of([&] { set(config, name, text); });
  };
  CHECK(said("output_dir", "caf\xE9") == "key output_dir: given caf\uFFFD, allowed: a text, in UTF-8");
  CHECK(
      said("lr_scheduler_type", "cosin\xE9") ==
      "key lr_scheduler_type: given cosin\uFFFD, allowed: one of linear, cosine, constant, in UTF-8; nearest: cosine");
  CHECK(said("output_dir", "caf\u00E9") == "no error");
  Config config;
  config.dataset = {"a"};
  config.dataset[0].name = "caf\xE9";
  CHECK_THROWS_AS(validate(config, eval_command), ConfigError);
}

TEST_CASE("settings: what several keys together say") {
  Config config;
  CHECK((config.rank() == 8 && config.alpha() == 16 && config.train_batch_size() == 1));
  config.lora_rank = 5;
  CHECK((config.rank() == 5 && config.alpha() == 10));
  config.lora_alpha = 3.5;
  CHECK(config.alpha() == 3.5);
  config.per_device_train_batch_size = 3;
  config.gradient_accumulation_steps = 5;
  CHECK(config.sequences_per_step() == 15);
  config.model_name_or_path = "folder";
  CHECK(config.model_name() == "folder");
  config.model_preset = "tiny";
  CHECK(config.model_name() == "tiny");
  CHECK((!config.trains_model() && config.result_name() == "adapter"));
  config.finetuning_type = "full";
  CHECK((config.trains_model() && config.result_name() == "model"));
  const std::pair<const char*, std::pair<bool, bool>> places[] = {
      {"none", {false, false}}, {"optimizer", {false, true}}, {"params", {true, false}}, {"all", {true, true}}};
  for (const auto& place : places) {
    config.offload = place.first;
    CHECK(config.offloads_params() == place.second.first);
    CHECK(config.offloads_optimizer() == place.second.second);
  }
  CHECK_FALSE(config.seeks_best());
  config.early_stopping_patience = 1;
  CHECK(config.seeks_best());
  config.early_stopping_patience.reset();
  config.load_best_model_at_end = true;
  CHECK(config.seeks_best());
  for (const char* metric : {"eval_loss", "eval_token_accuracy", "eval_exact_match", "eval_rouge_l"}) {
    config.metric_for_best_model = metric;
    CHECK(config.compares_answers() ==
          (config.metric_for_best_model == "eval_exact_match" || config.metric_for_best_model == "eval_rouge_l"));
  }
  CHECK_FALSE(config.evaluates());
  config.val_size = 0.5;
  CHECK(config.evaluates());
  config.val_size = 0;
  config.eval_dataset = {"e"};
  CHECK(config.evaluates());
  CHECK_FALSE(config.interleaves());
  for (const char* way : {"interleave_under", "interleave_over"}) {
    config.mix_strategy = way;
    CHECK(config.interleaves());
  }
  CHECK_FALSE(config.ends_by_stages());
  config.stages = {{.until_step = 3}, {}};
  CHECK_FALSE(config.ends_by_stages());
  config.stages[1].until_epoch = 2;
  CHECK(config.ends_by_stages());
  config.stages[1] = {.until_step = 5};
  CHECK(config.ends_by_stages());
}

}  // namespace settings_test
