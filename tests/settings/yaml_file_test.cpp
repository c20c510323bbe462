#include "lora/settings/yaml_file.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "lora/settings/foreign_keys.hpp"
#include "lora/settings/llama_factory.hpp"
#include "support/message_of.hpp"

namespace yaml_file_test {

using namespace lora;
using namespace lora::settings;

TEST_CASE(
    "yaml settings: values that LLaMA-Factory's keys may have are those of a known key, and mean a value of one") {
  for (const ForeignValue& value : llama_factory_values) {
    CAPTURE(std::string(value.name));
    CAPTURE(std::string(value.value));
    const bool known = std::any_of(std::begin(foreign_keys), std::end(foreign_keys),
                                   [&](const ForeignKey& key) { return key.name == value.name; });
    CHECK((known || find_key(value.name) != nullptr));
    if (value.key.empty()) CHECK(value.meaning.empty());
    if (value.key.empty()) continue;
    REQUIRE(find_key(value.key) != nullptr);
    CHECK((value.value.empty() || !value.meaning.empty()));
    // Each value once for a command.
    CHECK(
        std::count_if(std::begin(llama_factory_values), std::end(llama_factory_values), [&](const ForeignValue& other) {
          return other.name == value.name && other.value == value.value && (other.commands & value.commands) != 0;
        }) == 1);
  }
  for (const auto& answer : llama_factory_answers) {
    CAPTURE(std::string(answer.name));
    CHECK((find_key(answer.name) != nullptr ||
           std::any_of(std::begin(foreign_keys), std::end(foreign_keys),
                       [&](const ForeignKey& key) { return key.name == answer.name; })));
  }
}

#if defined(LORA_WITH_YAML)

namespace {

Config config_of(std::string_view text, Command command = train_command) {
  Config config;
  (void)read_settings(config, io::parse_yaml(text, "r.yaml"), "r.yaml", command);
  return config;
}

std::string note_of(std::string_view text, Command command = train_command) {
  Config config;
  return read_settings(config, io::parse_yaml(text, "r.yaml"), "r.yaml", command);
}

std::string said_of(std::string_view text, Command command = train_command) {
  return test::message_of<ConfigError>([&] { (void)config_of(text, command); });
}

io::Path fixture(const std::string& name) { return io::Path(LORA_FIXTURES) / "llama_factory" / name; }

/// The note and the errors of a file, without its name.
std::string told_of(const std::string& name, Command command = train_command) {
  Config config;
  std::string text;
  try {
    text = read_settings(config, io::read_yaml(fixture(name)), "F", command);
  } catch (const FileError& error) {
    text = error.what();
  }
  return text;
}

}  // namespace

TEST_CASE("yaml settings: a value is what its key takes, so that texts stay as they are written") {
  const Config config = config_of(
      "model_name_or_path: 123\n"
      "output_dir: 1.10\n"
      "system: yes\n"
      "date: 2024-01-02\n"
      "learning_rate: 1e-4\n"
      "weight_decay: \"2e-2\"\n"
      "warmup_steps: 1_000\n"
      "max_steps: -1\n"
      "lora_rank: +16\n"
      "val_size: .25\n"
      "lora_alpha: 32\n"
      "save_steps: '50'\n"
      "gradient_checkpointing: On\n"
      "shuffle: NO\n"
      "use_rslora: auto\n"
      "prompt: |\n  one\n  two\n"
      "adapter_name_or_path: ~\n"
      "save_total_limit: null\n"
      "eval_steps:\n");
  CHECK(config.model_name_or_path == "123");
  CHECK(config.output_dir == "1.10");
  CHECK(config.system == "yes");
  CHECK(config.date == "2024-01-02");
  CHECK(config.learning_rate == 1e-4);
  CHECK(config.weight_decay == 2e-2);
  CHECK(config.warmup_steps == 1000);
  CHECK(config.lora_rank == 16);
  CHECK(config.val_size == 0.25);
  CHECK(config.lora_alpha == 32.0);
  CHECK(config.save_steps == 50);
  CHECK(config.gradient_checkpointing);
  CHECK_FALSE(config.shuffle);
  CHECK_FALSE(config.use_rslora);
  CHECK(config.prompt == "one\ntwo\n");
  CHECK(config.adapter_name_or_path.empty());
  CHECK_FALSE(config.save_total_limit);
  CHECK_FALSE(config.eval_steps);
  CHECK(config.from_command_line.empty());
}

TEST_CASE("yaml settings: lists are lists, or texts with commas as LLaMA-Factory has them") {
  CHECK(config_of("lora_target: q_proj, v_proj").lora_target == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(config_of("lora_target: [q_proj, v_proj]").lora_target == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(config_of("lora_target:\n- q_proj\n").lora_target == std::vector<std::string>{"q_proj"});
  CHECK(config_of("no_rope_layers: 3,5..6").no_rope_layers == std::vector<Index>{3, 5, 6});
  CHECK(config_of("no_rope_layers: 3").no_rope_layers == std::vector<Index>{3});
  CHECK(config_of("no_rope_layers: [3, 5..6]").no_rope_layers == std::vector<Index>{3, 5, 6});
  CHECK(config_of("interleave_probs: 0.25, 7.5e-1").interleave_probs == std::vector<double>{0.25, 0.75});
  CHECK(config_of("interleave_probs: [0.25, 75e-2]").interleave_probs == std::vector<double>{0.25, 0.75});
  CHECK(config_of("interleave_probs: 1").interleave_probs == std::vector<double>{1});
  CHECK(config_of("stop: [1, yes]").stop == std::vector<std::string>{"1", "yes"});
  const auto files = config_of("dataset:\n- a.json\n- {path: 1.json, weight: 2, name: 03, max_samples: 1_0}\n").dataset;
  REQUIRE(files.size() == 2);
  CHECK(files[0] == data::DataFile("a.json"));
  CHECK(files[1].path == "1.json");
  CHECK(files[1].weight == 2.0);
  CHECK(files[1].name == "03");
  CHECK(files[1].max_samples == 10);
  const auto named =
      config_of("dataset: {path: a, columns: {messages: 1, system: yes}, tags: {user_tag: 007}}").dataset;
  CHECK(named[0].columns.columns == data::RecordColumns::Names{{"messages", "1"}, {"system", "yes"}});
  CHECK(named[0].columns.tags == data::RecordColumns::Names{{"user_tag", "007"}});
}

TEST_CASE("yaml settings: stages and curricula are lists of maps, each field as its key has it") {
  const Config config = config_of(
      "stages:\n"
      "- name: 1\n"
      "  until_step: 5\n"
      "  learning_rate: 1e-3\n"
      "  trainable: embed,norm\n"
      "  gradient_checkpointing: yes\n"
      "- {learning_rate: '1e-4', lr_scheduler_type: cosine}\n"
      "curriculum_stages: [{until: 1, mix: {easy: 0.5, '2': 5e-1}}]\n");
  REQUIRE(config.stages.size() == 2);
  CHECK(config.stages[0].name == "1");
  CHECK(config.stages[0].until_step == 5);
  CHECK(config.stages[0].learning_rate == 1e-3);
  CHECK(config.stages[0].trainable == std::vector<std::string>{"embed", "norm"});
  CHECK(config.stages[0].gradient_checkpointing == true);
  CHECK(config.stages[1].learning_rate == 1e-4);
  CHECK(config.stages[1].lr_scheduler_type == "cosine");
  REQUIRE(config.curriculum_stages.size() == 1);
  CHECK(config.curriculum_stages[0].mix[1].first == "2");
  CHECK(config.curriculum_stages[0].mix[1].second == 0.5);
  // What a field takes follows from where it stands: labels and fields of records may be called as keys are.
  const auto mix = config_of("curriculum_stages: [{until: 1, mix: {text: 0.5, columns: 0.25, seed: .25}}]");
  CHECK(mix.curriculum_stages[0].mix[0].second == 0.5);
  CHECK(mix.curriculum_stages[0].mix[1].second == 0.25);
  const auto stage =
      config_of("stages: [{use_curriculum: yes, curriculum_stages: [{until: 1, mix: {name: 5e-1, x: 0.5}}]}]");
  CHECK(stage.stages[0].curriculum_stages->front().mix[0].second == 0.5);
  const auto names = config_of("dataset: [{path: a, columns: {prompt: 1, response: 007}}]").dataset;
  CHECK(names[0].columns.columns == data::RecordColumns::Names{{"prompt", "1"}, {"response", "007"}});
}

TEST_CASE("yaml settings: a value that its key does not take is refused with its line, as it is written") {
  CHECK(said_of("# c\nlora_rank: 010\n") ==
        "r.yaml:2: key lora_rank: given 010, allowed: a whole number, at least 1 and at most 65536");
  CHECK(said_of("lora_rank: 1.0") ==
        "r.yaml:1: key lora_rank: given 1.0, allowed: a whole number, at least 1 and at most 65536");
  CHECK(said_of("max_steps: 99999999999999999999") ==
        "r.yaml:1: key max_steps: given 99999999999999999999, allowed: a whole number, -1 or at least 1");
  CHECK(said_of("learning_rate: .inf") == "r.yaml:1: key learning_rate: given .inf, allowed: a number, at least 0");
  CHECK(said_of("learning_rate: {a: 1}") == "r.yaml:1: key learning_rate: given {a: 1}, allowed: a number, at least 0");
  CHECK(said_of("shuffle: \"true\"") == "r.yaml:1: key shuffle: given \"true\" in quotes, allowed: true or false");
  CHECK(said_of("shuffle: 1") == "r.yaml:1: key shuffle: given 1, allowed: true or false");
  CHECK(said_of("output_dir: [a]") == "r.yaml:1: key output_dir: given [a], allowed: a text");
  CHECK(said_of("output_dir: ''") == "r.yaml:1: key output_dir: given nothing, allowed: a text");
  CHECK(test::holds(said_of("stages: [{until_step: x}]"), "r.yaml:1: key stages: stage 1: \"until_step\" must be"));
  CHECK(said_of("- a\n") == "r.yaml:1:1: found a list, expected keys, each with a colon and its value");
  CHECK(said_of("some text") == "r.yaml:1:1: found some ..., expected keys, each with a colon and its value");
  CHECK(said_of("~") == "r.yaml:1:1: found null, expected keys, each with a colon and its value");
}

TEST_CASE("yaml settings: all keys that can't be honored are named at once, a line each, in the order of the file") {
  CHECK(
      said_of(
          "lr: 1e-4\nseed: x\nfoo: [1]\nlearning_rat: 2\nuse_dora: yes\nseed2: \"\"\nreport_to: [tensorboard, wandb]\n"
          "a\\b: \"c\\nd\"\n") ==
      "r.yaml:1: unknown key lr: given 1e-4; here: learning_rate\n"
      "r.yaml:2: key seed: given x, allowed: a whole number, at least 0\n"
      "r.yaml:3: unknown key foo: given [1]\n"
      "r.yaml:4: unknown key learning_rat: given 2; nearest: learning_rate\n"
      "r.yaml:5: key use_dora: given yes; here: not there: LoRA and rsLoRA\n"
      "r.yaml:6: unknown key seed2: given nothing; nearest: seed\n"
      "r.yaml:7: key report_to: given wandb, allowed: a list of tensorboard, jsonl, none; here: not there: nothing is "
      "sent anywhere; jsonl is for a program that sends its lines there (docs/watching.md)\n"
      "r.yaml:8: unknown key a\\b: given c\\nd");
  // A value that is not for every eye stays in the file.
  CHECK(said_of("swanlab_api_key: SECRET\nx_token: SECRET\n") ==
        "r.yaml:1: unknown key swanlab_api_key: here: report_to jsonl, for a program that sends its lines there\n"
        "r.yaml:2: unknown key x_token");
  CHECK(said_of(std::string(100, 'k') + ": " + std::string(1000, 'v')).size() < 250);
  CHECK(said_of("Hf_Token: SECRET\nmypassword: SECRET\nray_init_kwargs: {a: [{API_KEY: SECRET, b: 1}]}\n") ==
        "r.yaml:1: unknown key Hf_Token\nr.yaml:2: unknown key mypassword\n"
        "r.yaml:3: unknown key ray_init_kwargs: given {a: [{API_KEY: ..., b: 1}]}");
  CHECK(said_of("token SECRET") == "r.yaml:1:1: found token ..., expected keys, each with a colon and its value");
  // A key that is known is not given by null; of another nobody knows what was meant.
  CHECK_NOTHROW((void)config_of("use_dora: null\nhf_hub_token:\nseed: ~\n"));
  CHECK(
      said_of("learning_rat:\nfoo: ~\n") ==
      "r.yaml:1: unknown key learning_rat: given null; nearest: learning_rate\nr.yaml:2: unknown key foo: given null");
}

TEST_CASE("yaml settings: values of LLaMA-Factory's that say what is done anyway are taken and told") {
  CHECK(note_of("seed: 1").empty());
  CHECK(note_of("stage: sft\ndo_train: True\nsave_safetensors: true\nflash_attn: fa2\n") ==
        "r.yaml: nothing to do for stage, do_train, save_safetensors, flash_attn");
  CHECK(config_of("report_to: []").report_to == std::vector<std::string>{"none"});
  CHECK(config_of("report_to: tensorboard").reports_to("tensorboard"));
  for (const char* none : {"resize_vocab: [[true]]", "flash_attn: []", "stage: [sft]"})
    CHECK(said_of(none).starts_with("r.yaml:1: key "));
  CHECK(said_of("flash_attn: {a: 1}") ==
        "r.yaml:1: key flash_attn: given {a: 1}; here: not needed: attention never holds a whole matrix "
        "of scores");
  for (const Command command : {train_command, plan_command})
    CHECK(said_of("do_train: no", command) ==
          "r.yaml:1: key do_train: given no; here: not there: train and plan are of training; eval and generate "
          "are commands of their own");
  // One file may serve several commands.
  CHECK(note_of("do_train: true\ndo_eval: true\neval_strategy: steps\n", merge_command) ==
        "r.yaml: nothing to do for do_train, do_eval, eval_strategy");
  CHECK(note_of("do_train: false\ndo_predict: true\npredict_with_generate: true", eval_command) ==
        "r.yaml: nothing to do for do_train, do_predict; predict_with_generate true is predict true");
  CHECK(config_of("predict_with_generate: true", eval_command).predict);
  CHECK_FALSE(config_of("predict_with_generate: true", eval_command).eval_predict);
  CHECK(
      test::holds(said_of("predict_with_generate: false\npredict: true", eval_command), "is predict false here, but"));
  CHECK(config_of("resume_from_checkpoint: true").resume_from_checkpoint == "auto");
  CHECK(note_of("resume_from_checkpoint: true") ==
        "r.yaml: resume_from_checkpoint true is resume_from_checkpoint auto");
  CHECK(config_of("resume_from_checkpoint: False").resume_from_checkpoint.empty());
  CHECK(config_of("resume_from_checkpoint: out/c").resume_from_checkpoint == "out/c");
  for (const char* stage : {"rm", "ppo", "dpo", "kto"})
    CHECK(test::holds(said_of(concat("stage: ", stage)), "here: not there: train learns from answers, not from "));
  CHECK(said_of("finetuning_type: freeze") ==
        "r.yaml:1: key finetuning_type: given freeze, allowed: one of lora, full; here: finetuning_type full with "
        "trainable, such as layers\\.(2[0-9])\\.");
  CHECK(test::holds(said_of("finetuning_type: oft"), "here: not there: LoRA and rsLoRA"));
  CHECK(test::holds(said_of("logging_strategy: no"), "here: not there: lines of the log are always written"));
  CHECK(test::holds(said_of("logging_strategy: epoch"), "here: logging_steps, a number of steps"));
  CHECK(test::holds(said_of("save_strategy: best"), "here: load_best_model_at_end"));
  CHECK(test::holds(said_of("save_strategy: epoch"), "here: save_steps, a number of steps"));
}

TEST_CASE("yaml settings: what people's files say besides, and changes no result, is taken and told") {
  CHECK(note_of("run_name: a\ntorch_compile: true\neval_accumulation_steps: 2\ndisable_tqdm: false\n"
                "use_liger_kernel: true\ngradient_checkpointing_kwargs: {\"use_reentrant\": false}\n") ==
        "r.yaml: nothing to do for run_name, torch_compile, eval_accumulation_steps, disable_tqdm, use_liger_kernel, "
        "gradient_checkpointing_kwargs");
  CHECK(said_of("gradient_checkpointing_kwargs: true") ==
        "r.yaml:1: key gradient_checkpointing_kwargs: given true; here: not needed");
  CHECK(config_of("lr_scheduler_type: constant_with_warmup\nwarmup_ratio: 0.1").lr_scheduler_type == "constant");
  CHECK(note_of("lr_scheduler_type: constant_with_warmup") ==
        "r.yaml: lr_scheduler_type constant_with_warmup is lr_scheduler_type constant");
  CHECK(config_of("metric_for_best_model: loss").metric_for_best_model == "eval_loss");
  CHECK(note_of("system: S") == "r.yaml: nothing to do for system");
  CHECK(note_of("system: S", chat_command).empty());
  CHECK(test::holds(said_of("adapter: qlora"), "given qlora; here: a .gguf file as model_name_or_path"));
  CHECK(test::holds(said_of("adapter: lora"), "given lora; here: finetuning_type lora, the default"));
  CHECK(test::holds(said_of("adapter: out/a"), "given out/a; here: adapter_name_or_path"));
  // What follows from other keys, of which the command line may say others.
  CHECK(note_of("data_seed: 42") == "r.yaml: nothing to do for data_seed");
  CHECK(note_of("data_seed: 7\nseed: 7") == "r.yaml: nothing to do for data_seed");
  CHECK(said_of("data_seed: 7") == "r.yaml:1: key data_seed: given 7; here: seed");
  CHECK(note_of("greater_is_better: false") == "r.yaml: nothing to do for greater_is_better");
  CHECK(note_of("metric_for_best_model: eval_token_accuracy\ngreater_is_better: True") ==
        "r.yaml: nothing to do for greater_is_better");
  for (const char* other : {"greater_is_better: true", "metric_for_best_model: eval_rouge_l\ngreater_is_better: no"})
    CHECK(test::holds(said_of(other), "; here: not needed: metric_for_best_model says it"));
  CHECK(note_of("logging_dir: logs\nreport_to: none") == "r.yaml: nothing to do for logging_dir");
  CHECK(said_of("logging_dir: logs") ==
        "r.yaml:1: key logging_dir: given logs; here: not needed: event files are in output_dir/tensorboard");
  CHECK(note_of("do_sample: true", eval_command) == "r.yaml: nothing to do for do_sample");
  for (const char* value : {"true", "false"})
    CHECK(note_of(concat("do_sample: ", value)) == "r.yaml: nothing to do for do_sample");
  CHECK(note_of("do_sample: false", chat_command) == "r.yaml: nothing to do for do_sample");
  CHECK(note_of("temperature: 0.3\ndo_sample: true", chat_command) == "r.yaml: nothing to do for do_sample");
  CHECK(note_of("do_sample: yes\nsample: true", generate_command) == "r.yaml: nothing to do for do_sample");
  CHECK(note_of("do_sample: false\npredict: true", eval_command) == "r.yaml: nothing to do for do_sample");
  const std::string greedy = "; here: sample, or a temperature above 0";
  CHECK(said_of("do_sample: true", chat_command) == "r.yaml:1: key do_sample: given true" + greedy);
  CHECK(said_of("do_sample: false\ntemperature: 0.5", chat_command) == "r.yaml:1: key do_sample: given false" + greedy);
  CHECK(said_of("do_sample: true\npredict: true", eval_command) == "r.yaml:1: key do_sample: given true" + greedy);
  CHECK(said_of("do_sample: true\npredict_with_generate: true") == "r.yaml:1: key do_sample: given true" + greedy);
}

TEST_CASE("yaml settings: a page of LLaMA Board and a template that nobody has here are answered in one line") {
  CHECK(said_of("train.lora_rank: 8\ntop.booster: auto\ntop.template: llama3\n") ==
        "r.yaml:2: found top.booster, a field of LLaMA Board's page; expected the keys of a run, as "
        "training_args.yaml has them, which LLaMA Board writes beside such a file");
  CHECK(said_of("template: deepseekr1").ends_with("alpaca, none; auto is the model's own"));
  CHECK(said_of("template: qwen2_vl").ends_with("alpaca, none; nearest: qwen2_5"));
}

TEST_CASE("yaml settings: values of LLaMA-Factory's that a key here has set that key, unless it says otherwise") {
  CHECK(note_of("bf16: true\nmask_history: yes\nplot_loss: true\n") ==
        "r.yaml: nothing to do for plot_loss; bf16 true is dtype bfloat16; mask_history yes is train_on_last_turn_only "
        "true");
  CHECK(config_of("bf16: true").dtype == "bfloat16");
  CHECK(config_of("pure_bf16: on").dtype == "bfloat16");
  CHECK(config_of("fp16: true").dtype == "float16");
  CHECK(config_of("bf16: false\nfp16: false").dtype == "auto");
  CHECK(config_of("mask_history: true").train_on_last_turn_only);
  CHECK_FALSE(config_of("disable_shuffling: true").shuffle);
  CHECK_FALSE(config_of("disable_gradient_checkpointing: true").gradient_checkpointing);
  CHECK(config_of("disable_gradient_checkpointing: false").gradient_checkpointing);
  CHECK(config_of("template: qwen").template_name == "qwen2_5");
  CHECK(config_of("template: qwen3_nothink").template_name == "qwen3_instruct_2507");
  CHECK(config_of("template: llama3").template_name == "llama3");
  CHECK(config_of("save_strategy: no").save_steps == 0);
  CHECK(config_of("save_strategy: \"no\"").save_steps == 0);
  CHECK(config_of("save_strategy: steps").save_steps == 500);
  CHECK(config_of("predict_with_generate: true").eval_predict);
  CHECK(config_of("bf16: true\ndtype: bfloat16").dtype == "bfloat16");
  CHECK(said_of("bf16: true\ndtype: float32") ==
        "r.yaml:1: key bf16: given true, which is dtype bfloat16 here, but the file has dtype \"float32\"");
  CHECK(said_of("bf16: true\nfp16: true") ==
        "r.yaml:2: key fp16: given true, which is dtype float16 here, but the file has dtype \"bfloat16\"");
  CHECK(said_of("save_strategy: no\nsave_steps: 5") ==
        "r.yaml:1: key save_strategy: given no, which is save_steps 0 here, but the file has save_steps 5");
  // A switch that is off says something as well.
  CHECK(said_of("mask_history: false\ntrain_on_last_turn_only: true") ==
        "r.yaml:1: key mask_history: given false, which is train_on_last_turn_only false here, but the file has "
        "train_on_last_turn_only true");
  CHECK(said_of("shuffle: false\ndisable_shuffling: no") ==
        "r.yaml:2: key disable_shuffling: given no, which is shuffle true here, but the file has shuffle false");
  CHECK(said_of("predict_with_generate: false\neval_predict: true") ==
        "r.yaml:1: key predict_with_generate: given false, which is eval_predict false here, but the file has "
        "eval_predict true");
  CHECK(said_of("bf16: false\ndtype: bfloat16") ==
        "r.yaml:1: key bf16: given false, which is not dtype bfloat16 here, but the file has dtype \"bfloat16\"");
  CHECK(said_of("dtype: float16\nfp16: false") ==
        "r.yaml:2: key fp16: given false, which is not dtype float16 here, but the file has dtype \"float16\"");
  CHECK(said_of("save_strategy: steps\nsave_steps: 0") ==
        "r.yaml:1: key save_strategy: given steps, which is not save_steps 0 here, but the file has save_steps 0");
  CHECK(config_of("bf16: false\ndtype: float32").dtype == "float32");
  CHECK(config_of("bf16: false\npure_bf16: true").dtype == "bfloat16");  // which are two ways to it
  CHECK(config_of("pure_bf16: true\nbf16: false").dtype == "bfloat16");
  CHECK(config_of("save_strategy: steps\nsave_steps: 7").save_steps == 7);
  CHECK(note_of("mask_history: false\nbf16: false") == "r.yaml: nothing to do for mask_history, bf16");
}

TEST_CASE("yaml settings: when evaluations are made follows from eval_steps, eval_dataset and val_size") {
  CHECK(note_of("eval_strategy: steps\nval_size: 0.1\neval_steps: 5") == "r.yaml: nothing to do for eval_strategy");
  CHECK(note_of("evaluation_strategy: no") == "r.yaml: nothing to do for evaluation_strategy");
  CHECK(note_of("do_eval: true\nval_size: 2") == "r.yaml: nothing to do for do_eval");
  CHECK(note_of("do_eval: false") == "r.yaml: nothing to do for do_eval");
  CHECK(said_of("eval_strategy: steps\nval_size: 0.1") == "r.yaml:1: key eval_strategy: given steps; here: eval_steps");
  CHECK(said_of("eval_strategy: no\nval_size: 0.1") ==
        "r.yaml:1: key eval_strategy: given no; here: not there: eval_dataset and val_size evaluate, at the "
        "end if eval_steps is not given");
  CHECK(said_of("eval_strategy: epoch\neval_dataset: a") ==
        "r.yaml:1: key eval_strategy: given epoch; here: eval_steps, a number of steps");
  CHECK(said_of("do_eval: true") ==
        "r.yaml:1: key do_eval: given true; here: the command eval, or eval_dataset or val_size of train");
  CHECK(test::holds(said_of("do_eval: false\nval_size: 0.1"), "r.yaml:1: key do_eval: given false; here: "));
}

TEST_CASE("yaml settings: what follows from several keys is settled when what precedes the file is known") {
  Config config;
  const auto read = [&](std::string_view text, std::string_view key, std::string_view value) {
    config = {};
    return read_settings(config, io::parse_yaml(text, "r.yaml"), "r.yaml", train_command,
                         [&] { set_from_text(config, *find_key(key), value); });
  };
  CHECK(read("eval_strategy: steps\nval_size: 0.1\n", "eval_steps", "5") == "r.yaml: nothing to do for eval_strategy");
  CHECK(config.eval_steps == 5);
  CHECK(read("do_eval: true\nbf16: true\n", "val_size", "0.5") ==
        "r.yaml: nothing to do for do_eval; bf16 true is dtype bfloat16");
  CHECK(read("bf16: true\n", "dtype", "float32").empty());  // the file's word does not hold
  CHECK(config.dtype == "float32");
  CHECK(test::holds(test::message_of<FileError>([&] { (void)read("eval_strategy: no\n", "val_size", "0.1"); }),
                    "r.yaml:1: key eval_strategy: given no"));
  CHECK(test::message_of<ConfigError>([&] {
          (void)read("eval_strategy: steps\n", "seed", "x");
        }).starts_with("key seed: given x"));
  CHECK(test::message_of<FileError>([&] { (void)read("lr: 1\n", "seed", "x"); }) ==
        "r.yaml:1: unknown key lr: given 1; here: learning_rate");
}

TEST_CASE("yaml settings: interpolations are not read, and what stage calls the records stays with its place") {
  CHECK(said_of("lora_rank: 8\noutput_dir: saves/${lora_rank}\nfoo: {a: [\"${b}\"]}\nmy_key: ${oc.env:SECRET}") ==
        "r.yaml:2: key output_dir: given saves/${lora_rank}; expected the value itself: interpolations are not read\n"
        "r.yaml:3: unknown key foo: given {a: [${b}]}; expected the value itself: interpolations are not read\n"
        "r.yaml:4: unknown key my_key: expected the value itself: interpolations are not read");
  CHECK(config_of("system: costs 5$ {not more}").system == "costs 5$ {not more}");
  const Config config = config_of("seed: 1\nstage: pt");
  CHECK(config.stage == "pt");
  CHECK(config.stage_place == "r.yaml:2: ");
  CHECK(config_of("seed: 1").stage.empty());
  CHECK(note_of("stage: sft\npacking: false") == "r.yaml: nothing to do for stage, packing");
  CHECK(said_of("packing: false\nstage: pt") ==
        "r.yaml:1: key packing: given false; here: not there with stage pt: texts of more than cutoff_len tokens "
        "are cut into blocks of so many");
}

TEST_CASE("yaml settings: files as LLaMA-Factory's examples are honored, or refused with all reasons at once") {
  const std::string usual = "F: nothing to do for trust_remote_code, stage, do_train, ";
  CHECK(told_of("llama3_lora_sft.yaml") ==
        usual + "overwrite_cache, preprocessing_num_workers, plot_loss; bf16 true is dtype bfloat16");
  CHECK(told_of("qwen3_lora_sft.yaml") ==
        usual +
            "preprocessing_num_workers, dataloader_num_workers, save_only_model, plot_loss, eval_strategy; "
            "template qwen3_nothink is template qwen3_instruct_2507; bf16 true is dtype bfloat16");
  CHECK(told_of("qwen2_5_full_sft_ds3.yaml") ==
        "F: nothing to do for stage, do_train, overwrite_cache, flash_attn, enable_liger_kernel, optim, packing; "
        "template qwen is template qwen2_5; bf16 true is dtype bfloat16");
  CHECK(told_of("llama3_lora_pretrain.yaml") ==
        "F: nothing to do for stage, do_train, save_strategy, logging_strategy; fp16 true is dtype float16");
  CHECK(told_of("llama3_lora_plus_sft.yaml") ==
        "F: nothing to do for stage, do_train, disable_shuffling, neat_packing, hf_hub_token, eval_strategy, do_eval; "
        "mask_history true is train_on_last_turn_only true; bf16 true is dtype bfloat16");
  const std::string preferences = "; here: not there: train learns from answers, not from preferences";
  CHECK(told_of("llama3_lora_dpo.yaml") == "F:2: key stage: given dpo" + preferences +
                                               "\nF:7: unknown key pref_beta: given 0.1" + preferences +
                                               "\nF:8: unknown key pref_loss: given sigmoid" + preferences);
  const std::string text = "; here: not there: models and records of text alone";
  CHECK(test::holds(told_of("qwen2_5vl_lora_sft.yaml"),
                    "F:2: unknown key image_max_pixels: given 262144" + text +
                        "\nF:3: unknown key video_max_pixels: given 16384" + text +
                        "\nF:9: unknown key freeze_vision_tower: given true" + text +
                        "\nF:11: key template: given qwen2_vl, allowed: one of auto, qwen2, "));
  CHECK(told_of("llama3_freeze_sft.yaml") ==
        "F:4: key finetuning_type: given freeze, allowed: one of lora, full; here: finetuning_type full with "
        "trainable, such as layers\\.(2[0-9])\\.\n"
        "F:5: unknown key freeze_trainable_layers: given 8; here: finetuning_type full with trainable, such as "
        "layers\\.(2[0-9])\\.\n"
        "F:6: unknown key freeze_trainable_modules: given all; here: finetuning_type full with trainable\n"
        "F:7: key use_llama_pro: given true; here: not there: LoRA and rsLoRA\n"
        "F:11: key save_strategy: given epoch; here: save_steps, a number of steps\n"
        "F:12: key eval_strategy: given epoch; here: eval_steps, a number of steps");
  const std::string galore = told_of("llama3_full_galore.yaml");
  CHECK(std::count(galore.begin(), galore.end(), '\n') == 6);
  for (const char* part : {"F:4: key use_galore: given true; here: not there: the optimizer is AdamW", "\nF:5: ",
                           "\nF:6: ", "\nF:7: ", "\nF:8: unknown key galore_scale: given 2.0; here: not there: ",
                           "\nF:12: key lr_scheduler_type: given cosine_with_restarts, allowed: one of linear, ",
                           "\nF:13: key optim: given adafactor; here: not needed: the optimizer is AdamW"})
    CHECK(test::holds(galore, part));
  const std::string ray = told_of("llama3_lora_sft_ray.yaml");
  CHECK(std::count(ray.begin(), ray.end(), '\n') == 5);
  CHECK(test::holds(ray, "F:4: key dataset_dir: given REMOTE:llamafactory/demo_data, allowed: a folder: nothing is "));
  CHECK(test::holds(ray, "F:12: unknown key resources_per_worker: given {GPU: 1}; here: not needed: lora launch, "));
  const std::string qlora = told_of("llama3_lora_qlora.yaml");
  CHECK(std::count(qlora.begin(), qlora.end(), '\n') == 6);
  CHECK(qlora.find("of_nobody") == qlora.npos);
  CHECK(told_of("llama3_lora_merge.yaml") ==
        "F:6: key export_dir: given output/llama3_lora_sft; here: output_dir of the command merge\n"
        "F:7: key export_size: given 5; here: max_shard_size of the command merge, with a unit: 5GB");
  CHECK(told_of("llama3_lora_merge.yaml", merge_command) ==
        "F: nothing to do for trust_remote_code, export_size, export_device, export_legacy_format; "
        "export_dir output/llama3_lora_sft is output_dir output/llama3_lora_sft");
  CHECK(told_of("llama3_lora_predict.yaml") ==
        "F:6: key do_predict: given true; here: not there: train and plan are of training; the command eval is "
        "for a file that predicts");
  CHECK(told_of("llama3_lora_predict.yaml", eval_command) ==
        "F: nothing to do for trust_remote_code, stage, overwrite_cache, preprocessing_num_workers, "
        "dataloader_num_workers, do_predict; predict_with_generate true is predict true; eval_dataset is dataset");
  CHECK(told_of("qwen3_inference.yaml", chat_command) ==
        "F: nothing to do for infer_backend, trust_remote_code; template qwen3_nothink is template "
        "qwen3_instruct_2507");
}

TEST_CASE("yaml settings: what LLaMA-Factory's merging calls otherwise is a key of merge, and of no other command") {
  const Config merged = config_of("export_dir: 1.10\nexport_size: 2\ninfer_dtype: bfloat16", merge_command);
  CHECK(merged.output_dir == "1.10");
  CHECK(merged.max_shard_size == "2GB");
  CHECK(merged.dtype == "bfloat16");
  CHECK(config_of("export_size: 0.5", merge_command).max_shard_size == "0.5GB");
  CHECK(note_of("export_size: 2\ninfer_dtype: auto", merge_command) ==
        "r.yaml: nothing to do for infer_dtype; export_size 2 is max_shard_size 2GB");
  CHECK(config_of("export_dir: ~", merge_command).output_dir.empty());
  CHECK(said_of("export_size: 2GB\nexport_dir: [a]\ninfer_dtype: int8", merge_command) ==
        "r.yaml:1: key export_size: given 2GB; here: max_shard_size of the command merge, with a unit: 5GB\n"
        "r.yaml:2: key export_dir: given [a]; here: output_dir of the command merge\n"
        "r.yaml:3: key infer_dtype: given int8; here: dtype");
  CHECK(said_of("export_dir: a\noutput_dir: b", merge_command) ==
        "r.yaml:1: key export_dir: given a, which is output_dir a here, but the file has output_dir \"b\"");
  for (const Command command : {train_command, eval_command, export_command})
    CHECK(test::holds(said_of("export_dir: a", command), "here: output_dir of the command merge"));
  CHECK(said_of("infer_dtype: float16") == "r.yaml:1: key infer_dtype: given float16; here: dtype");
}

TEST_CASE("yaml settings: a file that predicts evaluates its eval_dataset, unless the command line has a dataset") {
  const auto of = [](std::string_view text, Command command = eval_command, std::string_view line = {}) {
    Config config;
    (void)read_settings(config, io::parse_yaml(text, "r.yaml"), "r.yaml", command, [&] {
      if (!line.empty()) set_from_text(config, *find_key("dataset"), line);
    });
    return config;
  };
  const Config predicts = of("do_predict: true\neval_dataset: a,b\n");
  CHECK(predicts.dataset == std::vector<data::DataFile>{"a", "b"});
  CHECK(predicts.eval_dataset.empty());
  CHECK(of("eval_dataset: b\ndataset: a\ndo_predict: yes\n").dataset == std::vector<data::DataFile>{"b"});
  CHECK(of("do_predict: true\ndataset: a\n").dataset == std::vector<data::DataFile>{"a"});
  CHECK(of("do_predict: false\neval_dataset: b\ndataset: a\n").dataset == std::vector<data::DataFile>{"a"});
  CHECK(of("do_predict: true\neval_dataset: b\n", eval_command, "c").dataset == std::vector<data::DataFile>{"c"});
  CHECK(of("do_predict: true\neval_dataset: b\n", generate_command).dataset.empty());
}

TEST_CASE("yaml settings: eval takes eval_dataset where nothing else says what to evaluate") {
  const auto taken = [](const std::string& text, Command command = eval_command) {
    Config config;
    const std::string note = read_settings(config, io::parse_yaml(text, "r.yaml"), "r.yaml", command);
    CHECK(test::holds(note, "eval_dataset is dataset") == (config.eval_dataset.empty() && !config.dataset.empty()));
    return config.dataset.empty() ? "" : config.dataset[0].path;
  };
  CHECK(taken("eval_dataset: e.json") == "e.json");
  CHECK(taken("eval_dataset: e.json\ndo_predict: false\nbf16: true") == "e.json");
  CHECK(taken("eval_dataset: e.json", train_command).empty());
  CHECK(taken("eval_dataset: e.json", generate_command).empty());
  Config both;
  (void)read_settings(both, io::parse_yaml("eval_dataset: e.json\ndataset: d.json", "r.yaml"), "r.yaml", eval_command);
  CHECK(both.dataset[0].path == "d.json");
  CHECK(both.eval_dataset[0].path == "e.json");
}

TEST_CASE("yaml settings: templates of families that carry their own text are the model's own, and the log says so") {
  for (const char* name : {"gemma", "gemma2", "gemma3", "llama2", "ministral", "mistral", "mistral_small", "phi",
                           "phi3", "phi4", "phi4_mini", "smollm"}) {
    CAPTURE(name);
    CHECK(config_of(concat("template: ", name)).template_name == "auto");
    CHECK(config_of(concat("template: ", name)).template_family == name);
    CHECK(config_of(concat("# this\n\ntemplate: ", name)).template_place == "r.yaml:3: ");
    CHECK(std::any_of(std::begin(template_families), std::end(template_families),
                      [&](const TemplateFamily& family) { return family.name == name; }));
    CHECK(note_of(concat("template: ", name)) ==
          concat("r.yaml: template ", name, " is template auto, the model's own"));
  }
  Config config;  // of which the command line may say another
  CHECK(read_settings(config, io::parse_yaml("template: gemma", "r.yaml"), "r.yaml", train_command, [&] {
          set_from_text(config, *find_key("template"), "chatml");
        }).empty());
  CHECK(note_of("template: chatml").empty());
  CHECK(test::holds(
      said_of("template: default"),
      "smollm2, smollm3, chatml, llama3, llama3_1, llama3_2, alpaca, none; here: not there: LLaMA-Factory's "
      "own Human: and Assistant:; auto is the model's own"));
}

TEST_CASE("yaml settings: engines that answer elsewhere, and services that keep curves, are refused with a reason") {
  CHECK(note_of("infer_backend: huggingface", chat_command) == "r.yaml: nothing to do for infer_backend");
  for (const char* engine : {"vllm", "sglang", "ktransformers"})
    CHECK(
        said_of(concat("infer_backend: ", engine), chat_command) ==
        concat("r.yaml:1: key infer_backend: given ", engine,
               "; here: not there: the program's own decoding answers; merge writes a model folder that servers take"));
  for (const char* service : {"wandb", "swanlab", "mlflow", "all"})
    CHECK(
        test::holds(said_of(concat("report_to: ", service)),
                    "; here: not there: nothing is sent anywhere; jsonl is for a program that sends its lines there"));
  CHECK(test::holds(said_of("report_to: tensorboard,wandb"), "key report_to: given wandb, allowed: "));
  CHECK(note_of("attn: fa2\nattn_impl: sdpa\nuse_flash_attn: true") ==
        "r.yaml: nothing to do for attn, attn_impl, use_flash_attn");
}

TEST_CASE("yaml settings: a file that is honored has the settings that it says") {
  Config config;
  (void)read_settings(config, io::read_yaml(fixture("llama3_lora_sft.yaml")), "F");
  CHECK(config.model_name_or_path == "meta-llama/Meta-Llama-3-8B-Instruct");
  CHECK(config.dataset == std::vector<data::DataFile>{"identity", "alpaca_en_demo"});
  CHECK(config.lora_target == std::vector<std::string>{"all"});
  CHECK(config.max_samples == 1000);
  CHECK(config.overwrite_output_dir);
  CHECK(config.learning_rate == 1e-4);
  CHECK(config.num_train_epochs == 3.0);
  CHECK(config.lr_scheduler_type == "cosine");
  CHECK(config.warmup_ratio == 0.1);
  CHECK(config.dtype == "bfloat16");
  CHECK(config.ddp_timeout == 180000000);
  CHECK_NOTHROW(validate(config, train_command));
}

#endif

}  // namespace yaml_file_test
