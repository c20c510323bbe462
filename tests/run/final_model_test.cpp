// What an adapter folder says of its base, and that the next command takes it from there.

#include "lora/run/final_model.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/instantiate.hpp"
#include "lora/run/base_checksum.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace final_model_test {

using namespace lora;
using namespace lora::settings;
using namespace lora::run;
using namespace lora::inputs;
using lora::test::holds;
using lora::test::message_of;

namespace {

/// Of a run whose last step's weights these are.
std::string card_of(const Config& config, const model::Source& source, const model::AdapterConfig* adapter,
                    const RunMetrics& metrics, const Talk& talk = {}) {
  return model_card(config, source, adapter, metrics, metrics, talk);
}

/// A base as a folder and as a GGUF file, and adapter folders written for it.
struct Workshop {
  test::TempFolder temp;
  test::RandomModel shape;

  explicit Workshop(const std::string& family) {
    shape.family = family;
    test::write_random_model(temp / "base", shape);
    if (family != "smollm3") test::write_gguf(temp / "base.gguf", shape, test::random_tensors(shape), DType::f32);
  }
  Config config(const std::string& base) const {
    Config config;
    config.model_name_or_path = (temp / base).native();
    config.dataset = {"/data/train.json"};
    return config;
  }
  /// The text of README.md.
  std::string write_adapter(const Config& config) const {
    const auto source = open_source(config);
    cpu::Device dev{1};
    model::Decoder<cpu::Device, float> decoder(dev, source);
    decoder.attach(dev, {});
    io::create_folders(temp / "adapter");
    write_adapter_folder(dev, decoder, source, {}, card_of(config, source, &decoder.adapter(), {}, {}),
                         temp / "adapter");
    return io::read_file(temp / "adapter" / "README.md");
  }
  bool has_config() const { return std::filesystem::exists(temp / "adapter" / "config.json"); }
};

/// The rows of a README's table.
std::map<std::string, std::string> rows_of(const std::string& card) {
  std::map<std::string, std::string> rows;
  const std::string head = "| setting | value |\n|---|---|\n";
  std::size_t at = card.find(head);
  REQUIRE(at != card.npos);
  for (at += head.size(); card.compare(at, 2, "| ") == 0; at = card.find('\n', at) + 1) {
    const std::string line = card.substr(at, card.find('\n', at) - at);
    const auto bar = line.find(" | ");
    REQUIRE(bar != line.npos);
    REQUIRE(line.ends_with(" |"));
    CHECK(rows.emplace(line.substr(2, bar - 2), line.substr(bar + 3, line.size() - bar - 5)).second);
  }
  return rows;
}

/// A README and every row that it must have, no more and no less.
void check_rows(const std::string& card, const std::map<std::string, std::string>& expected) {
  const auto rows = rows_of(card);
  for (const auto& row : expected) {
    CAPTURE(row.first);
    REQUIRE(rows.count(row.first) == 1);
    CHECK(rows.at(row.first) == row.second);
  }
  for (const auto& row : rows) {
    CAPTURE(row.first);
    CHECK(expected.count(row.first) == 1);
  }
}

/// What every README tells, of this run.
Config told_config(const Workshop& shop) {
  Config config = shop.config("base");
  config.learning_rate = 0.003;
  config.lr_scheduler_type = "linear";
  config.per_device_train_batch_size = 2;
  config.gradient_accumulation_steps = 3;
  config.seed = 11;
  return config;
}
RunMetrics told_metrics() {
  RunMetrics metrics;
  metrics.steps = 40;
  metrics.total_tokens = 5678;
  metrics.train_loss = 1.25;
  return metrics;
}
std::map<std::string, std::string> told_rows() {
  return {{"learning rate", "0.003"}, {"schedule", "linear"}, {"sequences per step", "6"},      {"steps", "40"},
          {"tokens", "5678"},         {"seed", "11"},         {"loss of the last step", "1.25"}};
}

}  // namespace

