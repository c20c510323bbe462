#include "lora/settings/rules.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/settings/settings.hpp"
#include "support/key_values.hpp"
#include "support/message_of.hpp"

namespace rules_test {

using namespace lora;
using namespace lora::settings;
using test::other_value;

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void set(Config& config, std::string_view key, std::string_view text) {
  if (key == "uses_dataset_dir") {  // which is no key, but what find_datasets has found
    config.uses_dataset_dir = text == "true";
  } else {
    set_from_text(config, *find_key(key), text);
  }
}

/// What a command says to settings of the command line; empty where it takes them.
std::string said(Command command, const Pairs& pairs) {
  const std::string text = test::message_of<ConfigError>([&] {
    Config config;
    for (const auto& [key, value] : pairs) set(config, key, value);
    validate(config, command);
  });
  return text == "nothing was thrown" ? "" : text;
}

/// The least that a command needs.
Pairs base_of(Command command) {
  switch (command) {
    case train_command:
    case eval_command:
      return {{"model_name_or_path", "m"}, {"dataset", "d"}, {"output_dir", "o"}};
    case plan_command:
      return {{"model_name_or_path", "m"}, {"dataset", "d"}};
    case report_command:
      return {{"runs", "r"}};
    case generate_command:
      return {{"model_name_or_path", "m"}, {"prompt", "p"}};
    case chat_command:
      return {{"model_name_or_path", "m"}};
    case merge_command:
      return {{"model_name_or_path", "m"}, {"adapter_name_or_path", "a"}, {"output_dir", "o"}};
    case export_command:
      return {{"model_name_or_path", "m"}, {"output_file", "m.gguf"}};
    case tokenize_command:
      return {{"model_name_or_path", "m"}, {"text", "t"}};
    case doctor_command:
      break;
  }
  return {};
}

Pairs with(Pairs pairs, const Pairs& more) {
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}

}  // namespace

TEST_CASE("rules: each names keys that its commands know, and says what is allowed") {
  for (const Rule& rule : rules()) {
    CAPTURE(std::string(rule.key));
    const Key* key = find_key(rule.key);
    REQUIRE(key != nullptr);
    CHECK((rule.commands & ~key->commands) == 0);
    if (rule.kind == Rule::Kind::excludes) {
      REQUIRE(find_key(rule.other) != nullptr);
      CHECK((rule.commands & ~find_key(rule.other)->commands) == 0);
    } else {
      CHECK((rule.applies != nullptr));
      CHECK_FALSE(rule.words.empty());
    }
  }
}

