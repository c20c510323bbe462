// A run's run_config.json is a file of keys that repeats it.

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "lora/settings/settings.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace run_config_test {

using namespace lora;
using namespace lora::test;

namespace {

/// The settings that a run has written, for a folder of its own.
Config read_back(const io::Path& run, const io::Path& output) {
  Config config;
  const std::string file = (run / "run_config.json").native();
  settings::read_settings(config, io::read_json(file), file);
  config.output_dir = output.native();
  return config;
}

/// Trains, trains again by what the run has written, and compares.
void expect_repeated(const Config& config) {
  fine_tune(config);
  const io::Path first = config.output_dir, second = first.native() + "_again";
  fine_tune(read_back(first, second));
  expect_same(lasting_files(first), lasting_files(second));
  // What the second run resolved is what the first did.
  io::Json once = io::read_json(first / "run_config.json"), twice = io::read_json(second / "run_config.json");
  once.erase("output_dir");
  twice.erase("output_dir");
  CHECK(io::to_text(once) == io::to_text(twice));
}

/// An adapter of the workshop's model with these modules, trained a step, and its config changed.
io::Path adapter_of(const Workshop& shop, const std::string& name, const io::Json& changes) {
  Config config = shop.config(name);
  config.max_steps = 1;
  config.lora_target = {"q_proj", "down_proj"};
  const io::Path folder = fine_tune(config).final_model;
  io::Json json = io::read_json(folder / "adapter_config.json");
  for (const auto& [field, value] : io::json_fields(changes)) json[field] = value;
  io::write_json(folder / "adapter_config.json", json);
  return folder;
}

}  // namespace

TEST_CASE("run_config: a run repeats from what it has written, whatever its keys") {
  const Quiet quiet;
  const Workshop shop;
  const std::pair<const char*, std::function<void(Config&)>> changes[] = {
      {"as_it_is", [](Config&) {}},
      {"by_tokens", [](Config& c) { c.per_device_train_batch_size.reset(); }},
      {"by_few_tokens", [](Config& c) { c.max_tokens_per_micro_batch = 20; }},
      {"held_back",
       [](Config& c) {
         c.eval_dataset.clear();
         c.val_size = 0.2;
         c.load_best_model_at_end = true;
       }},
      {"warm",
       [](Config& c) {
         c.warmup_steps = 0;
         c.warmup_ratio = 0.37;
         c.learning_rate = 0.1 + 0.2;
         c.use_rslora = true;
         c.lora_alpha = 1.0 / 3;
       }},
      {"rotary",
       [](Config& c) {
         c.no_rope_layers = {1};
         c.rope_theta = 12345.678;
       }},
      {"few_modules",
       [](Config& c) {
         c.lora_target = {"q_proj", "up_proj"};
       }},
  };
  for (const auto& entry : changes) {
    const char* const name = entry.first;
    CAPTURE(name);
    Config config = shop.config(name);
    config.num_train_epochs = 1;
    entry.second(config);
    expect_repeated(config);
  }
}

TEST_CASE("run_config: so does a run with a chat template, its day and its thinking") {
  const Quiet quiet;
  const Workshop shop;
  RandomModel model;
  model.vocabulary = 260;
  write_random_model(shop.temp / "model", model);
  io::write_file(shop.temp / "model" / "tokenizer.json", std::string_view(byte_tokenizer_json()));
  io::write_file(shop.temp / "talk.jsonl", std::string_view("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                                                            "{\"role\":\"assistant\",\"content\":\"b\"}]}\n"));
  auto config = shop.config();
  config.dataset = {(shop.temp / "talk.jsonl").native()};
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.max_steps = 2;
  config.template_name = "smollm3";
  config.enable_thinking = false;
  expect_repeated(config);
  CHECK(io::read_json(shop.temp / "run" / "run_config.json").at("date").is_string());

  // The template that was found is recorded by name: another version may find another.
  io::write_json(shop.temp / "model" / "tokenizer_config.json",
                 {{"chat_template", io::read_file(LORA_FIXTURES "/templates/smollm3.jinja")}});
  config.template_name = "auto";
  config.output_dir = (shop.temp / "found").native();
  expect_repeated(config);
  CHECK(io::read_json(shop.temp / "found" / "run_config.json").at("template") == "smollm3");
}

TEST_CASE("run_config: so does a run that starts from an adapter, whatever chooses its modules") {
  const Quiet quiet;
  const Workshop shop;
  const std::pair<const char*, io::Json> changes[] = {
      {"names", io::Json::object()},
      {"regex", {{"target_modules", ".*\\.(q|down)_proj"}}},
      {"in_full",
       {{"target_modules",
         {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.0.mlp.down_proj",
          "model.layers.1.mlp.down_proj"}}}},
      {"patterns", {{"alpha_pattern", {{"q_proj", 3}}}}},
      {"excluded", {{"exclude_modules", "nothing"}, {"lora_alpha", 2.5}}},
      {"rslora", {{"use_rslora", true}}},
  };
  for (const auto& entry : changes) {
    const std::string name = entry.first;
    CAPTURE(name);
    Config config = shop.config(name + "_run");
    config.adapter_name_or_path = adapter_of(shop, name, entry.second).native();
    config.lora_rank.reset();
    config.max_steps = 2;
    expect_repeated(config);
    CHECK(io::read_json(io::Path(config.output_dir) / "run_config.json").at("use_rslora") == (name == "rslora"));
  }
}

TEST_CASE("run_config: so does a run from each kind of adapter that PEFT saves") {
  const Quiet quiet;
  const Workshop shop;
  const io::Path data = LORA_FIXTURES;
  for (const auto& entry : std::filesystem::directory_iterator(data / "adapters")) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().native();
    CAPTURE(name);
    Config config = shop.config(name);
    config.model_name_or_path = (data / "golden" / "llama").native();
    config.adapter_name_or_path = entry.path().native();
    config.lora_rank.reset();
    config.eval_dataset.clear();
    config.eval_steps.reset();
    config.max_steps = 1;
    expect_repeated(config);
  }
}

TEST_CASE("run_config: what is not given stays null, and null reads back as not given") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config();
  config.max_steps = 1;
  fine_tune(config);
  const io::Json json = io::read_json(shop.temp / "run" / "run_config.json");
  for (const char* key : {"adapter_name_or_path", "enable_thinking", "save_total_limit", "max_tokens_per_micro_batch",
                          "memory_limit_gib", "resume_from_checkpoint", "no_rope_layers"}) {
    CAPTURE(key);
    CHECK(json.at(key).is_null());
    CHECK_FALSE(settings::is_given(read_back(shop.temp / "run", "o"), *settings::find_key(key)));
  }
  CHECK(json.at("lora_rank") == 2);
  CHECK(json.at("lora_alpha") == 4.0);
  CHECK(json.at("dtype") == "float32");
  CHECK(json.at("threads") == 1);
  CHECK(json.at("lora_target").size() == 7);
}

TEST_CASE("run_config: a run that overwrote another is repeated elsewhere, and does not remove itself") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config();
  config.max_steps = 1;
  config.overwrite_output_dir = true;
  fine_tune(config);
  const auto before = lasting_files(config.output_dir);
  CHECK_THROWS_WITH_AS(fine_tune(read_back(config.output_dir, config.output_dir)),
                       doctest::Contains("which is not empty"), ConfigError);
  expect_same(before, lasting_files(config.output_dir));
  fine_tune(read_back(config.output_dir, shop.temp / "again"));
  expect_same(before, lasting_files(shop.temp / "again"));
}

}  // namespace run_config_test