TEST_CASE("final_model: every row of an adapter's README tells what it was trained with") {
  const Workshop shop("qwen3");
  const Config config = told_config(shop);
  const auto source = open_source(config);
  RunMetrics metrics = told_metrics();
  model::AdapterConfig adapter;
  adapter.rank = 3;
  adapter.alpha = 4.5;
  adapter.dropout = 0.125;
  adapter.targets = {"q_proj", "v_proj"};
  auto rows = told_rows();
  rows.insert(
      {{"rank", "3"}, {"alpha", "4.5"}, {"rsLoRA", "false"}, {"dropout", "0.125"}, {"targets", "q_proj, v_proj"}});
  check_rows(card_of(config, source, &adapter, metrics, {}), rows);

  adapter.rslora = true;
  rows["rsLoRA"] = "true";
  adapter.target_expression = "model\\..*(q|v)_proj";
  rows["targets"] = "model\\..*(q\\|v)_proj";
  adapter.whole_modules = {"embed_tokens", "norm"};
  rows["trained in full"] = "embed_tokens, norm";
  metrics.eval_loss = 0.5;
  rows["evaluation loss"] = "0.5";
  metrics.files = {{"a", 45}, {"b c", 30}};
  rows["records learned from"] = "45 of a (60.0 %), 30 of b c (40.0 %)";
  metrics.curriculum = {{.from_step = 0, .to_step = 10, .counts = {{"easy", 7}, {"hard", 1}}},
                        {.from_step = 10, .to_step = 40, .counts = {{"hard", 2}}}};
  rows["curriculum, steps 1 to 10"] = "7 of easy (87.5 %), 1 of hard (12.5 %)";
  rows["curriculum, steps 11 to 40"] = "2 of hard (100.0 %)";
  rows["chat template"] = "chatml";
  check_rows(card_of(config, source, &adapter, metrics, {.template_name = "chatml"}), rows);
}

TEST_CASE("final_model: every row of a model's README tells what it was trained with, stage by stage") {
  const Workshop shop("qwen3");
  Config config = told_config(shop);
  config.finetuning_type = "full";
  const auto source = open_source(config);
  check_rows(card_of(config, source, nullptr, told_metrics(), {}), told_rows());

  config.trainable = {"model.norm", "lm_head"};
  auto rows = told_rows();
  rows["trained tensors"] = "model.norm, lm_head";
  rows["chat template"] = "qwen3";
  check_rows(card_of(config, source, nullptr, told_metrics(), {.template_name = "qwen3"}), rows);

  config.stages.resize(2);
  config.stages[0].trainable = {"lm_head"};
  config.stages[1].learning_rate = 0.001;
  rows = told_rows();
  for (const char* name : {"learning rate", "schedule", "sequences per step"}) {
    for (std::size_t i = 0; i < 2; ++i) rows[concat(name, ", ", settings::stage_name(config, i))] = rows[name];
    rows.erase(name);
  }
  rows["learning rate, " + settings::stage_name(config, 1)] = "0.001";
  rows["trained tensors, " + settings::stage_name(config, 0)] = "lm_head";
  rows["trained tensors, " + settings::stage_name(config, 1)] = "model.norm, lm_head";
  RunMetrics metrics = told_metrics();
  metrics.stages = {{0, 25}, {25, 40}};
  rows["steps, " + settings::stage_name(config, 0)] = "1 to 25";
  rows["steps, " + settings::stage_name(config, 1)] = "26 to 40";
  check_rows(card_of(config, source, nullptr, metrics, {}), rows);
}

TEST_CASE("final_model: an adapter's README tells where answers end if its base does not stop there") {
  const Workshop shop("qwen3");
  const Config config = shop.config("base");
  const auto source = open_source(config);
  const model::AdapterConfig adapter;
  Talk talk;
  CHECK_FALSE(holds(card_of(config, source, &adapter, {}, talk), "eos_token_id"));
  talk.changes.eos_token = "<end>";
  talk.stop_ids = {7, 0};
  CHECK(card_of(config, source, &adapter, {}, talk).ends_with(stopping_text(talk)));
  CHECK_FALSE(holds(card_of(config, source, nullptr, {}, talk), "eos_token_id"));  // its files say so
}

