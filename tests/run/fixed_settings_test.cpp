#include "lora/run/fixed_settings.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace fixed_settings_test {

using namespace lora;
using namespace lora::run;
using test::message_of;

namespace {

struct Base {
  test::TempFolder temp;
  test::RandomModel shape;

  explicit Base(const io::Json& more = io::Json::object(), const std::string& family = "qwen3") {
    shape.family = family;
    shape.more = more;
    test::write_random_model(temp / "model", shape);
  }
  model::Source source() const { return model::Source::open(temp / "model"); }
};

io::Json settings_of(const settings::Config& config, const model::Source& source, const DataFacts& data = {},
                     const model::AdapterConfig* adapter = nullptr) {
  return fixed_settings(config, source, adapter, std::string(all_text), data, Precision::float32);
}

/// That each of these fields has this value, and with `whole` that there are no others.
void check_fields(const io::Json& found, const std::string& expected, bool whole) {
  const io::Json fields = io::parse_json(expected, "expected");
  for (const auto& field : fields.items()) {
    const std::string& name = field.key();
    CAPTURE(name);
    REQUIRE(found.contains(name));
    CHECK(io::to_text(found.at(name), -1) == io::to_text(field.value(), -1));
  }
  if (whole) CHECK(found.size() == fields.size());
}

Checkpoint checkpoint_with(io::Json settings) {
  Checkpoint checkpoint{"/runs/a", {}};
  checkpoint.state.settings = std::move(settings);
  return checkpoint;
}

std::string refused(const io::Json& now, const io::Json& then) {
  return message_of<ConfigError>([&] { expect_same_settings(now, checkpoint_with(then)); });
}

}  // namespace

TEST_CASE("fixed settings: every setting of an adapter's run is told under its key") {
  const Base base;
  const model::Source source = base.source();
  settings::Config config;
  config.val_size = 0.25;
  config.text_column = "body";
  config.cutoff_len = 77;
  config.train_on_prompt = true;
  config.per_device_train_batch_size = 3;
  config.gradient_accumulation_steps = 5;
  config.ranks = 2;
  config.step_units = 6;
  config.seed = 11;
  config.metric_for_best_model = "eval_rouge_l";
  config.neftune_noise_alpha = 2.5;
  config.loraplus_lr_ratio = 4;
  config.lora_rank = 99;  // that of the adapter counts
  model::AdapterConfig adapter;
  adapter.rank = 3;
  adapter.alpha = 4.5;
  adapter.dropout = 0.125;
  adapter.rslora = true;
  adapter.targets = {"v_proj", "k_proj", "q_proj"};
  adapter.rank_pattern = {{"q_proj", 2}};
  adapter.alpha_pattern = {{"v_proj", 1.5}};
  adapter.layers = {1};
  adapter.excluded = {"k_proj"};
  adapter.whole_modules = {"norm"};
  DataFacts data{.fingerprint = 0x123, .records = 7, .template_name = "chatml", .date = "2001-02-03"};
  data.adapter_start = 0x456;
  const io::Json found = fixed_settings(config, source, &adapter, "2 tensors", data, Precision::bfloat16);
  check_fields(found, R"({
    "finetuning_type": "lora",
    "model_name_or_path": "qwen3, 2 layers of 16 and 24, vocabulary of 61, weights with checksum 8c10e798a87e8415 of all bytes",
    "dtype": "bfloat16", "rope_theta": 10000.0, "no_rope_layers": [],
    "config.json": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "rms_norm_eps": 1e-06,
                    "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false, "rope_type": "default",
                    "sliding_window": null},
    "lora_rank": 3, "lora_alpha": 4.5, "lora_dropout": 0.125, "lora_target": ["k_proj", "q_proj", "v_proj"],
    "use_rslora": true, "exclude_modules": ["k_proj"], "layers_to_transform": [1], "additional_target": ["norm"],
    "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 1.5}, "loraplus_lr_ratio": 4.0,
    "adapter_name_or_path": "weights with checksum 0000000000000456",
    "dataset": "7 records with checksum 0000000000000123", "val_size": 0.25, "template": "chatml", "date": "2001-02-03",
    "text_column": "body", "cutoff_len": 77, "stages": [], "train_on_prompt": true, "train_on_last_turn_only": false,
    "shuffle": true, "per_device_train_batch_size x gradient_accumulation_steps": 30, "step_units": 6, "seed": 11,
    "metric_for_best_model": "eval_rouge_l", "neftune_noise_alpha": 2.5, "trains": "2 tensors", "use_curriculum": false,
    "mix_strategy": "concat"})",
               true);

  config.train_on_prompt = false;
  config.train_on_last_turn_only = true;
  config.shuffle = false;
  config.loraplus_lr_ratio = 1;
  config.neftune_noise_alpha.reset();
  check_fields(settings_of(config, source, data, &adapter),
               R"({"train_on_prompt": false, "train_on_last_turn_only": true, "shuffle": false, "trains": "all",
                   "loraplus_lr_ratio": null, "neftune_noise_alpha": null, "dtype": "float32"})",
               false);
}

