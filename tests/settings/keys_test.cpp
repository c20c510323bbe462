#include "lora/settings/keys.hpp"

#include <doctest/doctest.h>

#include <cctype>
#include <cstddef>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "lora/settings/settings.hpp"

namespace keys_test {

using namespace lora;
using namespace lora::settings;

TEST_CASE("keys: each name once, each with a command and a sentence") {
  std::set<std::string_view> names;
  for (const Key& key : keys()) {
    CAPTURE(std::string(key.name));
    CHECK(names.insert(key.name).second);
    CHECK(key.commands != 0);
    CHECK_FALSE(key.help.empty());
    CHECK(find_key(key.name) == &key);
  }
  CHECK(find_key("learning_rat") == nullptr);
}

// What scripts rely on: the page of --help and the manual's pages of keys are compared with the table, not with this
// list.
TEST_CASE("keys: each has its place, commands, type, default and values, on the help page and in messages") {
  struct Row {
    std::string_view name, group, commands, type, otherwise, allowed;
  };
  const Row rows[] = {
      {"model_name_or_path", "model", "tegcmxk", "TEXT", "", "a text"},
      {"adapter_name_or_path", "model", "tegcmx", "TEXT", "none", "a text"},
      {"device", "model", "tegcd", "TEXT", "auto",
       "auto, cpu, ascend, ascend:N or ascend:N,M,... with numbers of NPUs"},
      {"device_type", "model", "tegcd", "TEXT", "auto", "a text"},
      {"full_determinism", "model", "tegc", "SWITCH", "true", "auto, true or false"},
      {"dtype", "model", "tegcm", "TEXT", "auto", "one of auto, float32, bfloat16, float16"},
      {"template", "model", "tegck", "TEXT", "auto",
       "one of auto, qwen2, qwen2_5, qwen2_5_base, qwen3, qwen3_instruct_2507, qwen3_thinking_2507, smollm2, smollm3, "
       "chatml, llama3, llama3_1, llama3_2, alpaca, none"},
      {"enable_thinking", "model", "tegck", "SWITCH", "true", "auto, true or false"},
      {"date", "model", "tegck", "TEXT", "the template's own, or today", "a day of the calendar as YYYY-MM-DD"},
      {"rope_theta", "model", "tegcmx", "NUMBER", "as the model", "a number, above 1"},
      {"no_rope_layers", "model", "tegcmx", "LAYERS", "as the model",
       "layer indices and inclusive ranges a..b, comma-separated (in JSON an array), at least 0 and at most 1e+05"},
      {"dataset", "data", "teg", "LIST", "",
       "comma-separated paths (in JSON an array of paths or of objects {path, weight, name, max_samples, num_samples, "
       "split, columns, "
       "tags})"},
      {"dataset_dir", "data", "teg", "TEXT", "data", "a folder: nothing is downloaded"},
      {"eval_dataset", "data", "t", "LIST", "none",
       "comma-separated paths (in JSON an array of paths or of objects {path, weight, name, max_samples, num_samples, "
       "split, columns, "
       "tags})"},
      {"mix_strategy", "data", "t", "TEXT", "concat", "one of concat, interleave_under, interleave_over"},
      {"interleave_probs", "data", "t", "LIST", "the files' weights, else equal shares",
       "comma-separated numbers (in JSON an array), above 0"},
      {"val_size", "data", "t", "NUMBER", "0", "a number, at least 0, whole from 1 on"},
      {"cutoff_len", "data", "te", "INT", "2048", "a whole number, at least 2"},
      {"train_on_prompt", "data", "te", "SWITCH", "false", "true or false"},
      {"train_on_last_turn_only", "data", "te", "SWITCH", "false", "true or false"},
      {"max_samples", "data", "teg", "INT", "all", "a whole number, at least 1"},
      {"max_eval_samples", "data", "t", "INT", "all", "a whole number, at least 1"},
      {"skip_empty_answers", "data", "te", "SWITCH", "false", "true or false"},
      {"shuffle", "data", "t", "SWITCH", "true", "true or false"},
      {"neftune_noise_alpha", "data", "t", "NUMBER", "no noise", "a number, above 0"},
      {"text_column", "data", "teg", "TEXT", "text", "a text"},
      {"preview", "data", "te", "INT", "0", "a whole number, at least 0"},
      {"use_curriculum", "curriculum", "t", "SWITCH", "false", "true or false"},
      {"curriculum_field", "curriculum", "t", "TEXT", "difficulty", "a text"},
      {"curriculum_stages", "curriculum", "t", "JSON", "explain first, then reasoning, then topology",
       R"([{"until": share of the steps, "mix": {label: share, ...}}, ...] with until ascending to 1 and shares that )"
       "add up to 1"},
      {"curriculum_seed", "curriculum", "t", "INT", "42", "a whole number, at least 0"},
      {"finetuning_type", "adapter", "t", "TEXT", "lora", "one of lora, full"},
      {"trainable", "adapter", "t", "LIST", "all", "a comma-separated list (in JSON an array)"},
      {"train_from_scratch", "adapter", "t", "SWITCH", "false", "true or false"},
      {"model_preset", "adapter", "t", "TEXT", "none",
       "one of tiny, small, medium, large, qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b, qwen2.5-14b, "
       "qwen2.5-32b, qwen2.5-72b, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, smollm2-135m, "
       "smollm2-360m, smollm2-1.7b"},
      {"tokenizer_name_or_path", "adapter", "t", "TEXT", "none", "a text"},
      {"lora_rank", "adapter", "t", "INT", "8", "a whole number, at least 1 and at most 65536"},
      {"lora_alpha", "adapter", "t", "NUMBER", "2 x lora_rank", "a number, above 0"},
      {"lora_dropout", "adapter", "t", "NUMBER", "0", "a number, at least 0 and below 1"},
      {"lora_target", "adapter", "t", "LIST", "all",
       "a list of all, q_proj, k_proj, v_proj, qkv_proj, o_proj, gate_proj, up_proj, gate_up_proj, down_proj"},
      {"additional_target", "adapter", "t", "LIST", "none", "a list of embed_tokens, lm_head, norms"},
      {"use_rslora", "adapter", "t", "SWITCH", "false", "auto, true or false"},
      {"loraplus_lr_ratio", "adapter", "t", "NUMBER", "1", "a number, above 0"},
      {"max_tokens_per_micro_batch", "batch", "t", "INT",
       "1024 and, with share_prefixes and without memory_limit_gib, the beginning that records usually have in common; "
       "by sequences where per_device_train_batch_size is given",
       "a whole number, at least 1"},
      {"per_device_train_batch_size", "batch", "t", "INT", "1", "a whole number, at least 1 and at most 1e+06"},
      {"share_prefixes", "batch", "teg", "SWITCH", "true, but false with lora_dropout or neftune_noise_alpha",
       "auto, true or false"},
      {"gradient_accumulation_steps", "batch", "t", "INT", "8", "a whole number, at least 1 and at most 1e+06"},
      {"step_units", "batch", "t", "INT", "1", "a whole number, at least 1 and at most 1e+06"},
      {"zero_stage", "batch", "t", "INT", "0", "a whole number, at least 0 and at most 3"},
      {"ddp_timeout", "batch", "t", "NUMBER", "1800", "a number, above 0 and at most 1e+09"},
      {"deepspeed", "batch", "t", "TEXT", "none", "a text"},
      {"per_device_eval_batch_size", "batch", "te", "INT", "8", "a whole number, at least 1 and at most 1e+06"},
      {"stages", "stages", "t", "JSON", "none",
       R"([{"name": text, "until_step" or "until_epoch": where it ends, and keys of its own}, ...] with )"
       "ascending ends, of "
       "which the last may be left to max_steps or num_train_epochs"},
      {"learning_rate", "optimizer", "t", "NUMBER", "0.0002", "a number, at least 0"},
      {"num_train_epochs", "optimizer", "t", "NUMBER", "3", "a number, above 0 and at most 1e+06"},
      {"max_steps", "optimizer", "t", "INT", "-1", "a whole number, -1 or at least 1"},
      {"lr_scheduler_type", "optimizer", "t", "TEXT", "linear", "one of linear, cosine, constant"},
      {"warmup_steps", "optimizer", "t", "INT", "0", "a whole number, at least 0"},
      {"warmup_ratio", "optimizer", "t", "NUMBER", "0", "a number, at least 0 and at most 1"},
      {"weight_decay", "optimizer", "t", "NUMBER", "0", "a number, at least 0"},
      {"adam_beta1", "optimizer", "t", "NUMBER", "0.9", "a number, at least 0 and below 1"},
      {"adam_beta2", "optimizer", "t", "NUMBER", "0.999", "a number, at least 0 and below 1"},
      {"adam_epsilon", "optimizer", "t", "NUMBER", "1e-08", "a number, at least 1.2e-38 and at most 3.4e+38"},
      {"max_grad_norm", "optimizer", "t", "NUMBER", "1", "a number, at least 0"},
      {"on_non_finite", "optimizer", "t", "TEXT", "stop", "one of stop, skip"},
      {"memory_limit_gib", "memory", "t", "NUMBER", "none", "a number, above 0"},
      {"gradient_checkpointing", "memory", "t", "SWITCH", "false", "true or false"},
      {"offload", "memory", "t", "TEXT", "none", "one of none, optimizer, params, all"},
      {"devices", "memory", "p", "INT", "1", "a whole number, at least 1 and at most 64"},
      {"nodes", "memory", "p", "INT", "1", "a whole number, at least 1 and at most 256"},
      {"device_memory_gib", "memory", "p", "NUMBER", "61, of an NPU of 64 GB", "a number, above 0"},
      {"host_memory_gib", "memory", "p", "NUMBER", "what this machine has available; with device_type no limit",
       "a number, above 0"},
      {"output_dir", "run", "tem", "TEXT", "", "a text"},
      {"seed", "run", "tgc", "INT", "42", "a whole number, at least 0"},
      {"logging_steps", "run", "t", "INT", "10", "a whole number, at least 1"},
      {"report_to", "run", "t", "LIST", "tensorboard", "a list of tensorboard, jsonl, none"},
      {"save_steps", "run", "t", "INT", "500", "a whole number, at least 0"},
      {"save_total_limit", "run", "t", "INT", "all", "a whole number, at least 1"},
      {"eval_steps", "run", "t", "INT",
       "at the end; with load_best_model_at_end or early_stopping_patience as save_steps",
       "a whole number, at least 1"},
      {"load_best_model_at_end", "run", "t", "SWITCH", "false", "true or false"},
      {"eval_predict", "run", "t", "SWITCH", "false", "true or false"},
      {"eval_on_start", "run", "t", "SWITCH", "false", "true or false"},
      {"metric_for_best_model", "run", "t", "TEXT", "eval_loss",
       "one of eval_loss, eval_token_accuracy, eval_exact_match, eval_rouge_l"},
      {"early_stopping_patience", "run", "t", "INT", "none", "a whole number, at least 1"},
      {"early_stopping_threshold", "run", "t", "NUMBER", "0", "a number, at least 0"},
      {"resume_from_checkpoint", "run", "t", "TEXT", "none",
       "auto (the newest complete one), or the path of a checkpoint"},
      {"overwrite_output_dir", "run", "tm", "SWITCH", "false", "true or false"},
      {"json", "run", "dp", "SWITCH", "false", "true or false"},
      {"all", "run", "p", "SWITCH", "false", "true or false"},
      {"full", "run", "d", "SWITCH", "false", "true or false"},
      {"threads", "run", "tegcmxd", "INT", "what the machine allows", "a whole number, at least 1 and at most 4096"},
      {"profile", "run", "t", "SWITCH", "false", "true or false"},
      {"compare_base", "evaluation", "e", "SWITCH", "false", "true or false"},
      {"compare_with", "evaluation", "e", "LIST", "none", "a comma-separated list (in JSON an array)"},
      {"predict", "evaluation", "e", "SWITCH", "false", "true or false"},
      {"prompt", "generation", "g", "TEXT", "", "a text"},
      {"output_file", "generation", "gxdr", "TEXT",
       "standard output; of doctor doctor_report.md, of report the run's report.html", "a text"},
      {"max_new_tokens", "generation", "tegc", "INT", "256; of chat what the context has room for",
       "a whole number, at least 1 and at most 1e+06"},
      {"sample", "generation", "gc", "SWITCH", "false", "true or false"},
      {"temperature", "generation", "gc", "NUMBER", "0", "a number, at least 0"},
      {"top_p", "generation", "gc", "NUMBER", "1", "a number, above 0 and at most 1"},
      {"top_k", "generation", "gc", "INT", "0", "a whole number, at least 0"},
      {"min_p", "generation", "gc", "NUMBER", "0", "a number, at least 0 and at most 1"},
      {"repetition_penalty", "generation", "gc", "NUMBER", "1", "a number, above 0"},
      {"num_return_sequences", "generation", "g", "INT", "1", "a whole number, at least 1 and at most 10000"},
      {"stream", "generation", "g", "SWITCH", "false", "true or false"},
      {"stop", "generation", "gc", "LIST", "none", "a comma-separated list (in JSON an array)"},
      {"system", "generation", "c", "TEXT", "the template's own", "a text"},
      {"max_model_len", "generation", "c", "INT", "what the model was made for",
       "a whole number, at least 2 and at most 1e+09"},
      {"jsonl", "generation", "c", "SWITCH", "false", "true or false"},
      {"max_shard_size", "merge", "tm", "TEXT", "5GB",
       "a number above 0 with KB, MB, GB, KiB, MiB or GiB, such as 5GB"},
      {"outtype", "export", "x", "TEXT", "auto", "one of auto, f32, f16, bf16, q8_0"},
      {"adapter_only", "export", "x", "SWITCH", "false", "true or false"},
      {"text", "input", "k", "TEXT", "", "a text"},
      {"file", "input", "k", "TEXT", "", "a text"},
      {"add_generation_prompt", "input", "k", "SWITCH", "false", "true or false"},
      {"runs", "input", "r", "LIST", "", "a comma-separated list (in JSON an array)"},
  };
  const std::pair<char, Command> letters[] = {{'t', train_command},    {'e', eval_command},   {'g', generate_command},
                                              {'c', chat_command},     {'m', merge_command},  {'x', export_command},
                                              {'k', tokenize_command}, {'d', doctor_command}, {'r', report_command}};
  REQUIRE(keys().size() == std::size(rows));
  for (std::size_t i = 0; i < keys().size(); ++i) {
    const Key& key = keys()[i];
    std::string commands;
    for (const auto& letter : letters)
      if (key.commands & letter.second) commands += letter.first;
    const bool plans = (key.commands & plan_command) != 0, trains = (key.commands & train_command) != 0;
    if (plans && !trains) commands += 'p';
    CHECK((plans || !trains || key.name == "preview"));  // what is planned is a training
    CHECK(key.name == rows[i].name);
    CAPTURE(std::string(key.name));
    CHECK(key.group == rows[i].group);
    CHECK(commands == rows[i].commands);
    CHECK(name_of(type_of(key)) == rows[i].type);
    CHECK(default_text(key) == rows[i].otherwise);
    CHECK(allowed(key) == rows[i].allowed);
    const std::string_view type = rows[i].type;
    CHECK(is_switch(key) == (type == "SWITCH"));
    CHECK(is_list(key) == (type == "LIST" || type == "LAYERS"));
  }
}

TEST_CASE("keys: a sentence calls other keys and their values by their names") {
  std::set<std::string_view> known = {
      "lora_A",       "lora_B",     "modules_to_save", "final_model", "evaluation_results", "generation_config",
      "dataset_info", "num_samples"};  // files, and what is in them
  for (const Key& key : keys()) {
    known.insert(key.name);
    known.insert(key.choices.begin(), key.choices.end());
  }
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (const Key& key : keys()) {
    CAPTURE(std::string(key.name));
    const std::string_view help = key.help;
    for (std::size_t at = 0; at < help.size(); ++at) {
      if (!is_part(help[at])) continue;
      std::size_t end = at;
      while (end < help.size() && is_part(help[end])) ++end;
      const std::string word(help.substr(at, end - at));
      CAPTURE(word);
      const bool shouts = word == "LOCAL_RANK";
      if (word.find('_') != word.npos && !shouts) CHECK(known.contains(word));
      at = end;
    }
    CHECK(help.find("  ") == help.npos);
    CHECK(help.back() != ' ');
    CHECK(help.back() != '.');
    const bool begins = std::isupper(static_cast<unsigned char>(help.front())) != 0 || help.front() == '.';
    CHECK((begins || help.starts_with("final_model ")));
  }
  CHECK(find_key("model_preset")->help.find("with 2, 6, 24 or 96 million parameters beside the embedding") !=
        std::string_view::npos);
}

TEST_CASE("keys: a key is given when it differs from its default") {
  Config config;
  for (const Key& key : keys()) CHECK_FALSE(is_given(config, key));
  config.per_device_train_batch_size = 1;  // what holds where nothing is given
  config.prompt = "";
  config.seed = 42;
  config.dataset = {"a"};
  for (const Key& key : keys()) {
    CAPTURE(std::string(key.name));
    CHECK(is_given(config, key) ==
          (key.name == "per_device_train_batch_size" || key.name == "prompt" || key.name == "dataset"));
  }
  reset(config, *find_key("dataset"));
  CHECK_FALSE(is_given(config, *find_key("dataset")));
}

TEST_CASE("keys: what holds where an optional key is not given is what the help page says") {
  const Config config;
  CHECK(find_key("lora_rank")->unset == std::to_string(config.rank()));
  CHECK(find_key("per_device_train_batch_size")->unset == std::to_string(config.train_batch_size()));
  CHECK(config.alpha() == 16);
  CHECK(config.sequences_per_step() == 8);
}

TEST_CASE("keys: what is allowed is said in words") {
  CHECK(allowed(*find_key("learning_rate")) == "a number, at least 0");
  CHECK(allowed(*find_key("lora_dropout")) == "a number, at least 0 and below 1");
  CHECK(allowed(*find_key("max_steps")) == "a whole number, -1 or at least 1");
  CHECK(allowed(*find_key("val_size")) == "a number, at least 0, whole from 1 on");
  CHECK(allowed(*find_key("lr_scheduler_type")) == "one of linear, cosine, constant");
  CHECK(allowed(*find_key("shuffle")) == "true or false");
}

TEST_CASE("keys: a range holds its closed ends and not its open ones") {
  const Range half_open{.low = 0, .high = 1, .high_open = true};
  CHECK(half_open.holds(0));
  CHECK_FALSE(half_open.holds(1));
  const Range above{.low = 0, .low_open = true};
  CHECK_FALSE(above.holds(0));
  CHECK(above.holds(1e-300));
  const Range steps{.low = 1, .also = -1.0};
  CHECK(steps.holds(-1));
  CHECK_FALSE(steps.holds(0));
  const Range part{.low = 0, .whole_from_one = true};
  CHECK(part.holds(0.25));
  CHECK(part.holds(3));
  CHECK_FALSE(part.holds(3.5));
  CHECK(part.holds(1));
  CHECK_FALSE(part.holds(1.5));
  const Range between{.low = -2, .high = 2, .low_open = true};
  CHECK_FALSE(between.holds(-2));
  CHECK(between.holds(2));
  CHECK(between.holds(1.5));
  CHECK_FALSE(between.holds(2.5));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double none : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()})
    CHECK_FALSE(Range{}.holds(none));
  CHECK(Range{}.holds(-1e300));
  CHECK(describe(Range{}) == "");
  CHECK(describe(Range{.high = 3}) == "at most 3");
  CHECK(describe(Range{.high = 3, .high_open = true}) == "below 3");
  CHECK(describe(between) == "above -2 and at most 2");
}

}  // namespace keys_test