TEST_CASE("final_model: the folder of an ordinary base tells how to load it, and needs no config.json") {
  const Workshop shop("qwen3");
  const auto card = shop.write_adapter(shop.config("base"));
  CHECK(holds(card, "from_pretrained(\"" + (shop.temp / "base").native() + "\")\n"));
  CHECK(holds(card, "import AutoModelForCausalLM\n"));
  CHECK_FALSE(shop.has_config());
  auto config = shop.config("base");
  config.dataset = {"data/first.jsonl", "second.json"};
  const auto told = shop.write_adapter(config);
  const std::string base = (shop.temp / "base").native();
  CHECK(holds(told, "base_model: \"" + base + "\"\n"));
  CHECK(holds(told, "\nFine-tuned from `" + base + "` on `first.jsonl` `second.json`.\n\n| setting | value |\n"));
}

TEST_CASE("final_model: before the first step a README tells of no loss and of no stage that has begun") {
  const Workshop shop("qwen3");
  Config config = told_config(shop);
  const auto source = open_source(config);
  RunMetrics metrics;  // as of a run that was stopped in its first evaluation
  metrics.train_loss = metrics.mean_train_loss = std::numeric_limits<double>::quiet_NaN();
  auto rows = told_rows();
  rows.erase("loss of the last step");
  rows["steps"] = rows["tokens"] = "0";
  check_rows(card_of(config, source, nullptr, metrics, {}), rows);
  for (const char* key : {"learning rate", "schedule", "sequences per step"}) rows.erase(key);
  config.stages.resize(2);
  rows["stages that have not begun"] = "2";
  check_rows(card_of(config, source, nullptr, metrics, {}), rows);
}

TEST_CASE("final_model: a GGUF base is loaded by folder and file") {
  const Workshop shop("llama");
  const auto card = shop.write_adapter(shop.config("base.gguf"));
  CHECK(holds(card, "from_pretrained(\"" + shop.temp.path().native() + "\", gguf_file=\"base.gguf\")\n"));
  CHECK(model::parse_config(io::read_json(shop.temp / "adapter" / "config.json"), "config.json").model_type == "llama");
  Config here = shop.config("base.gguf");
  const auto source = open_source(here);
  here.model_name_or_path = "base.gguf";
  const model::AdapterConfig adapter;
  CHECK(holds(card_of(here, source, &adapter, {}, {}), "from_pretrained(\".\", gguf_file=\"base.gguf\")\n"));
}

TEST_CASE("final_model: rotary settings of a run go with its adapter") {
  for (const char* base : {"base", "base.gguf"}) {
    const Workshop shop("qwen2");
    Config config = shop.config(base);
    config.rope_theta = 123;
    config.no_rope_layers = {1};
    const auto card = shop.write_adapter(config);
    CHECK(holds(card, ", config=config)"));
    CHECK(holds(card, "\nThese layers run without rotary embedding: 1.\n"));
    CHECK(holds(card, "for layer, rotates in zip(base.model.layers, base.config.no_rope_layers):\n"));
    CHECK(holds(card_of(config, open_source(config), nullptr, {}),
                "for layer, rotates in zip(model.model.layers, model.config.no_rope_layers):\n"));
    REQUIRE(shop.has_config());

    Config later = shop.config(base);
    later.adapter_name_or_path = (shop.temp / "adapter").native();
    const auto expect = [&](const Config& keys) {
      const auto source = open_source(keys);
      CHECK(source.config().rope.theta == 123);
      CHECK(source.config().rotates == std::vector<bool>{true, false});
    };
    expect(later);
    later.rope_theta = 123;
    later.no_rope_layers = {1};
    expect(later);
    later.rope_theta = 500;
    CHECK(holds(message_of<ConfigError>([&] { open_source(later); }), "key rope_theta: given 500, but the adapter "));
    later.rope_theta = {};
    later.no_rope_layers = {0, 1};
    CHECK(holds(message_of<ConfigError>([&] { open_source(later); }),
                "key no_rope_layers: layer 0 would run without rotary embedding, but the adapter "));
  }
}