TEST_CASE("fixed settings: of a model that trains itself nothing tells an adapter, and what only some runs have") {
  const Base base;
  const model::Source source = base.source();
  settings::Config config;
  config.finetuning_type = "full";
  config.trainable = {"norm", "lm_head"};
  const io::Json plain = settings_of(config, source);
  check_fields(plain, R"({"finetuning_type": "full", "trainable": ["norm", "lm_head"]})", false);
  for (const char* none : {"lora_rank", "loraplus_lr_ratio", "enable_thinking", "text_blocks", "tokenizer",
                           "curriculum_field", "records of each file"})
    CHECK_FALSE(plain.contains(none));

  DataFacts data;
  data.enable_thinking = false;
  data.text_blocks = 12;
  data.tokenizer = tokenizer::Fingerprints{1, 2, 3, 4, 5};
  data.file_records = {8, 9};
  data.curriculum_steps = {4, 6};
  check_fields(settings_of(config, source, data),
               R"({"enable_thinking": false, "text_blocks": 12,
                   "tokenizer": {"vocabulary": "0000000000000001", "merges": "0000000000000002",
                                 "added tokens": "0000000000000003", "normalizer": "0000000000000004",
                                 "splitting into words": "0000000000000005"},
                   "use_curriculum": false, "mix_strategy": "concat"})",
               false);
  CHECK_FALSE(settings_of(config, source, data).contains("records of each file"));

  config.mix_strategy = "interleave_under";
  config.dataset = {data::DataFile{"a"}, data::DataFile{"b"}};
  config.interleave_probs = {0.25, 0.75};
  check_fields(settings_of(config, source, data),
               R"({"mix_strategy": "interleave_under", "interleave_probs, or weights of dataset": [0.25, 0.75],
                   "records of each file": [8, 9]})",
               false);

  config.mix_strategy = "concat";
  config.use_curriculum = true;
  config.curriculum_field = "level";
  config.curriculum_seed = 5;
  config.curriculum_stages = {{.until = 1, .mix = {{"a", 1}}}};
  const char* const steps = "max_steps or num_train_epochs, whose steps use_curriculum divides";
  const io::Json with = settings_of(config, source, data);
  check_fields(with,
               concat(R"({"use_curriculum": true, "curriculum_field": "level", "curriculum_seed": 5, ")", steps,
                      R"(": [4, 6]})"),
               false);
  CHECK(with.at("curriculum_stages").size() == 1);
  data.curriculum_steps.clear();
  CHECK_FALSE(settings_of(config, source, data).contains(steps));
}

TEST_CASE("fixed settings: of a scaled rotary embedding what its kind computes with is told") {
  const auto rope_of = [](const std::string& scaling, const char* family = "llama") {
    const Base base(io::json_object({{"rope_scaling", io::parse_json(scaling, "scaling")}}), family);
    io::Json rope = io::Json::object();
    const io::Json all = settings_of({}, base.source());
    for (const auto& field : all.at("config.json").items())
      if (field.key().starts_with("rope")) rope[field.key()] = field.value();
    return rope;
  };
  check_fields(rope_of(R"({"rope_type": "linear", "factor": 2.5})"), R"({"rope_type": "linear", "rope factor": 2.5})",
               true);
  check_fields(rope_of(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.5, "high_freq_factor": 3.5,
                           "original_max_position_embeddings": 512})"),
               R"({"rope_type": "llama3", "rope factor": 8.0, "rope original_max_position_embeddings": 512.0,
                   "rope low_freq_factor": 1.5, "rope high_freq_factor": 3.5})",
               true);
  check_fields(
      rope_of(R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 31.0,
                           "beta_slow": 2.0, "attention_factor": 1.25, "mscale": 0.5, "mscale_all_dim": 0.75,
                           "truncate": false})"),
      R"({"rope_type": "yarn", "rope factor": 4.0, "rope original_max_position_embeddings": 256.0,
                   "rope beta_fast": 31.0, "rope beta_slow": 2.0, "rope attention_factor": 1.25, "rope mscale": 0.5,
                   "rope mscale_all_dim": 0.75, "rope truncate": false})",
      true);
  check_fields(
      rope_of(R"({"rope_type": "longrope", "factor": 3.0, "short_factor": [1, 2], "long_factor": [3, 4]})", "phi3"),
      R"({"rope_type": "longrope", "rope factor": 3.0, "rope original_max_position_embeddings": 4096.0,
                   "rope attention_factor": 0.0, "rope short_factor": [1.0, 2.0]})",
      true);
}