TEST_CASE("rules: each is broken by settings that nothing else is wrong with, in the words that follow") {
  struct Example {
    Command command;
    Pairs pairs;  // beside the base, or in its place where it holds no model
    std::string message;
  };
  const Pairs model = {{"model_name_or_path", "m"}}, data = with(model, {{"dataset", "d"}});
  const Pairs preset = {{"dataset", "d"}, {"output_dir", "o"}, {"model_preset", "tiny"}};
  const Pairs full = with(base_of(train_command), {{"finetuning_type", "full"}});
  const std::string no_adapter = ", allowed: with finetuning_type lora: full trains no adapter";
  const std::string evaluated = ", allowed: with eval_dataset or val_size, the records to evaluate";
  const std::string greedy =
      ", which has no effect here; allowed: sample or a temperature above 0: greedy answers draw nothing";
  const std::string of_data = ", which has no effect here; allowed: with dataset: a prompt is one text";
  const std::string turns =
      ", which has no effect here; allowed: with a file of conversations: plain texts go through no template";
  const std::string weighted = R"([{"path":"a","weight":1},{"path":"b","weight":2}])";
  const std::string given_weights = R"({"path":"a","weight":1.0},{"path":"b","weight":2.0})";
  const Pairs mixed = with(base_of(train_command), {{"dataset", "a,b"}, {"mix_strategy", "interleave_under"}});
  const Pairs npu_type = {{"device", "cpu"}, {"device_type", "ascend910b3"}},
              in_order = {{"device", "cpu"}, {"full_determinism", "true"}};
  const std::string npu_alone =
      "device_type: given ascend910b3, allowed: with device ascend or auto: a CPU is no kind of NPU";
  const std::string order_alone =
      "full_determinism: given true, allowed: with device ascend or auto: on a CPU bits repeat in any case";
  const std::string twins = R"([{"path":"a","name":"n"},{"path":"b","name":"n"}])";
  const std::string no_twins =
      R"(dataset: given {"path":"a","name":"n"},{"path":"b","name":"n"}, allowed: each name once)";
  const Pairs adapter_file = with(base_of(export_command), {{"adapter_name_or_path", "a"}, {"adapter_only", ""}});
  const Example examples[] = {
      {merge_command, {}, "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {eval_command, {}, "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {generate_command,
       {},
       "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {chat_command, {}, "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {tokenize_command,
       {},
       "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {train_command, model, "dataset: given nothing, allowed: a file of records, or several"},
      {eval_command, model, "dataset: given nothing, allowed: a file of records, or several"},
      {train_command, data, "output_dir: given nothing, allowed: a folder for the results"},
      {eval_command, data, "output_dir: given nothing, allowed: a folder for the results"},
      {merge_command, model, "adapter_name_or_path: given nothing, allowed: an adapter folder"},
      {merge_command, with(model, {{"adapter_name_or_path", "a"}}),
       "output_dir: given nothing, allowed: a folder for the merged model"},
      {export_command,
       {},
       "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {export_command, model, "output_file: given nothing, allowed: a new file that ends in .gguf"},
      {export_command, with(model, {{"output_file", "m.bin"}}),
       "output_file: given m.bin, allowed: a new file that ends in .gguf"},
      {export_command, with(base_of(export_command), {{"adapter_only", ""}}),
       "adapter_only: given true, allowed: with adapter_name_or_path"},
      {export_command, with(adapter_file, {{"rope_theta", "500"}}),
       "rope_theta: given 500, allowed: without adapter_only: an adapter's file says nothing of rotary embedding"},
      {export_command, with(adapter_file, {{"no_rope_layers", "1"}}),
       "no_rope_layers: given 1, allowed: without adapter_only: an adapter's file says nothing of rotary embedding"},
      {export_command, with(adapter_file, {{"threads", "2"}}),
       "threads: given 2, which has no effect here; allowed: without adapter_only, which computes nothing"},
      {generate_command, model, "prompt: given nothing, allowed: a text, or dataset instead"},
      {tokenize_command, model, "text: given nothing, allowed: a text, or file instead"},
      {generate_command, with(data, {{"prompt", ""}}), "prompt: given together with dataset, allowed: one of the two"},
      {tokenize_command, with(model, {{"text", "t"}, {"file", "f"}}),
       "text: given together with file, allowed: one of the two"},
      {train_command, with(base_of(train_command), {{"eval_dataset", "e"}, {"val_size", "0.1"}}),
       "eval_dataset: given together with val_size, allowed: one of the two"},
      {train_command, with(base_of(train_command), {{"warmup_steps", "3"}, {"warmup_ratio", "0.1"}}),
       "warmup_steps: given together with warmup_ratio, allowed: one of the two"},
      {train_command, with(base_of(train_command), {{"train_on_prompt", ""}, {"train_on_last_turn_only", ""}}),
       "train_on_prompt: given together with train_on_last_turn_only, allowed: one of the two"},
      {eval_command, with(base_of(eval_command), {{"train_on_prompt", ""}, {"train_on_last_turn_only", ""}}),
       "train_on_prompt: given together with train_on_last_turn_only, allowed: one of the two"},
      {train_command, with(base_of(train_command), {{"device", "cpu"}, {"offload", "optimizer"}}),
       "offload: given optimizer, allowed: none with device cpu, whose memory is the host's: weights are used in place "
       "from the mapped files"},
      {train_command, with(full, {{"offload", "params"}}),
       "offload: given params, allowed: none, optimizer or all with finetuning_type full: an optimiz"
       "er on the device has the weights that train there, in float32"},
      {train_command, with(base_of(train_command), {{"eval_steps", "3"}}), "eval_steps: given 3" + evaluated},
      {train_command, with(base_of(train_command), {{"load_best_model_at_end", ""}}),
       "load_best_model_at_end: given true" + evaluated},
      {train_command,
       with(base_of(train_command), {{"load_best_model_at_end", ""}, {"val_size", "0.1"}, {"save_steps", "0"}}),
       "load_best_model_at_end: given true, allowed: with eval_steps, or save_steps above 0: there is nothing to "
       "choose from if only the end is evaluated"},
      {train_command, with(base_of(train_command), {{"device", "cpu"}, {"device_type", "ascend910b3"}}),
       "device_type: given ascend910b3, allowed: with device ascend or auto: a CPU is no kind of NPU"},
      {train_command, with(base_of(train_command), {{"device", "cpu"}, {"full_determinism", "false"}}),
       "full_determinism: given false, allowed: with device ascend or auto: on a CPU bits repeat in any case"},
      {eval_command, with(base_of(eval_command), npu_type), npu_alone},
      {generate_command, with(base_of(generate_command), npu_type), npu_alone},
      {doctor_command, npu_type, npu_alone},
      {eval_command, with(base_of(eval_command), in_order), order_alone},
      {generate_command, with(base_of(generate_command), in_order), order_alone},
      {train_command, with(base_of(train_command), {{"step_units", "9"}}),
       "step_units: given 9, allowed: at most the sequences of a step, per_device_train_batch_size x "
       "gradient_accumulation_steps"},
      {train_command, with(base_of(train_command), {{"lora_target", "q_proj,all"}}),
       "lora_target: given q_proj,all, allowed: all, or a list of projections"},
      {train_command, with(base_of(train_command), {{"report_to", "jsonl,none"}}),
       "report_to: given jsonl,none, allowed: none, or a list of tensorboard and jsonl"},
      {train_command, with(base_of(train_command), {{"eval_on_start", ""}}), "eval_on_start: given true" + evaluated},
      {train_command, with(base_of(train_command), {{"eval_predict", ""}}), "eval_predict: given true" + evaluated},
      {train_command,
       with(base_of(train_command),
            {{"load_best_model_at_end", ""}, {"val_size", "0.1"}, {"metric_for_best_model", "eval_rouge_l"}}),
       "metric_for_best_model: given eval_rouge_l, allowed: eval_loss or eval_token_accuracy, or with eval_predict, "
       "which "
       "generates the answers"},
      {train_command, with(base_of(train_command), {{"max_new_tokens", "3"}}),
       "max_new_tokens: given 3, which has no effect here; allowed: with eval_predict, which generates answers"},
      {train_command, with(base_of(train_command), {{"early_stopping_patience", "2"}}),
       "early_stopping_patience: given 2" + evaluated},
      {train_command,
       with(base_of(train_command), {{"early_stopping_patience", "2"}, {"val_size", "0.1"}, {"save_steps", "0"}}),
       "early_stopping_patience: given 2, allowed: with eval_steps, or save_steps above 0: there is nothing to stop if "
       "only the end is evaluated"},
      {train_command, with(base_of(train_command), {{"early_stopping_threshold", "0.5"}}),
       "early_stopping_threshold: given 0.5, allowed: with early_stopping_patience"},
      {train_command, with(base_of(train_command), {{"metric_for_best_model", "eval_token_accuracy"}}),
       "metric_for_best_model: given eval_token_accuracy, allowed: with load_best_model_at_end or "
       "early_stopping_patience"},
      {train_command, with(base_of(train_command), {{"train_from_scratch", ""}}),
       "train_from_scratch: given true, allowed: with finetuning_type full: an adapter can't make up for weights that "
       "nothing has trained"},
      {train_command, with(base_of(train_command), {{"model_preset", "tiny"}, {"tokenizer_name_or_path", "t"}}),
       "model_preset: given together with model_name_or_path, allowed: one of the two"},
      {train_command, preset,
       "tokenizer_name_or_path: given nothing, allowed: with model_preset, the folder that has the "
       "tokenizer"},
      {train_command, with(preset, {{"tokenizer_name_or_path", "t"}}),
       "model_preset: given tiny, allowed: with train_from_scratch: a preset has no weights"},
      {train_command, with(base_of(train_command), {{"tokenizer_name_or_path", "t"}}),
       "tokenizer_name_or_path: given t, allowed: with model_preset; a model folder has its own tokenizer"},
      {train_command,
       {{"dataset", "d"}, {"output_dir", "o"}},
       "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {train_command, with(base_of(train_command), {{"stages", R"([{"until_step": 3}])"}, {"max_steps", "5"}}),
       "max_steps: given 5, allowed: with stages, the last of which has no end of its own"},
      {train_command, with(base_of(train_command), {{"stages", R"([{"until_step": 3}])"}, {"num_train_epochs", "5"}}),
       "num_train_epochs: given 5, allowed: with stages, the last of which has no end of its own"},
      {train_command, with(base_of(train_command), {{"curriculum_field", "level"}}),
       "curriculum_field: given level, allowed: with use_curriculum"},
      {train_command, with(base_of(train_command), {{"curriculum_stages", R"([{"until": 1, "mix": {"a": 1}}])"}}),
       R"(curriculum_stages: given [{"until":1.0,"mix":{"a":1.0}}], allowed: with use_curriculum)"},
      {train_command, with(base_of(train_command), {{"curriculum_seed", "1"}}),
       "curriculum_seed: given 1, allowed: with use_curriculum"},
      {train_command, with(base_of(train_command), {{"mix_strategy", "interleave_over"}}),
       "mix_strategy: given interleave_over, allowed: concat, or with several files in dataset"},
      {train_command, with(mixed, {{"use_curriculum", ""}}),
       "mix_strategy: given interleave_under, allowed: concat with use_curriculum, which draws by class"},
      {train_command, with(mixed, {{"shuffle", "false"}}),
       "shuffle: given false, allowed: true: a mix_strategy that interleaves draws an order of its own"},
      {train_command, with(base_of(train_command), {{"interleave_probs", "1"}}),
       "interleave_probs: given 1, allowed: with mix_strategy interleave_under or interleave_over"},
      {train_command, with(mixed, {{"dataset", weighted}, {"interleave_probs", "0.5,0.5"}}),
       "interleave_probs: given 0.5,0.5, allowed: without weights in dataset, which give the shares as well"},
      {train_command, with(mixed, {{"interleave_probs", "0.25,0.25,0.5"}}),
       "interleave_probs: given 0.25,0.25,0.5, allowed: a share for each file of dataset"},
      {train_command, with(mixed, {{"interleave_probs", "0.25,0.5"}}),
       "interleave_probs: given 0.25,0.5, allowed: shares that add up to 1"},
      {train_command, with(base_of(train_command), {{"dataset", weighted}}),
       "dataset: given " + given_weights +
           ", allowed: files without a weight, or with mix_strategy interleave_under or "
           "interleave_over"},
      {train_command, with(mixed, {{"dataset", R"(["a",{"path":"b","weight":2}])"}}),
       R"(dataset: given a,{"path":"b","weight":2.0}, allowed: a weight for each file, or for none)"},
      {train_command, with(base_of(train_command), {{"dataset", twins}}), no_twins},
      {eval_command, with(base_of(eval_command), {{"dataset", twins}}), no_twins},
      {train_command, with(base_of(train_command), {{"eval_dataset", R"([{"path":"a","name":"n"}])"}}),
       R"(eval_dataset: given {"path":"a","name":"n"}, allowed: files without weight and name: all of them are one )"
       "evaluation"},
      {eval_command, with(base_of(eval_command), {{"dataset", weighted}}),
       "dataset: given " + given_weights +
           ", which has no effect here; allowed: files without a weight, which is for "
           "training"},
      {generate_command, with(model, {{"dataset", weighted}}),
       "dataset: given " + given_weights +
           ", which has no effect here; allowed: files without a weight, which is for training"},
      {generate_command, with(model, {{"dataset", R"([{"path":"a","name":"n"}])"}}),
       R"(dataset: given {"path":"a","name":"n"}, which has no effect here; allowed: files without a name)"},
      {train_command, with(base_of(train_command), {{"use_curriculum", ""}, {"shuffle", "false"}}),
       "shuffle: given false, allowed: true: use_curriculum draws an order of its own"},
      {train_command, with(base_of(train_command), {{"trainable", "norm"}}),
       "trainable: given norm, allowed: with finetuning_type full; lora_target chooses what gets an adapter"},
      {train_command, with(full, {{"adapter_name_or_path", "a"}}), "adapter_name_or_path: given a" + no_adapter},
      {train_command, with(full, {{"lora_rank", "4"}}), "lora_rank: given 4" + no_adapter},
      {train_command, with(full, {{"lora_alpha", "4"}}), "lora_alpha: given 4" + no_adapter},
      {train_command, with(full, {{"lora_dropout", "0.5"}}), "lora_dropout: given 0.5" + no_adapter},
      {train_command, with(full, {{"lora_target", "q_proj"}}), "lora_target: given q_proj" + no_adapter},
      {train_command, with(full, {{"use_rslora", "true"}}), "use_rslora: given true" + no_adapter},
      {train_command, with(full, {{"additional_target", "norms"}}), "additional_target: given norms" + no_adapter},
      {train_command, with(full, {{"loraplus_lr_ratio", "16"}}), "loraplus_lr_ratio: given 16" + no_adapter},
      {train_command, with(base_of(train_command), {{"max_shard_size", "1GB"}}),
       "max_shard_size: given 1GB, which has no effect here; allowed: with finetuning_type full, whose final_model is "
       "a "
       "whole model"},
      {train_command, with(base_of(train_command), {{"per_device_eval_batch_size", "3"}}),
       "per_device_eval_batch_size: given 3, which has no effect here; allowed: with eval_dataset or val_size, the "
       "records to evaluate"},
      {train_command, with(base_of(train_command), {{"max_eval_samples", "3"}}),
       "max_eval_samples: given 3, which has no effect here; allowed: with eval_dataset or val_size, the records to "
       "evaluate"},
      {eval_command, with(base_of(eval_command), {{"compare_base", "true"}}),
       "compare_base: given true, allowed: with adapter_name_or_path, without which the base is evaluated anyway"},
      {eval_command, with(base_of(eval_command), {{"max_new_tokens", "3"}}),
       "max_new_tokens: given 3, which has no effect here; allowed: with predict, which generates answers"},
      {doctor_command,
       {{"output_file", "r.md"}},
       "output_file: given r.md, which has no effect here; allowed: with full, which writes a report"},
      {generate_command, with(base_of(generate_command), {{"top_p", "0.9"}}), "top_p: given 0.9" + greedy},
      {generate_command, with(base_of(generate_command), {{"top_k", "9"}}), "top_k: given 9" + greedy},
      {generate_command, with(base_of(generate_command), {{"seed", "1"}}), "seed: given 1" + greedy},
      {generate_command, with(base_of(generate_command), {{"min_p", "0.1"}}), "min_p: given 0.1" + greedy},
      {chat_command, with(model, {{"top_p", "0.9"}}), "top_p: given 0.9" + greedy},
      {chat_command, with(model, {{"top_k", "9"}}), "top_k: given 9" + greedy},
      {chat_command, with(model, {{"min_p", "0.1"}}), "min_p: given 0.1" + greedy},
      {chat_command, with(model, {{"seed", "1"}}), "seed: given 1" + greedy},
      {chat_command, with(model, npu_type), npu_alone},
      {chat_command, with(model, in_order), order_alone},
      {generate_command, with(base_of(generate_command), {{"sample", ""}, {"temperature", "0"}}),
       "sample: given true, allowed: with a temperature above 0, or without one"},
      {chat_command, with(model, {{"sample", ""}, {"temperature", "0"}}),
       "sample: given true, allowed: with a temperature above 0, or without one"},
      {generate_command, with(base_of(generate_command), {{"num_return_sequences", "2"}}),
       "num_return_sequences: given 2, allowed: 1, or sample or a temperature above 0: greedy answers are all the "
       "same"},
      {generate_command, with(data, {{"stream", ""}}), "stream: given together with dataset, allowed: one of the two"},
      {generate_command, with(base_of(generate_command), {{"stream", ""}, {"output_file", "o"}}),
       "stream: given together with output_file, allowed: one of the two"},
      {generate_command,
       with(base_of(generate_command), {{"stream", ""}, {"sample", ""}, {"num_return_sequences", "2"}}),
       "stream: given together with num_return_sequences, allowed: one of the two"},
      {generate_command, with(base_of(generate_command), {{"max_samples", "1"}}), "max_samples: given 1" + of_data},
      {generate_command, with(base_of(generate_command), {{"text_column", "c"}}), "text_column: given c" + of_data},
      {generate_command, with(base_of(generate_command), {{"dataset_dir", "c"}}), "dataset_dir: given c" + of_data},
      {tokenize_command, with(base_of(tokenize_command), {{"add_generation_prompt", ""}}),
       "add_generation_prompt: given true" + turns},
      {tokenize_command, with(model, {{"file", "f.txt"}, {"template", "chatml"}}), "template: given chatml" + turns},
      {tokenize_command, with(model, {{"file", "f.txt"}, {"date", "2024-07-26"}}), "date: given 2024-07-26" + turns},
      {tokenize_command, with(model, {{"file", "f.txt.gz"}, {"date", "2024-07-26"}}), "date: given 2024-07-26" + turns},
      {tokenize_command, with(model, {{"file", "f.txt"}, {"enable_thinking", "true"}}),
       "enable_thinking: given true" + turns},
      {report_command, {}, "runs: given nothing, allowed: folders of runs"},
      {report_command,
       {{"runs", "a,b"}},
       "output_file: given nothing, allowed: with several runs, a file for the page that has them side by side"},
      {plan_command, {}, "model_name_or_path: given nothing, allowed: a model folder, a .gguf file or a model's name"},
      {plan_command,
       {{"model_preset", "tiny"}, {"dataset", "d"}},
       "tokenizer_name_or_path: given nothing, allowed: with model_preset and dataset, the folder that has the "
       "tokenizer"},
      {plan_command, with(model, {{"device", "ascend"}}),
       "device: given ascend, allowed: with device_type, the kind of NPU that the forecast is for"},
      {plan_command, with(model, {{"nodes", "2"}}),
       "nodes: given 2, allowed: with device_type, a kind of NPU: of the network between hosts nothing is known"},
      {plan_command, with(model, {{"all", ""}, {"zero_stage", "2"}}),
       "all: given together with zero_stage, allowed: one of the two"},
      {plan_command, with(model, {{"device_memory_gib", "30"}}),
       "device_memory_gib: given 30, allowed: with device_type, a kind of NPU: the memory of a CPU is the host's, "
       "host_memory_gib"},
      {plan_command, with(model, {{"offload", "optimizer"}}),
       "offload: given optimizer, allowed: none on a CPU, or with device_type, a kind of NPU"},
      {plan_command, with(model, {{"stages", R"([{"until_step": 3}])"}}),
       R"(stages: given [{"until_step":3}], allowed: with dataset, whose records the stages share out)"},
      {plan_command, with(model, {{"eval_dataset", "e"}}), "eval_dataset: given e, allowed: with dataset"},
      {plan_command, with(model, {{"val_size", "0.1"}}),
       "val_size: given 0.1, allowed: with dataset, of which it is a part"},
      {plan_command, with(model, {{"use_curriculum", ""}}),
       "use_curriculum: given true, allowed: with dataset, whose records have classes"},
      {plan_command, with(model, {{"share_prefixes", ""}}),
       "share_prefixes: given true, allowed: with dataset, whose records have beginnings in common"},
      {train_command, with(base_of(train_command), {{"share_prefixes", ""}, {"lora_dropout", "0.1"}}),
       "share_prefixes: given true, allowed: false with lora_dropout, which draws other numbers for each sequence"},
      {train_command, with(base_of(train_command), {{"share_prefixes", ""}, {"neftune_noise_alpha", "5"}}),
       "share_prefixes: given true, allowed: false with neftune_noise_alpha, which draws other numbers for each "
       "sequence"},
      {plan_command, with(model, {{"all", ""}, {"max_tokens_per_micro_batch", "512"}}),
       "all: given together with max_tokens_per_micro_batch, allowed: one of the two"},
      {plan_command, with(model, {{"all", ""}, {"gradient_checkpointing", ""}}),
       "all: given together with gradient_checkpointing, allowed: one of the two"},
      {plan_command, with(model, {{"all", ""}, {"device_type", "ascend910b3"}, {"offload", "optimizer"}}),
       "all: given together with offload, allowed: one of the two"},
  };
  std::vector<Example> all(std::begin(examples), std::end(examples));
  for (const Example& example : examples) {
    // A plan is of a training, and refuses what that does.
    Config config;
    for (const auto& [key, value] : example.pairs) set(config, key, value);
    const bool planned = std::any_of(rules().begin(), rules().end(), [&](const Rule& rule) {
      return (rule.commands & plan_command) && is_broken(rule, config, train_command);
    });
    if (example.command != train_command || !planned) continue;
    all.push_back(example);
    all.back().command = plan_command;
  }
  for (const auto& [key, value] :
       {std::pair{"max_samples", "1"}, std::pair{"train_on_prompt", "true"},
        std::pair{"train_on_last_turn_only", "true"}, std::pair{"skip_empty_answers", "true"},
        std::pair{"shuffle", "false"}, std::pair{"text_column", "c"}, std::pair{"dataset_dir", "c"},
        std::pair{"template", "chatml"}, std::pair{"date", "2024-07-26"}, std::pair{"enable_thinking", "true"}})
    all.push_back(
        {plan_command, with(model, {{key, value}}),
         concat(key, ": given ", value, ", which has no effect here; allowed: with dataset, whose records it is for")});
  for (const Command command : {train_command, eval_command, plan_command, generate_command})
    all.push_back({command,
                   with(command == generate_command ? data : base_of(command),
                        {{"uses_dataset_dir", "false"}, {"dataset_dir", "c"}}),
                   "dataset_dir: given c, which has no effect here; allowed: with names of its dataset_info.json in "
                   "dataset or eval_dataset"});
  std::set<std::pair<const Rule*, Command>> broken;  // each command of a rule is a case of its own
  for (const Example& example : all) {
    const Command command = example.command;
    const std::string& message = example.message;
    CAPTURE(message);
    CHECK(said(command, example.pairs) == "key " + message);
    Config config;
    for (const auto& [key, value] : example.pairs) set(config, key, value);
    for (const Rule& rule : rules())
      if (is_broken(rule, config, command)) broken.insert({&rule, command});
    // What a file or code says is told the same, unless it may be meant for another command.
    Config in_code = config;
    in_code.from_command_line.clear();
    const Key& key = *find_key(message.substr(0, message.find(':')));
    const bool trains = command == train_command || command == plan_command;
    const unsigned own = trains ? train_command | plan_command : command;
    const bool meant_for_another = message.find("no effect") != message.npos && (key.commands & ~own);
    const std::string told = test::message_of<ConfigError>([&] { validate(in_code, command); });
    CHECK(told == (meant_for_another ? "nothing was thrown" : "key " + message));
  }
  for (const Rule& rule : rules()) {
    CAPTURE(std::string(rule.key));
    CAPTURE(std::string(rule.words));
    for (const Command command : all_commands) {
      CAPTURE(std::string(name_of(command)));
      CHECK(broken.contains({&rule, command}) == ((rule.commands & command) != 0));
    }
  }
}

TEST_CASE("rules: settings at the edge of one are taken, and those past it by another way are refused") {
  const Pairs model = {{"model_name_or_path", "m"}}, data = with(model, {{"dataset", "d"}});
  const Pairs train = base_of(train_command), eval = base_of(eval_command), generate = base_of(generate_command);
  const Pairs full = with(train, {{"finetuning_type", "full"}});
  const Pairs held = with(train, {{"val_size", "0.1"}}), file = with(train, {{"eval_dataset", "e"}});
  const Pairs mixed = with(train, {{"dataset", "a,b"}, {"mix_strategy", "interleave_over"}});
  struct Example {
    Command command;
    Pairs pairs;
    std::string refused = {};  // the key; empty: taken
  };
  const Example examples[] = {
      {train_command, with(data, {{"preview", "1"}})},
      {eval_command, with(data, {{"preview", "1"}})},
      {train_command, with(held, {{"eval_steps", "5"}})},
      {train_command, with(file, {{"eval_steps", "5"}})},
      {train_command, with(held, {{"load_best_model_at_end", ""}})},
      {train_command, with(held, {{"load_best_model_at_end", ""}, {"save_steps", "0"}, {"eval_steps", "5"}})},
      {train_command, with(held, {{"early_stopping_patience", "1"}, {"save_steps", "0"}, {"eval_steps", "5"}})},
      {train_command, with(held, {{"early_stopping_patience", "1"}, {"early_stopping_threshold", "0.5"}})},
      {train_command, with(held, {{"early_stopping_patience", "1"}, {"metric_for_best_model", "eval_token_accuracy"}})},
      {train_command, with(held, {{"load_best_model_at_end", ""}, {"metric_for_best_model", "eval_token_accuracy"}})},
      {train_command, with(held, {{"load_best_model_at_end", ""}, {"metric_for_best_model", "eval_exact_match"}}),
       "metric_for_best_model"},
      {train_command,
       with(held,
            {{"load_best_model_at_end", ""}, {"metric_for_best_model", "eval_exact_match"}, {"eval_predict", ""}})},
      {train_command,
       with(file, {{"load_best_model_at_end", ""}, {"metric_for_best_model", "eval_rouge_l"}, {"eval_predict", ""}})},
      {train_command, with(file, {{"eval_predict", ""}, {"max_new_tokens", "3"}})},
      {train_command, with(file, {{"per_device_eval_batch_size", "3"}, {"max_eval_samples", "2"}})},
      {train_command, with(held, {{"eval_on_start", ""}})},
      {train_command, with(train, {{"step_units", "8"}})},
      {train_command, with(train, {{"step_units", "9"}, {"per_device_train_batch_size", "2"}})},
      {train_command, with(train, {{"step_units", "3"}, {"gradient_accumulation_steps", "3"}})},
      {train_command, with(train, {{"step_units", "4"}, {"gradient_accumulation_steps", "3"}}), "step_units"},
      {train_command, with(train, {{"step_units", "9"}, {"resume_from_checkpoint", "auto"}})},
      {train_command, with(train, {{"lora_target", "all"}})},
      {train_command, with(train, {{"lora_target", "all,q_proj"}}), "lora_target"},
      {train_command, with(train, {{"report_to", "none"}})},
      {train_command, with(train, {{"report_to", "jsonl,tensorboard"}})},
      {train_command, with(train, {{"report_to", "none,tensorboard"}}), "report_to"},
      {train_command, with(train, {{"offload", "params"}})},
      {train_command, with(full, {{"offload", "optimizer"}})},
      {train_command, with(full, {{"offload", "all"}})},
      {train_command, with(full, {{"offload", "params"}}), "offload"},
      {train_command, with(train, {{"offload", "params"}, {"device", "cpu"}}), "offload"},
      {train_command, with(train, {{"offload", "all"}, {"device", "cpu"}}), "offload"},
      {train_command, with(full, {{"trainable", "norm"}, {"train_from_scratch", ""}, {"max_shard_size", "1GB"}})},
      {train_command, with(train, {{"use_curriculum", ""}, {"curriculum_field", "level"}, {"curriculum_seed", "1"}})},
      {train_command, mixed},
      {train_command, with(mixed, {{"interleave_probs", "0.3333333,0.6666666"}})},
      {train_command, with(mixed, {{"interleave_probs", "0.5,0.499998"}}), "interleave_probs"},
      {train_command, with(mixed, {{"interleave_probs", "0.5,0.500002"}}), "interleave_probs"},
      {train_command, with(mixed, {{"interleave_probs", "1"}}), "interleave_probs"},
      {train_command, with(mixed, {{"shuffle", "false"}}), "shuffle"},
      {train_command, with(mixed, {{"dataset", R"([{"path":"a","weight":1},{"path":"b","weight":2}])"}})},
      {train_command, with(train, {{"dataset", R"([{"path":"a","name":"n"},{"path":"b","name":"o"}])"}})},
      {train_command, with(train, {{"dataset", R"([{"path":"a","max_samples":1},{"path":"b","max_samples":1}])"}})},
      {train_command, with(train, {{"eval_dataset", R"([{"path":"a","max_samples":1}])"}})},
      {train_command, with(train, {{"eval_dataset", R"([{"path":"a","weight":1}])"}}), "eval_dataset"},
      {train_command, with(train, {{"stages", R"([{"until_step": 3}, {}])"}, {"max_steps", "5"}})},
      {train_command, with(train, {{"stages", R"([{"until_epoch": 3}])"}, {"max_steps", "5"}}), "max_steps"},
      {eval_command, with(eval, {{"dataset", R"([{"path":"a","name":"n"}])"}})},
      {eval_command, with(eval, {{"compare_base", ""}, {"adapter_name_or_path", "a"}})},
      {eval_command, with(eval, {{"predict", ""}, {"max_new_tokens", "3"}})},
      {generate_command, with(generate, {{"max_new_tokens", "3"}})},
      {generate_command, with(data, {{"max_samples", "1"}, {"text_column", "c"}, {"dataset_dir", "c"}})},
      {generate_command, with(data, {{"uses_dataset_dir", "true"}, {"dataset_dir", "c"}})},
      {generate_command, with(generate, {{"temperature", "0.5"}, {"top_p", "0.5"}, {"top_k", "3"}, {"seed", "1"}})},
      {generate_command, with(generate, {{"sample", ""}, {"num_return_sequences", "2"}, {"min_p", "0.1"}})},
      {generate_command, with(generate, {{"top_p", "1"}, {"top_k", "0"}, {"min_p", "0"}})},
      {generate_command, with(generate, {{"stream", ""}, {"repetition_penalty", "1.1"}})},
      {chat_command, with(model, {{"temperature", "0.5"}, {"top_p", "0.5"}, {"top_k", "3"}, {"seed", "1"}})},
      {chat_command, with(model, {{"sample", ""}, {"temperature", "0.5"}, {"jsonl", ""}, {"system", "s"}})},
      {generate_command, with(generate, {{"device_type", "ascend910b"}, {"full_determinism", "false"}})},
      {tokenize_command, with(model, {{"file", "f.jsonl"}, {"template", "chatml"}, {"add_generation_prompt", ""}})},
      {tokenize_command, with(model, {{"file", "f.jsonl.gz"}, {"date", "2024-07-26"}, {"enable_thinking", "true"}})},
      {export_command,
       with(base_of(export_command), {{"rope_theta", "500"}, {"no_rope_layers", "1"}, {"threads", "2"}})},
      {export_command, with(base_of(export_command), {{"adapter_name_or_path", "a"}, {"adapter_only", ""}})},
      {doctor_command, {{"full", ""}, {"output_file", "r.md"}}},
      {plan_command, {{"model_preset", "tiny"}, {"train_from_scratch", ""}, {"finetuning_type", "full"}}},
      {plan_command,
       {{"model_preset", "tiny"}, {"train_from_scratch", ""}, {"finetuning_type", "full"}, {"dataset", "d"}},
       "tokenizer_name_or_path"},
      {plan_command, with(model, {{"device", "ascend:1"}}), "device"},
      {plan_command, with(model, {{"device", "ascend"}, {"device_type", "ascend910b3"}})},
      {plan_command, with(model, {{"device", "cpu"}})},
      {plan_command,
       with(model,
            {{"device_type", "ascend910b3"}, {"nodes", "2"}, {"device_memory_gib", "30"}, {"offload", "optimizer"}})},
      {plan_command, with(data, {{"val_size", "0.1"}, {"use_curriculum", ""}, {"stages", R"([{"until_step": 3}])"}})},
      {plan_command, with(data, {{"eval_dataset", "e"}, {"max_samples", "3"}, {"date", "2024-07-26"}})},
      {report_command, {{"runs", "r"}, {"output_file", "p.html"}}},
      {report_command, {{"runs", "r,s"}}, "output_file"},
  };
  for (const Example& example : examples) {
    std::string given(name_of(example.command));
    for (const auto& pair : example.pairs) given += " " + pair.first + " " + pair.second;
    CAPTURE(given);
    const std::string told = said(example.command, example.pairs);
    CAPTURE(told);
    CHECK((example.refused.empty() ? told.empty() : told.starts_with("key " + example.refused + ": given ")));
  }
}

TEST_CASE("rules: what stages may say is held against each of them, and the rest against the run") {
  const auto told = [](const std::string& stages, const Pairs& more) {
    return said(train_command, with(base_of(train_command), with({{"stages", stages}}, more)));
  };
  const std::string units =
      "key step_units: given 3, allowed: at most the sequences of a step, per_device_train_batch_size x "
      "gradient_accumulation_steps";
  CHECK(told(R"([{"until_step": 1}, {"gradient_accumulation_steps": 2}])", {{"step_units", "3"}}) ==
        "stage 2: " + units);
  CHECK(told(R"([{"until_step": 1, "gradient_accumulation_steps": 3}])",
             {{"step_units", "3"}, {"gradient_accumulation_steps", "2"}})
            .starts_with("key gradient_accumulation_steps: given, which has no effect"));
  Config config;
  for (const auto& pair : base_of(train_command)) set(config, pair.first, pair.second);
  config.step_units = 3;
  config.gradient_accumulation_steps = 2;
  config.stages = {{.until_step = 1, .gradient_accumulation_steps = 3}};
  CHECK_NOTHROW(validate(config, train_command));
  CHECK(told(R"([{"until_step": 1}, {"use_curriculum": true}])", {{"shuffle", "false"}}) ==
        "stage 2: key shuffle: given false, allowed: true: use_curriculum draws an order of its own");
  config.step_units = 1;
  config.shuffle = false;
  config.use_curriculum = true;
  config.stages = {{.until_step = 1, .use_curriculum = false}};
  CHECK_NOTHROW(validate(config, train_command));
  CHECK(told(R"([{"until_step": 1}])", {{"curriculum_stages", R"([{"until": 1, "mix": {"a": 1}}])"}}) ==
        R"(key curriculum_stages: given [{"until":1.0,"mix":{"a":1.0}}], allowed: with use_curriculum)");
  CHECK(told(R"([{"until_step": 1, "use_curriculum": true}])",
             {{"curriculum_stages", R"([{"until": 1, "mix": {"a": 1}}])"}}) == "");
  CHECK(told(R"([{"until_step": 1, "use_curriculum": true}])", {{"curriculum_seed", "1"}}) == "");
  // Of several ranks each is to have a unit, which is asked where they meet.
  config = {};
  for (const auto& pair : base_of(train_command)) set(config, pair.first, pair.second);
  config.step_units = 17;
  CHECK_THROWS_AS(validate(config, train_command), ConfigError);
  config.ranks = 2;
  CHECK_NOTHROW(validate(config, train_command));
  CHECK(told(R"([{"until_step": 1, "finetuning_type": "full"}])", {}) ==
        "stage 1: key finetuning_type: given full where the run has lora; allowed: the same in all stages; hint: a run "
        "of "
        "its own can go on from this one's final_model");
}

TEST_CASE("rules: a key of the command line that every stage says itself would do nothing, and is refused") {
  const std::pair<const char*, std::pair<const char*, const char*>> keys_of_stages[] = {
      {"trainable", {R"(["a"])", R"(["b"])"}},
      {"learning_rate", {"0.5", "0.25"}},
      {"lr_scheduler_type", {R"("cosine")", R"("constant")"}},
      {"warmup_steps", {"3", "4"}},
      {"warmup_ratio", {"0.5", "0.25"}},
      {"cutoff_len", {"8", "9"}},
      {"per_device_train_batch_size", {"2", "3"}},
      {"max_tokens_per_micro_batch", {"7", "8"}},
      {"gradient_accumulation_steps", {"3", "4"}},
      {"gradient_checkpointing", {"true", "false"}},
  };
  for (const auto& entry : keys_of_stages) {
    const std::string name = entry.first, one = entry.second.first, other = entry.second.second;
    CAPTURE(name);
    const Key& key = *find_key(name);
    const Pairs base = with(base_of(train_command), {{"finetuning_type", "full"}, {name, other_value(key)}});
    const std::string all = concat(R"([{"until_step": 1, ")", name, "\": ", one, "}, {\"", name, "\": ", other, "}]");
    const std::string some = concat(R"([{"until_step": 1, ")", name, "\": ", one, "}, {}]");
    CHECK(said(train_command, with(base, {{"stages", all}})) ==
          "key " + name + ": given, which has no effect here; allowed: where not every stage says otherwise");
    CHECK(said(train_command, with(base, {{"stages", some}})) == "");
  }
  // All stages have to say what the run does, so that neither can go without the other.
  CHECK(said(train_command,
             with(base_of(train_command), {{"finetuning_type", "full"},
                                           {"stages", R"([{"until_step": 1, "finetuning_type": "full"}])"}})) == "");
  // What is the default is not told apart from what is not given.
  CHECK(said(train_command,
             with(base_of(train_command),
                  {{"learning_rate", "0.0002"}, {"stages", R"([{"until_step": 1, "learning_rate": 0.5}])"}})) == "");
  const std::string own = R"([{"until": 1, "mix": {"a": 1}}])";
  const Pairs lessons = with(base_of(train_command), {{"curriculum_stages", own}});
  const std::string stage = R"([{"until_step": 1, "use_curriculum": true, "curriculum_stages": )" + own + "}]";
  CHECK(said(train_command, with(lessons, {{"stages", stage}}))
            .starts_with("key curriculum_stages: given, which has no effect here"));
  CHECK(said(train_command, with(base_of(train_command), {{"use_curriculum", ""}, {"stages", stage}}))
            .starts_with("key use_curriculum: given, which has no effect here"));
}

TEST_CASE("rules: of all pairs of keys these and no others are refused") {
  std::set<std::string> refused;
  for (const Command command : all_commands) {
    const Pairs base = base_of(command);
    REQUIRE(said(command, base) == "");
    std::vector<const Key*> free;  // that the base says nothing about
    for (const Key& key : keys()) {
      if (!(key.commands & command)) continue;
      bool in_base = false;
      for (const auto& [name, value] : base) in_base = in_base || name == key.name;
      if (!in_base) free.push_back(&key);
    }
    std::vector<const Key*> accepted;
    for (const Key* key : free) {
      const bool good = said(command, with(base, {{std::string(key->name), other_value(*key)}})).empty();
      if (good) accepted.push_back(key);
      if (!good) refused.insert(concat(name_of(command), " ", key->name));
    }
    for (const Key* one : accepted)
      for (const Key* other : accepted)
        if (one < other && !said(command, with(base, {{std::string(one->name), other_value(*one)},
                                                      {std::string(other->name), other_value(*other)}}))
                                .empty())
          refused.insert(concat(name_of(command), " ", one->name, " ", other->name));
  }
  // A key alone has no effect, or wants another; a pair excludes each other.
  std::set<std::string> expected = {
      "train adapter_name_or_path finetuning_type",
      "train curriculum_field",
      "train curriculum_seed",
      "train curriculum_stages",
      "train interleave_probs",
      "train mix_strategy",
      "train shuffle use_curriculum",
      "train stages max_steps",
      "train stages num_train_epochs",
      "train early_stopping_patience",
      "train early_stopping_threshold",
      "train eval_on_start",
      "train eval_predict",
      "train max_new_tokens",
      "train eval_dataset val_size",
      "train eval_steps",
      "train finetuning_type lora_alpha",
      "train finetuning_type lora_dropout",
      "train finetuning_type lora_rank",
      "train finetuning_type lora_target",
      "train finetuning_type use_rslora",
      "train finetuning_type additional_target",
      "train finetuning_type loraplus_lr_ratio",
      "train load_best_model_at_end",
      "train max_eval_samples",
      "train max_shard_size",
      "train metric_for_best_model",
      "train per_device_eval_batch_size",
      "train model_preset",
      "train tokenizer_name_or_path",
      "train train_from_scratch",
      "train train_on_prompt train_on_last_turn_only",
      "train trainable",
      "train warmup_steps warmup_ratio",
      "eval compare_base",
      "eval max_new_tokens",
      "eval train_on_prompt train_on_last_turn_only",
      "generate dataset",
      "generate max_samples",
      "generate min_p",
      "generate num_return_sequences",
      "generate output_file stream",
      "chat min_p",
      "chat seed",
      "chat top_k",
      "chat top_p",
      "generate seed",
      "generate dataset_dir",
      "generate text_column",
      "generate top_k",
      "generate top_p",
      "doctor output_file",
      "export adapter_only",
      "tokenize add_generation_prompt",
      "tokenize date",
      "tokenize enable_thinking",
      "tokenize file",
      "tokenize template",
      "train lora_dropout share_prefixes",
      "plan lora_dropout share_prefixes",
      "train neftune_noise_alpha share_prefixes",
      "plan neftune_noise_alpha share_prefixes",
      "plan gradient_checkpointing all",
      "plan zero_stage all",
      "plan nodes",
      "plan max_tokens_per_micro_batch all",
      "plan device",
      "plan device_memory_gib",
      "plan offload",
  };
  for (const std::string& line : std::set<std::string>(expected))
    if (line.starts_with("train ")) expected.insert("plan" + line.substr(5));
  for (const char* line : {"plan offload finetuning_type"}) expected.erase(line);
  for (const auto& line : refused) {
    CAPTURE(line);
    CHECK(expected.contains(line));
  }
  for (const auto& line : expected) {
    CAPTURE(line);
    CHECK(refused.contains(line));
  }
}

TEST_CASE("rules: of two keys that exclude each other the command line's holds, and a default excludes nothing") {
  const auto read = [](std::string_view json) {
    Config config;
    read_settings(config, io::parse_json(json, "run.json"), "run.json");
    return config;
  };
  Config config = read(R"({"dataset": "train.json"})");
  set(config, "prompt", "hello");
  CHECK(config.dataset.empty());
  CHECK(config.prompt == "hello");
  config = read(R"({"prompt": "hello", "warmup_steps": 3})");
  set(config, "dataset", "test.json");
  CHECK_FALSE(config.prompt);
  set(config, "warmup_ratio", "0");
  CHECK(config.warmup_steps == 3);
  set(config, "warmup_ratio", "0.5");
  CHECK(config.warmup_steps == 0);
  set(config, "warmup_steps", "3");
  CHECK(config.warmup_ratio == 0.5);  // both from the command line: to be refused
}

}  // namespace rules_test