TEST_CASE("final_model: rope_theta alone goes with an adapter as well") {
  const Workshop shop("llama");
  Config config = shop.config("base");
  config.rope_theta = 123;
  const auto card = shop.write_adapter(config);
  CHECK(holds(card, ", config=config)"));
  CHECK_FALSE(holds(card, "without rotary embedding"));
  REQUIRE(shop.has_config());
  CHECK(model::parse_config(io::read_json(shop.temp / "adapter" / "config.json"), "config.json").rope.theta == 123);
}

TEST_CASE("final_model: smollm3's config.json can tell its layers, so that the card needs no warning") {
  const Workshop shop("smollm3");
  Config config = shop.config("base");
  config.no_rope_layers = {0};
  const auto card = shop.write_adapter(config);
  CHECK(holds(card, ", config=config)"));
  CHECK_FALSE(holds(card, "without rotary embedding"));
  CHECK(model::parse_config(io::read_json(shop.temp / "adapter" / "config.json"), "config.json").rotates ==
        std::vector<bool>{false, true});
}

TEST_CASE("final_model: another's config.json beside an adapter changes nothing that it does not tell") {
  const Workshop shop("qwen2");
  shop.write_adapter(shop.config("base"));
  io::write_file(shop.temp / "adapter" / "config.json", std::string_view(R"({"quantization_config": {"bits": 4}})"));
  Config config = shop.config("base");
  config.adapter_name_or_path = (shop.temp / "adapter").native();
  const auto source = open_source(config);
  CHECK_FALSE(model::rotary_changed(source));
}

TEST_CASE("final_model: the best step's weights are told beside the steps of the run and what ended it") {
  const Workshop shop("qwen3");
  Config config = told_config(shop);
  config.metric_for_best_model = "eval_accuracy";
  const auto source = open_source(config);
  RunMetrics run = told_metrics(), weights = told_metrics();
  weights.steps = 30;
  weights.total_tokens = 4000;
  weights.train_loss = 1.5;
  weights.eval_loss = 0.75;
  run.ended_early = "early_stopping_patience";
  // What was learned after these weights is none of theirs.
  run.eval_loss = 0.25;
  weights.files = {{"a", 3}};
  run.files = {{"a", 4}, {"b", 1}};
  weights.curriculum = {{.from_step = 0, .to_step = 30, .counts = {{"easy", 3}}}};
  run.curriculum = {{.from_step = 0, .to_step = 40, .counts = {{"easy", 4}}}};
  run.absent_class_field = "level";
  auto rows = told_rows();
  rows.erase("loss of the last step");
  rows["weights"] = "of step 30, the best by eval_accuracy";
  rows["steps of the run"] = "40";
  rows["the run ended early"] = "after step 40 by early_stopping_patience";
  rows["steps"] = "30";
  rows["tokens"] = "4000";
  rows["loss of step 30"] = "1.5";
  rows["evaluation loss"] = "0.75";
  rows["records learned from"] = "3 of a (100.0 %)";
  rows["curriculum, steps 1 to 30"] = "3 of easy (100.0 %)";
  check_rows(model_card(config, source, nullptr, run, weights, {}), rows);
  weights.train_loss = std::numeric_limits<double>::quiet_NaN();
  rows.erase("loss of step 30");
  check_rows(model_card(config, source, nullptr, run, weights, {}), rows);
}

TEST_CASE("final_model: stages that ended early and those that have not begun are told") {
  const Workshop shop("qwen3");
  Config config = told_config(shop);
  const auto source = open_source(config);
  config.stages.resize(3);
  config.stages[1].name = "a|b";
  config.stages[1].trainable = {"lm_head"};
  config.stages[2].trainable = {"model.norm"};
  RunMetrics metrics = told_metrics();
  metrics.stages = {{0, 25, true}, {25, 40, false}};
  const auto found = rows_of(card_of(config, source, nullptr, metrics, {}));
  CHECK(found.at("stages that have not begun") == "1");
  CHECK(found.at("steps, " + run::detail::cell(settings::stage_name(config, 0))) ==
        "1 to 25, ended early by early_stopping_patience");
  CHECK(found.at("steps, " + run::detail::cell(settings::stage_name(config, 1))) == "26 to 40");
  CHECK(found.at("trained tensors, " + run::detail::cell(settings::stage_name(config, 1))) == "lm_head");
  CHECK(found.count("trained tensors, " + run::detail::cell(settings::stage_name(config, 2))) == 0);
  CHECK(found.count("learning rate, " + run::detail::cell(settings::stage_name(config, 2))) == 0);
}