TEST_CASE("fixed settings: of a model from random weights the numbers that these are drawn by are told") {
  test::RandomModel shape;
  io::Json json = test::config_json(shape);
  json["initializer_range"] = 0.125;
  json["no_rope_layers"] = {1, 0};
  json["attention_bias"] = true;
  json["rope_theta"] = 5000.0;
  const auto model_of = [&] { return settings_of({}, model::Source::initial("a", json, 1)); };
  const io::Json none = model_of();
  check_fields(none, R"({"model_name_or_path": "qwen3, 2 layers of 16 and 24, vocabulary of 61, random weights",
                         "rope_theta": 5000.0})",
               false);
  check_fields(none.at("config.json"), R"({"initializer_range": 0.125, "pad_token_id": null})", false);
  json["pad_token_id"] = 7;
  check_fields(model_of().at("config.json"), R"({"pad_token_id": 7})", false);
  CHECK_FALSE(settings_of({}, Base().source()).at("config.json").contains("initializer_range"));
}

TEST_CASE("fixed settings: of stages what decides memory alone is left out") {
  const Base base;
  settings::Config config;
  config.stages.resize(2);
  config.stages[0].until_step = 4;
  config.stages[0].gradient_checkpointing = true;
  config.stages[1].max_tokens_per_micro_batch = 100;
  config.stages[1].cutoff_len = 9;
  const io::Json stages = settings_of(config, base.source()).at("stages");
  REQUIRE(stages.size() == 2);
  for (const io::Json& stage : stages)
    for (const char* name : {"gradient_checkpointing", "max_tokens_per_micro_batch"}) CHECK_FALSE(stage.contains(name));
  CHECK(stages[0].at("until_step") == 4);
  CHECK(stages[1].at("cutoff_len") == 9);
}

TEST_CASE("fixed settings: chosen tensors are told by their number and their names") {
  const std::string two = chosen_text({"a", "b"});
  CHECK(two.starts_with("2 tensors with checksum "));
  CHECK(two.size() == std::string("2 tensors with checksum ").size() + 16);
  CHECK(chosen_text({"a", "b"}) == two);
  CHECK(chosen_text({"a", "c"}) != two);
  CHECK(chosen_text({"b", "a"}) != two);
  CHECK(chosen_text({}).starts_with("0 tensors with checksum "));
}

