#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/settings/keys.hpp"

namespace lora::settings {

namespace detail {

/// Edit distance of two names; swapping two adjacent letters counts as one edit, and "-" equals "_".
inline std::size_t edits_between(std::string_view given, std::string_view name) {
  const auto letter = [&](std::size_t i) { return given[i] == '-' ? '_' : given[i]; };
  std::vector<std::size_t> before, above(name.size() + 1), row(name.size() + 1);
  for (std::size_t j = 0; j <= name.size(); ++j) above[j] = j;
  for (std::size_t i = 0; i < given.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < name.size(); ++j) {
      row[j + 1] = std::min({above[j] + (letter(i) == name[j] ? 0 : 1), above[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && letter(i) == name[j - 1] && letter(i - 1) == name[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
    before = above;
    above = row;
  }
  return above.back();
}

}  // namespace detail

/// The name with the smallest edit distance; empty if none is within one edit per three letters.
inline std::string_view nearest_name(std::string_view given, const std::vector<std::string_view>& names) {
  std::string_view best;
  std::size_t fewest = (given.size() + 2) / 3 + 1;
  for (const std::string_view name : names) {
    const std::size_t edits = detail::edits_between(given, name);
    if (edits >= fewest) continue;
    fewest = edits;
    best = name;
  }
  return best;
}

/// The key of these commands with the most similar name; empty if none is similar.
inline std::string_view nearest_key(std::string_view given, unsigned commands) {
  std::vector<std::string_view> names;
  for (const Key& key : keys())
    if (key.commands & commands) names.push_back(key.name);
  return nearest_name(given, names);
}

/// A key of other trainers: the key that it is called here, or what to do instead.
struct ForeignKey {
  std::string_view name;
  std::string_view here;  ///< a key, or a sentence
};

constexpr ForeignKey foreign_keys[] = {
    // the same under another name
    {"adapter", "adapter_name_or_path"},
    {"adapter_path", "adapter_name_or_path"},
    {"alpha", "lora_alpha"},
    {"base_model", "model_name_or_path"},
    {"batch_size", "per_device_train_batch_size"},
    {"block_size", "cutoff_len"},
    {"checkpoint_dir", "adapter_name_or_path"},
    {"data", "dataset"},
    {"data_path", "dataset"},
    {"data_seed", "seed"},
    {"dataset_dir", "dataset"},
    {"dataset_name", "dataset"},
    {"dataset_path", "dataset"},
    {"dropout", "lora_dropout"},
    {"epochs", "num_train_epochs"},
    {"eval_batch_size", "per_device_eval_batch_size"},
    {"eval_file", "eval_dataset"},
    {"export_dir", "output_dir"},
    {"export_size", "max_shard_size"},
    {"gradient_accumulation", "gradient_accumulation_steps"},
    {"grad_accum", "gradient_accumulation_steps"},
    {"infer_dtype", "dtype"},
    {"lora_path", "adapter_name_or_path"},
    {"lora_r", "lora_rank"},
    {"lora_target_modules", "lora_target"},
    {"lr", "learning_rate"},
    {"lr_scheduler", "lr_scheduler_type"},
    {"mask_history", "train_on_last_turn_only"},
    {"max_length", "cutoff_len, or of an answer max_new_tokens"},
    {"max_seq_len", "cutoff_len"},
    {"max_seq_length", "cutoff_len"},
    {"max_tokens", "max_new_tokens"},
    {"micro_batch_size", "per_device_train_batch_size"},
    {"model", "model_name_or_path"},
    {"model_max_length", "cutoff_len"},
    {"model_name", "model_name_or_path"},
    {"model_path", "model_name_or_path"},
    {"num_epochs", "num_train_epochs"},
    {"num_threads", "threads"},
    {"out_dir", "output_dir"},
    {"output", "output_dir"},
    {"output_path", "output_dir"},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"r", "lora_rank"},
    {"resume", "resume_from_checkpoint"},
    {"rank", "lora_rank"},
    {"seq_len", "cutoff_len"},
    {"target_modules", "lora_target"},
    {"torch_dtype", "dtype"},
    {"train_batch_size", "per_device_train_batch_size"},
    {"train_file", "dataset"},
    {"use_gradient_checkpointing", "gradient_checkpointing"},
    {"validation_file", "eval_dataset"},
    {"validation_split", "val_size"},
    // the same in another way
    {"bf16", "dtype bfloat16"},
    {"dataloader_num_workers", "not needed: threads encode the next step's records while one computes"},
    {"ddp_timeout", "not needed: a run is one process"},
    {"deepspeed", "not there: a run is one process"},
    {"do_eval", "the command eval, or eval_dataset or val_size of train"},
    {"do_predict", "predict of the command eval"},
    {"do_sample", "temperature above 0"},
    {"do_train", "the command train"},
    {"eval_strategy", "eval_steps"},
    {"evaluation_strategy", "eval_steps"},
    {"flash_attn", "not needed: attention never holds a whole matrix of scores"},
    {"fp16", "dtype bfloat16: there is no arithmetic in float16"},
    {"fp32", "dtype float32"},
    {"fsdp", "not there: a run is one process"},
    {"greater_is_better", "not needed: the best is the lowest evaluation loss"},
    {"group_by_length", "not needed: a micro-batch has no padding"},
    {"load_in_4bit", "a .gguf file as model_name_or_path"},
    {"load_in_8bit", "a .gguf file as model_name_or_path"},
    {"logging_dir", "not needed: event files are in output_dir/tensorboard"},
    {"logging_strategy", "logging_steps"},
    {"neat_packing", "not needed: sequences always lie end to end and do not see each other"},
    {"optim", "not needed: the optimizer is AdamW (adam_beta1, adam_beta2, adam_epsilon, weight_decay)"},
    {"overwrite_cache", "not needed: there is no cache of records"},
    {"packing", "not needed: sequences always lie end to end and do not see each other"},
    {"plot_loss", "not needed: the curves are in output_dir/tensorboard"},
    {"preprocessing_num_workers", "threads"},
    {"pure_bf16", "dtype bfloat16"},
    {"quantization_bit", "a .gguf file as model_name_or_path"},
    {"quantization_method", "a .gguf file as model_name_or_path"},
    {"remove_unused_columns", "not needed"},
    {"report_to", "not needed: event files are in output_dir/tensorboard"},
    {"save_only_model", "save_steps 0: final_model is the adapter alone"},
    {"save_safetensors", "not needed: files are always safetensors"},
    {"save_strategy", "save_steps"},
    {"stage", "not needed: records with answers are supervised fine-tuning, plain texts pretraining"},
    {"trust_remote_code", "not needed: no code of a model is run"},
    {"use_fast_tokenizer", "not needed: there is one tokenizer"},
    {"use_lora", "finetuning_type lora, the default"},
};

/// An unknown key, with its value as the user wrote it, if any.
struct UnknownKey {
  std::string name;
  std::string given = {};
};

namespace detail {

/// A hint at what the user may have meant, or empty.
inline std::string meant(std::string_view given, unsigned commands) {
  std::string name(given);
  std::replace(name.begin(), name.end(), '-', '_');
  if (const Key* key = find_key(name); key != nullptr && !(key->commands & commands)) {
    std::string owners;
    for (const Command command : {train_command, eval_command, generate_command, merge_command, tokenize_command})
      if (key->commands & command) owners += concat(owners.empty() ? "a key of " : ", ", name_of(command));
    return owners;
  }
  for (const ForeignKey& foreign : foreign_keys)
    if (foreign.name == name) return concat("here: ", foreign.here);
  const std::string_view nearest = nearest_key(name, commands);
  return nearest.empty() ? std::string() : concat("nearest: ", nearest);
}

}  // namespace detail

/// Reports all unknown keys, each with a hint. `page` lists the known ones.
/// Throws   ConfigError
[[noreturn]] inline void refuse_unknown(std::string_view where, std::span<const UnknownKey> unknown, unsigned commands,
                                        std::string_view page) {
  std::string list;
  for (const UnknownKey& key : unknown) {
    const std::string given = shortened(key.given, 80);
    const std::string hint =
        detail::meant(std::string_view(key.name).substr(key.name.starts_with("--") ? 2 : 0), commands);
    list += concat(list.empty() ? "" : ", ", shortened(key.name, 80));
    if (given.empty() && hint.empty()) continue;
    list += concat(" (", given.empty() ? "" : "given ", given, given.empty() || hint.empty() ? "" : "; ", hint, ")");
  }
  // Not by fail, which would leave out the middle of a long list.
  throw ConfigError(printable(
      concat(where, unknown.size() > 1 ? "unknown keys " : "unknown key ", list, "; allowed: the keys of ", page)));
}

}  // namespace lora::settings