TEST_CASE("final_model: a curriculum that no record has a class for is told with the field, in one line") {
  const Workshop shop("qwen3");
  const Config config = told_config(shop);
  const auto source = open_source(config);
  RunMetrics metrics = told_metrics();
  metrics.absent_class_field = "level\nof|it";
  metrics.files = {{"a", 0}};
  const auto rows = rows_of(card_of(config, source, nullptr, metrics, {}));
  CHECK(rows.at("curriculum") == "none: no record has the field level\\nof\\|it");
  CHECK(rows.at("records learned from") == "0 of a (0.0 %)");
  metrics.files = {{"a\n|b", 1}, {"c", 2}};
  CHECK(rows_of(card_of(config, source, nullptr, metrics, {})).at("records learned from") ==
        "1 of a\\n\\|b (33.3 %), 2 of c (66.7 %)");
  CHECK(run::detail::cell("a|b\nc\\") == "a\\|b c\\");
}

TEST_CASE("final_model: a card begins as its kind does, and a model from random weights has no base") {
  const Workshop shop("qwen3");
  Config config = shop.config("base");
  const auto source = open_source(config);
  const model::AdapterConfig adapter;
  const std::string base = (shop.temp / "base").native();
  CHECK(card_of(config, source, &adapter, {}, {})
            .starts_with(concat("---\nbase_model: \"", base, "\"\n", adapter_card_head, "Fine-tuned from `", base,
                                "` on `train.json`.\n\n| setting | value |\n|---|---|\n")));
  const std::string whole = card_of(config, source, nullptr, {}, {});
  CHECK(whole.starts_with(concat("---\nbase_model: \"", base, "\"\n", model_card_head, "Fine-tuned from `")));
  CHECK(
      whole.ends_with("\n```python\nfrom transformers import AutoModelForCausalLM\n\n"
                      "model = AutoModelForCausalLM.from_pretrained(\"path/to/this/folder\")\n```\n"));
  const auto initial = model::Source::initial("a", test::config_json(shop.shape), 1);
  CHECK(card_of(config, initial, nullptr, {}, {})
            .starts_with(concat("---\n", model_card_head, "Trained from scratch, with the shape of `", base, "` on")));
  config.model_preset = "qwen3-0.6b";
  CHECK(holds(card_of(config, initial, nullptr, {}, {}), "with the shape of `qwen3-0.6b` on `train.json`.\n"));
}

TEST_CASE("final_model: the code that loads an adapter names its base, its file and its other settings") {
  const Workshop shop("llama");
  Config config = shop.config("base");
  const auto usage = [&] {
    const model::AdapterConfig adapter;
    const std::string card = card_of(config, open_source(config), &adapter, {}, {});
    return card.substr(card.find("\n```python\n"));
  };
  const std::string base = (shop.temp / "base").native(),
                    model = "model = PeftModel.from_pretrained(base, \"path/to/this/folder\")\n```\n";
  CHECK(usage() == concat("\n```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n",
                          "base = AutoModelForCausalLM.from_pretrained(\"", base, "\")\n", model));
  config.rope_theta = 123;
  CHECK(usage() ==
        concat("\n```python\nfrom peft import PeftModel\nfrom transformers import AutoConfig, AutoModelForCausalLM\n\n",
               "config = AutoConfig.from_pretrained(\"path/to/this/folder\")\n",
               "base = AutoModelForCausalLM.from_pretrained(\"", base, "\", config=config)\n", model,
               "\nThe base ran with other rotary settings than its own file has: `config.json` holds them, and `lora` "
               "takes them from there.\n"));
}