TEST_CASE("fixed settings: what an earlier version did not note is left out while it has its default, and no longer") {
  const Base base;
  const model::Source source = base.source();
  const model::AdapterConfig adapter;
  const auto asked = [&](const settings::Config& config, const io::Json& then, const model::AdapterConfig& of) {
    const io::Json now = fixed_settings(config, source, &of, std::string(all_text), {}, Precision::float32);
    return settings_as(now, checkpoint_with(then), config, source);
  };
  const io::Json nothing = io::Json::object();
  const std::vector<std::string> late = {"step_units",
                                         "trains",
                                         "metric_for_best_model",
                                         "finetuning_type",
                                         "additional_target",
                                         "loraplus_lr_ratio",
                                         "adapter_name_or_path",
                                         "neftune_noise_alpha",
                                         "stages",
                                         "use_curriculum",
                                         "mix_strategy"};
  const io::Json plain = asked({}, nothing, adapter);
  const io::Json all = fixed_settings({}, source, &adapter, std::string(all_text), {}, Precision::float32);
  for (const std::string& name : late) {
    CAPTURE(name);
    REQUIRE(all.contains(name));
    CHECK_FALSE(plain.contains(name));
    io::Json noted = io::Json::object();
    noted[name] = "noted";
    CHECK(asked({}, noted, adapter).contains(name));
  }
  CHECK(plain.size() == all.size() - late.size());

  settings::Config other;
  other.step_units = 2;
  other.metric_for_best_model = "eval_accuracy";
  other.finetuning_type = "full";
  other.loraplus_lr_ratio = 2;
  other.neftune_noise_alpha = 5;
  other.stages.resize(1);
  other.use_curriculum = true;
  other.mix_strategy = "interleave_over";
  other.dataset = {data::DataFile{"a"}};
  model::AdapterConfig whole;
  whole.whole_modules = {"norm"};
  const io::Json changed = asked(other, nothing, whole);
  DataFacts from_adapter;
  from_adapter.adapter_start = 7;
  const io::Json noted = settings_of({}, source, from_adapter, &adapter);
  CHECK(noted.at("adapter_name_or_path") == "weights with checksum 0000000000000007");
  for (const io::Json& then : {io::Json(nullptr), io::Json("weights with checksum 0000000000000008")}) {
    CHECK_FALSE(settings_as(noted, checkpoint_with(nothing), {}, source).contains("adapter_name_or_path"));
    CHECK(settings_as(noted, checkpoint_with({{"adapter_name_or_path", then}}), {}, source)
              .contains("adapter_name_or_path"));
  }
  for (const std::string& name : late) {
    if (name == "trains" || name == "adapter_name_or_path") continue;
    CAPTURE(name);
    CHECK(changed.contains(name));
  }
  io::Json chosen = all;
  chosen["trains"] = "2 tensors with checksum 1";
  CHECK(settings_as(chosen, checkpoint_with(nothing), {}, source).contains("trains"));
}

TEST_CASE("fixed settings: a base that was noted by samples is compared by samples") {
  const Base base;
  const model::Source source = base.source();
  settings::Config config;
  config.no_rope_layers = {1};
  const auto asked = [&](const io::Json& then) {
    return settings_as(settings_of(config, source), checkpoint_with({{"model_name_or_path", then}}), config, source);
  };
  const std::string whole = base_text(source, false), sampled = base_text(source, true);
  const io::Json by_samples = asked("qwen3, weights with checksum 0123");
  CHECK(by_samples.at("model_name_or_path") == sampled);
  CHECK(by_samples.at("no_rope_layers") == io::Json::array({1}));
  for (const io::Json& then :
       {io::Json("x, weights with checksum 01 of all bytes"), io::Json("x, random weights"), io::Json(nullptr)}) {
    CHECK(asked(then).at("model_name_or_path") == whole);
    CHECK(asked(then).at("no_rope_layers") == io::Json::array());
  }
}

TEST_CASE("fixed settings: a ratio of 1 is none, whichever of the two a checkpoint notes") {
  const Base base;
  const model::Source source = base.source();
  const model::AdapterConfig adapter;
  const auto asked = [&](const std::optional<double>& now, const io::Json& then) {
    settings::Config config;
    config.loraplus_lr_ratio = now;
    const io::Json made =
        settings_as(fixed_settings(config, source, &adapter, std::string(all_text), {}, Precision::float32),
                    checkpoint_with({{"loraplus_lr_ratio", then}}), config, source);
    return made.contains("loraplus_lr_ratio") ? made.at("loraplus_lr_ratio") : io::Json("left out");
  };
  CHECK(asked(std::nullopt, 1) == 1);
  CHECK(asked(1.0, 1.0) == 1.0);
  CHECK(asked(std::nullopt, nullptr) == "left out");
  CHECK(asked(2.0, nullptr) == 2.0);
  CHECK(asked(2.0, 1) == 2.0);
  CHECK(asked(std::nullopt, 2).is_null());
}