TEST_CASE("final_model: a model's folder has its weights in the run's type, in shards, with its card") {
  const Workshop shop("qwen3");
  const Config config = shop.config("base");
  const auto source = open_source(config);
  cpu::Device dev{1};
  model::Decoder<cpu::Device, float> decoder(dev, source);
  const io::Path whole = shop.temp / "whole", shards = shop.temp / "shards";
  for (const io::Path& folder : {whole, shards}) {
    io::create_folders(folder);
    write_model_folder(dev, decoder, source, {}, "a card", folder == whole ? Index{1} << 30 : 4000, folder);
    CHECK(io::read_file(folder / "README.md") == "a card");
    CHECK_FALSE(io::is_there(folder / "tokenizer.json"));
  }
  CHECK(io::is_file(whole / "model.safetensors"));
  CHECK_FALSE(io::is_there(shards / "model.safetensors"));
  CHECK(io::is_file(shards / "model.safetensors.index.json"));
  const auto again = model::Source::open(whole);
  CHECK(again.stored_dtype() == DType::f32);
  CHECK(weights_checksum(again) == weights_checksum(model::Source::open(shards)));
  CHECK(weights_checksum(again) == weights_checksum(source));
}

TEST_CASE("final_model: each kind of folder has the tokenizer and the card, and of a model where its answers end") {
  const test::TempFolder temp;
  test::write_talking_model(temp / "base");  // which stops at the id 0
  const auto source = model::Source::open(temp / "base");
  const auto tokenizer = tokenizer::Tokenizer::from_folder(temp / "base");
  const Talk talk = talk_of(source, &tokenizer, {"other", "<|im_end|>"});
  cpu::Device dev{1};
  using Decoder = model::Decoder<cpu::Device, float>;
  Decoder plain(dev, source), adapted(dev, source), whole(dev, source), part(dev, source);
  adapted.attach(dev, {});
  const auto every = [](const model::TensorInfo&) { return true; };
  const auto norm = [](const model::TensorInfo& info) { return info.name == "model.norm.weight"; };
  whole.train_own(dev, every);
  part.train_own(dev, norm);
  const auto check = [&](const char* name, const auto& write, const std::set<std::string>& more) {
    CAPTURE(name);
    const io::Path folder = temp / name;
    io::create_folders(folder);
    write(folder);
    std::set<std::string> expected = more, found;
    expected.insert({"README.md", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"});
    for (const io::Path& entry : io::entries_of(folder)) found.insert(entry.filename().native());
    CHECK(found == expected);
    CHECK(io::read_file(folder / "README.md") == "a card");
    CHECK(io::read_file(folder / "chat_template.jinja") == "other");
    if (more.count("config.json") == 0) return;
    for (const char* file : {"config.json", "generation_config.json"})
      CHECK(io::read_json(folder / file).at("eos_token_id") == io::Json::array({257, 0}));
    CHECK(io::read_json(folder / "config.json").at("torch_dtype") == "float32");
  };
  const std::string card = "a card";
  const std::set<std::string> of_model = {"config.json", "generation_config.json", "model.safetensors"};
  check(
      "model", [&](const auto& to) { write_model_folder(dev, plain, source, talk, card, Index{1} << 30, to); },
      of_model);
  check("adapter", [&](const auto& to) { write_adapter_folder(dev, adapted, source, talk, card, to); },
        {"adapter_config.json", "adapter_model.safetensors"});
  check(
      "whole", [&](const auto& to) { write_trained_folder(dev, whole, source, talk, card, to); }, of_model);
  check("part", [&](const auto& to) { write_trained_folder(dev, part, source, talk, card, to); },
        {"trained.safetensors"});
  // What trains is read back, of all of a model or of a part.
  for (const bool all : {true, false}) {
    Decoder again(dev, source);
    again.train_own(dev, all ? model::Decoder<cpu::Device, float>::Choice(every) : norm);
    const auto first = [&] {
      float value = 0;
      again.params().for_each([&](const auto& param) {
        if (param.name == "model.norm.weight") value = to_host(dev, param.value)[0];
      });
      return value;
    };
    const float stored = first();
    again.params().for_each([&](const auto& param) { kernel::fill(dev, param.value, 2.0); });
    CHECK(first() == 2);
    read_trained_folder(dev, again, source, temp / (all ? "whole" : "part"));
    CHECK(first() == stored);
  }
}

}  // namespace final_model_test