TEST_CASE("fixed settings: other words for the same tensors are taken as the checkpoint has them, stage by stage") {
  const Base base;
  const model::Source source = base.source();
  settings::Config config;
  config.finetuning_type = "full";
  const auto taken = [&](const io::Json& run, const io::Json& stages, const io::Json& run_then,
                         const io::Json& stages_then) {
    io::Json now = settings_of(config, source), then = io::Json::object();
    now["trainable"] = run;
    now["stages"] = stages;
    if (!run_then.is_null()) then["trainable"] = run_then;
    if (!stages_then.is_null()) then["stages"] = stages_then;
    const io::Json made = settings_as(now, checkpoint_with(then), config, source);
    return !run_then.is_null() && made.at("trainable") == run_then &&
           (stages.empty() || (made.contains("stages") && made.at("stages") == stages_then));
  };
  const io::Json none = io::Json::array(), norm = {"model\\.norm"}, same = {"model\\.norm\\.weight"},
                 head = {"lm_head"};
  CHECK(taken(norm, none, same, nullptr));
  CHECK_FALSE(taken(norm, none, head, nullptr));
  CHECK_FALSE(taken(norm, none, {"no_such_tensor"}, nullptr));
  CHECK_FALSE(taken(norm, none, "model.norm", nullptr));  // no list
  CHECK_FALSE(taken("model.norm", none, norm, nullptr));
  CHECK_FALSE(taken(norm, none, nullptr, nullptr));

  const auto stage = [](const io::Json& trains, int until = 3) {
    io::Json one = io::json_object({{"until_step", until}});
    if (!trains.is_null()) one["trainable"] = trains;
    return one;
  };
  const auto stages = [](const io::Json& first, const io::Json& second) { return io::Json::array({first, second}); };
  // A stage that does not say what trains has the run's.
  CHECK(taken(norm, stages(stage(nullptr), stage(head)), same, stages(stage(norm), stage(head))));
  CHECK(taken(norm, stages(stage(nullptr), stage(head)), head, stages(stage(same), stage(nullptr))));
  CHECK_FALSE(taken(norm, stages(stage(nullptr), stage(head)), same, stages(stage(nullptr), stage(norm))));
  CHECK_FALSE(taken(norm, stages(stage(nullptr), stage(head)), head, stages(stage(nullptr), stage(head))));
  CHECK_FALSE(taken(norm, stages(stage(nullptr), stage(head)), same, stages(stage(nullptr), stage(head, 4))));
  CHECK_FALSE(taken(norm, stages(stage(nullptr), stage(head)), same, io::Json::array({stage(nullptr)})));
  CHECK_FALSE(taken(norm, stages(stage(nullptr), stage(head)), same, stages(stage(nullptr), 3)));
  CHECK_FALSE(taken(norm, stages(stage(nullptr), stage(head)), same, io::json_object({{"0", 1}, {"1", 2}})));
  CHECK_FALSE(taken(norm, stages(stage(nullptr), stage(head)), same, nullptr));
}

TEST_CASE("fixed settings: the first setting that changed is told with both values, also where one is missing") {
  const std::string begin = "key b: given ", end = "; a resumed run must not change it";
  CHECK(refused({{"a", 1}, {"b", 2}, {"c", 3}}, {{"a", 1}, {"b", 4}, {"c", 5}}) ==
        begin + "2, but /runs/a was made with 4" + end);
  CHECK(refused({{"a", 1}, {"b", "x"}}, {{"a", 1}}) == begin + "\"x\", but /runs/a was made with nothing" + end);
  CHECK(refused({{"b", nullptr}}, {{"a", 1}}) == begin + "null, but /runs/a was made with nothing" + end);
  CHECK(refused({{"b", 2}}, {{"b", nullptr}}) == begin + "2, but /runs/a was made with null" + end);
  CHECK(refused({{"b", 2}}, {{"b", 2.0}}) == begin + "2, but /runs/a was made with 2.0" + end);
  CHECK(refused({{"b", nullptr}}, {{"b", nullptr}, {"more", 1}}) == "nothing was thrown");
}

TEST_CASE("fixed settings: what a model or its tokenizer computes otherwise is told first, where both have noted it") {
  const io::Json now = {{"a", 2}, {"config.json", {{"x", 1}, {"y", 2}, {"z", nullptr}}}},
                 then = {{"a", 1}, {"config.json", {{"x", 3}, {"y", 4}, {"z", nullptr}}}};
  CHECK(refused(now, then) ==
        "key model_name_or_path: the model's config.json has changed since /runs/a was made: x: was 3, is 1, y: was 4, "
        "is 2; a resumed run needs the same");
  CHECK(refused({{"config.json", {{"x", 1}, {"new", 2}}}}, {{"config.json", {{"x", 1}, {"old", 3}}}}) ==
        "nothing was thrown");
  CHECK(refused({{"config.json", {{"x", 1}}}}, {{"a", 1}}) == "nothing was thrown");
  CHECK(refused({{"tokenizer", {{"merges", "1"}, {"normalizer", "2"}, {"splitting", "5"}}}},
                {{"tokenizer", {{"merges", "3"}, {"normalizer", "4"}, {"splitting", "5"}}}}) ==
        "key model_name_or_path: the tokenizer has changed since /runs/a was made: its merges differ, its normalizer "
        "differs; a resumed run needs the same");
}

TEST_CASE("fixed settings: the place in the data must be the checkpoint's, its stage as well") {
  Checkpoint checkpoint{"/runs/a", {}};
  checkpoint.state.step = 9;
  checkpoint.state.next_sample = 34;
  checkpoint.state.stage = 1;
  const auto said = [&](Index next_sample, Index stage) {
    return message_of<FormatError>([&] { expect_same_place(checkpoint, next_sample, stage); });
  };
  CHECK(said(34, 1) == "nothing was thrown");
  CHECK(said(33, 1) == "/runs/a/trainer_state.json: \"next_sample\" is 34; after step 9 of this run expected 33");
  CHECK(said(34, 2) == "/runs/a/trainer_state.json: \"stage\" is 1; after step 9 of this run expected 2");
}

TEST_CASE("fixed settings: each number and each bias of a model has a name of its own") {
  const auto settings_with = [](const io::Json& more, bool tied = false) {
    test::RandomModel shape{.family = "llama", .heads = 6, .kv_heads = 3, .head_dim = 8, .tied = tied, .more = more};
    return settings_of({}, model::Source::initial("a", test::config_json(shape), 1));
  };
  const auto fields = [](bool attention, bool mlp, bool tied) {
    const auto text = [](bool is) { return is ? "true" : "false"; };
    return concat(R"({"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8, "rms_norm_eps": 1e-06, )",
                  R"("attention_bias": )", text(attention), R"(, "mlp_bias": )", text(mlp),
                  R"(, "tie_word_embeddings": )", text(tied), "}");
  };
  const auto check = [&](const io::Json& settings, const std::string& expected) {
    check_fields(settings.at("config.json"), expected, false);
  };
  check(settings_with({{"attention_bias", true}}), fields(true, false, false));
  check(settings_with({{"mlp_bias", true}}), fields(false, true, false));
  check(settings_with(io::Json::object(), true), fields(false, false, true));
}

TEST_CASE("fixed settings: windows of a model's layers are told where there are any") {
  test::RandomModel shape{.family = "mistral", .more = {{"sliding_window", 5}}};
  const auto told = [&] { return settings_of({}, model::Source::initial("a", test::config_json(shape), 1)); };
  check_fields(told().at("config.json"), R"({"sliding_window": [5, 5]})", false);
  shape.more = {{"sliding_window", nullptr}};
  CHECK(told().at("config.json").at("sliding_window").is_null());
}

TEST_CASE("fixed settings: a run goes on with the windows that it had, or none, as of earlier versions") {
  test::RandomModel shape{.family = "mistral", .more = {{"sliding_window", 5}}};
  const auto told = [&](const io::Json& window) {
    shape.more = {{"sliding_window", window}};
    return settings_of({}, model::Source::initial("a", test::config_json(shape), 1));
  };
  const io::Json with = told(5), other = told(4), without = told(nullptr);
  const auto refusal = [](const io::Json& now, const io::Json& then) {
    Checkpoint checkpoint;
    checkpoint.folder = "c";
    checkpoint.state.settings = then;
    return test::message_of<ConfigError>([&] { expect_same_settings(now, checkpoint); });
  };
  const std::string changed =
      "key model_name_or_path: the model's config.json has changed since c was made: "
      "sliding_window: was ";
  CHECK(refusal(other, with) == changed + "[5,5], is [4,4]; a resumed run needs the same");
  CHECK(refusal(without, with) == changed + "[5,5], is null; a resumed run needs the same");
  CHECK(refusal(with, without) == changed + "null, is [5,5]; a resumed run needs the same");
  io::Json earlier = without;
  earlier["config.json"].erase("sliding_window");
  CHECK(refusal(with, earlier) == changed + "null, is [5,5]; a resumed run needs the same");
  Checkpoint checkpoint;
  checkpoint.state.settings = earlier;
  CHECK_NOTHROW(expect_same_settings(without, checkpoint));
}

}  // namespace fixed_settings_test
