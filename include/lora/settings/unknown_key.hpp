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
    {"activation_checkpointing", "gradient_checkpointing"},
    {"adam_eps", "adam_epsilon"},
    {"adapter", "adapter_name_or_path"},
    {"adapter_dir", "adapter_name_or_path"},
    {"adapter_folder", "adapter_name_or_path"},
    {"adapter_path", "adapter_name_or_path"},
    {"adapters", "adapter_name_or_path"},
    {"alpha", "lora_alpha"},
    {"base_model", "model_name_or_path"},
    {"batch_size", "per_device_train_batch_size"},
    {"beta1", "adam_beta1"},
    {"beta2", "adam_beta2"},
    {"block_size", "cutoff_len"},
    {"chat_template", "template"},
    {"clip_grad", "max_grad_norm"},
    {"context_length", "cutoff_len"},
    {"conv_template", "template"},
    {"cpu_offload", "offload"},
    {"cpu_offload_params", "offload"},
    {"curriculum", "use_curriculum"},
    {"data", "dataset"},
    {"data_path", "dataset"},
    {"data_seed", "seed"},
    {"dataset_dir", "dataset"},
    {"dataset_name", "dataset"},
    {"dataset_num_proc", "threads"},
    {"dataset_path", "dataset"},
    {"dataset_size", "max_samples"},
    {"dataset_text_field", "text_column"},
    {"device_map", "device"},
    {"difficulty_field", "curriculum_field"},
    {"dropout", "lora_dropout"},
    {"early_stop", "early_stopping_patience"},
    {"early_stopping", "early_stopping_patience"},
    {"early_stopping_delta", "early_stopping_threshold"},
    {"early_stopping_min_delta", "early_stopping_threshold"},
    {"epochs", "num_train_epochs"},
    {"eps", "adam_epsilon"},
    {"eval_batch_size", "per_device_eval_batch_size"},
    {"eval_file", "eval_dataset"},
    {"eval_interval", "eval_steps"},
    {"eval_max_samples", "max_eval_samples"},
    {"eval_ratio", "val_size"},
    {"eval_strategy", "eval_steps"},
    {"evaluation_strategy", "eval_steps"},
    {"exp_name", "output_dir"},
    {"experiment_name", "output_dir"},
    {"export_dir", "output_dir"},
    {"export_size", "max_shard_size"},
    {"from_scratch", "train_from_scratch"},
    {"grad_accum", "gradient_accumulation_steps"},
    {"grad_clip", "max_grad_norm"},
    {"gradient_accumulation", "gradient_accumulation_steps"},
    {"gradient_clipping", "max_grad_norm"},
    {"infer_dtype", "dtype"},
    {"init_from_scratch", "train_from_scratch"},
    {"keep_checkpoints", "save_total_limit"},
    {"load_best_model", "load_best_model_at_end"},
    {"log_interval", "logging_steps"},
    {"logging_interval", "logging_steps"},
    {"logging_strategy", "logging_steps"},
    {"lora_dropout_p", "lora_dropout"},
    {"lora_modules", "lora_target"},
    {"lora_path", "adapter_name_or_path"},
    {"lora_r", "lora_rank"},
    {"lora_target_modules", "lora_target"},
    {"lora_weights", "adapter_name_or_path"},
    {"lr", "learning_rate"},
    {"lr_scheduler", "lr_scheduler_type"},
    {"lr_warmup_steps", "warmup_steps"},
    {"mask_history", "train_on_last_turn_only"},
    {"max_epochs", "num_train_epochs"},
    {"max_norm", "max_grad_norm"},
    {"max_predict_samples", "max_samples"},
    {"max_seq_len", "cutoff_len"},
    {"max_seq_length", "cutoff_len"},
    {"max_tokens", "max_new_tokens"},
    {"max_train_samples", "max_samples"},
    {"max_train_steps", "max_steps"},
    {"micro_batch_size", "per_device_train_batch_size"},
    {"min_delta", "early_stopping_threshold"},
    {"model", "model_name_or_path"},
    {"model_dir", "model_name_or_path"},
    {"model_id", "model_name_or_path"},
    {"model_id_or_path", "model_name_or_path"},
    {"model_max_length", "cutoff_len"},
    {"model_name", "model_name_or_path"},
    {"model_path", "model_name_or_path"},
    {"model_size", "model_preset"},
    {"n_epochs", "num_train_epochs"},
    {"neftune_alpha", "neftune_noise_alpha"},
    {"nope_layers", "no_rope_layers"},
    {"num_epochs", "num_train_epochs"},
    {"num_proc", "threads"},
    {"num_samples", "max_samples"},
    {"num_steps", "max_steps"},
    {"num_threads", "threads"},
    {"num_warmup_steps", "warmup_steps"},
    {"offload_optimizer", "offload"},
    {"offload_optimizer_device", "offload"},
    {"offload_param", "offload"},
    {"offload_param_device", "offload"},
    {"offload_params", "offload"},
    {"offload_strategy", "offload"},
    {"optimizer_offload", "offload"},
    {"out_dir", "output_dir"},
    {"output", "output_dir"},
    {"output_path", "output_dir"},
    {"patience", "early_stopping_patience"},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"predict_with_generate", "eval_predict"},
    {"preprocessing_num_workers", "threads"},
    {"prompt_template", "template"},
    {"r", "lora_rank"},
    {"random_seed", "seed"},
    {"rank", "lora_rank"},
    {"resume", "resume_from_checkpoint"},
    {"resume_from", "resume_from_checkpoint"},
    {"resume_only_model", "adapter_name_or_path"},
    {"rslora", "use_rslora"},
    {"run_name", "output_dir"},
    {"save_dir", "output_dir"},
    {"save_interval", "save_steps"},
    {"save_limit", "save_total_limit"},
    {"save_path", "output_dir"},
    {"save_strategy", "save_steps"},
    {"seq_len", "cutoff_len"},
    {"sft_type", "finetuning_type"},
    {"split_dataset_ratio", "val_size"},
    {"target", "lora_target"},
    {"target_modules", "lora_target"},
    {"text_field", "text_column"},
    {"tokenizer", "tokenizer_name_or_path"},
    {"tokenizer_name", "tokenizer_name_or_path"},
    {"tokenizer_path", "tokenizer_name_or_path"},
    {"torch_dtype", "dtype"},
    {"total_steps", "max_steps"},
    {"train_batch_size", "per_device_train_batch_size"},
    {"train_file", "dataset"},
    {"train_type", "finetuning_type"},
    {"trainable_modules", "trainable"},
    {"trainable_parameters", "trainable"},
    {"trainable_parameters_regex", "trainable"},
    {"tuner_type", "finetuning_type"},
    {"use_gradient_checkpointing", "gradient_checkpointing"},
    {"val_batch_size", "per_device_eval_batch_size"},
    {"val_dataset", "eval_dataset"},
    {"val_split", "val_size"},
    {"validation_file", "eval_dataset"},
    {"validation_split", "val_size"},
    {"warmup", "warmup_steps"},
    {"warmup_proportion", "warmup_ratio"},
    {"wd", "weight_decay"},
    // the same in another way, or not at all
    {"amp", "dtype bfloat16 or float16"},
    {"attn_impl", "not needed: attention never holds a whole matrix of scores"},
    {"attn_implementation", "not needed: attention never holds a whole matrix of scores"},
    {"auto_find_batch_size", "max_tokens_per_micro_batch or memory_limit_gib"},
    {"bf16", "dtype bfloat16"},
    {"bias", "not there: finetuning_type full with trainable"},
    {"buffer_size", "not needed: files are mapped, and the order is drawn over all records"},
    {"checkpoint_dir", "adapter_name_or_path, or after a full fine-tuning model_name_or_path"},
    {"ckpt_dir", "adapter_name_or_path, or after a full fine-tuning model_name_or_path"},
    {"compute_accuracy", "not needed: eval_token_accuracy is always logged"},
    {"create_new_adapter",
     "not there: write the adapter into the base with the command merge, and train on what comes of it"},
    {"dataloader_drop_last", "not there: the last step of an epoch takes what is left"},
    {"dataloader_num_workers", "not needed: threads encode the next step's records while one computes"},
    {"dataloader_pin_memory", "not needed"},
    {"ddp_backend", "not there: a run is one process"},
    {"ddp_find_unused_parameters", "not there: a run is one process"},
    {"ddp_timeout", "not needed: a run is one process"},
    {"deepspeed", "not there: a run is one process"},
    {"deepspeed_config", "not there: a run is one process"},
    {"disable_gradient_checkpointing", "gradient_checkpointing false"},
    {"do_eval", "the command eval, or eval_dataset or val_size of train"},
    {"do_predict", "predict of the command eval"},
    {"do_sample", "temperature above 0"},
    {"do_train", "the command train"},
    {"enable_liger_kernel", "not needed: the loss never holds the logits of all rows"},
    {"eval_accumulation_steps", "not needed"},
    {"flash_attn", "not needed: attention never holds a whole matrix of scores"},
    {"fp16", "dtype float16"},
    {"fp32", "dtype float32"},
    {"freeze_extra_modules", "finetuning_type full with trainable"},
    {"freeze_layers", "trainable, which names what is not frozen"},
    {"freeze_parameters", "trainable, which names what is not frozen"},
    {"freeze_parameters_ratio", "trainable, which names what is not frozen"},
    {"freeze_trainable_layers", "finetuning_type full with trainable, such as layers\\.(2[0-9])\\."},
    {"freeze_trainable_modules", "finetuning_type full with trainable"},
    {"fsdp", "not there: a run is one process"},
    {"fsdp_config", "not there: a run is one process"},
    {"gpu_ids", "not there: a run is one process on the machine's processors; threads"},
    {"gpus", "not there: a run is one process; threads"},
    {"greater_is_better", "not needed: metric_for_best_model says it"},
    {"group_by_length", "not needed: a micro-batch has no padding"},
    {"hub_model_id", "not there: final_model is a folder to upload"},
    {"ignore_data_skip", "not there: a resumed run goes on with its next record"},
    {"init_lora_weights", "not needed: as PEFT's default"},
    {"label_smoothing_factor", "not there"},
    {"layers_to_transform", "not there as a key; an adapter to start from may have it"},
    {"length_penalty", "not there: an answer is greedy, or drawn at a temperature above 0"},
    {"load_in_4bit", "a .gguf file as model_name_or_path"},
    {"load_in_8bit", "a .gguf file as model_name_or_path"},
    {"local_rank", "not there: a run is one process"},
    {"log_dir", "not needed: event files are in output_dir/tensorboard"},
    {"logging_dir", "not needed: event files are in output_dir/tensorboard"},
    {"logging_first_step", "logging_steps 1"},
    {"lora_bias", "not there: finetuning_type full with trainable"},
    {"lr_scheduler_kwargs", "not there"},
    {"master_addr", "not there: a run is one process"},
    {"master_port", "not there: a run is one process"},
    {"max_length", "cutoff_len, or of an answer max_new_tokens"},
    {"merge_adapter", "the command merge"},
    {"merge_lora", "the command merge"},
    {"min_lr", "not there: linear and cosine end at 0"},
    {"mixed_precision", "dtype bfloat16 or float16"},
    {"model_type", "not needed: config.json says it"},
    {"modules_to_save", "additional_target"},
    {"n_gpus", "not there: a run is one process"},
    {"neat_packing", "not needed: sequences always lie end to end and do not see each other"},
    {"nnodes", "not there: a run is one process"},
    {"no_cuda", "device cpu"},
    {"node_rank", "not there: a run is one process"},
    {"nproc_per_node", "not there: a run is one process"},
    {"num_beams", "not there: an answer is greedy, or drawn at a temperature above 0"},
    {"num_gpus", "not there: a run is one process"},
    {"num_return_sequences", "not there: an answer a prompt; another seed draws another"},
    {"num_workers", "not needed: threads encode the next step's records while one computes"},
    {"optim", "not needed: the optimizer is AdamW (adam_beta1, adam_beta2, adam_epsilon, weight_decay)"},
    {"overwrite_cache", "not needed: there is no cache of records"},
    {"packing", "not needed: sequences always lie end to end and do not see each other"},
    {"pad_to_max_length", "not needed: a micro-batch has no padding"},
    {"padding_free", "not needed: a micro-batch has no padding"},
    {"perplexity", "the command eval"},
    {"pissa_init", "not there: LoRA and rsLoRA"},
    {"plot_loss", "not needed: the curves are in output_dir/tensorboard"},
    {"precision", "dtype float32, bfloat16 or float16"},
    {"pure_bf16", "dtype bfloat16"},
    {"push_to_hub", "not there: final_model is a folder to upload"},
    {"quant_bits", "a .gguf file as model_name_or_path"},
    {"quant_method", "a .gguf file as model_name_or_path"},
    {"quantization_bit", "a .gguf file as model_name_or_path"},
    {"quantization_method", "a .gguf file as model_name_or_path"},
    {"remove_unused_columns", "not needed"},
    {"repetition_penalty", "not there: temperature, top_p, top_k"},
    {"report_to", "not needed: event files are in output_dir/tensorboard"},
    {"rope_scaling", "not there as a key: config.json's holds"},
    {"save_only_model", "save_steps 0: final_model is the adapter alone"},
    {"save_safetensors", "not needed: files are always safetensors"},
    {"stage",
     "not needed: records with answers are supervised fine-tuning, plain texts pretraining; stages makes parts of a "
     "run"},
    {"streaming", "not needed: files are mapped, and only the places of their records are in memory"},
    {"system", "a system turn in the records"},
    {"task_type", "not needed: the model predicts the next token"},
    {"tensorboard_dir", "not needed: event files are in output_dir/tensorboard"},
    {"tf32", "dtype float32 or bfloat16"},
    {"tokenized_path", "not needed: records are tokenized as they are used"},
    {"train_split", "val_size: the part that is kept back"},
    {"train_stage", "stages, or a run of its own for each"},
    {"truncation_strategy", "not needed: cutoff_len cuts longer records off"},
    {"trust_remote_code", "not needed: no code of a model is run"},
    {"two_stage", "stages, as in examples/two_stage.json"},
    {"upcast_layernorm", "not needed: sums of norms are in float32"},
    {"use_cpu", "device cpu"},
    {"use_dora", "not there: LoRA and rsLoRA"},
    {"use_fast_tokenizer", "not needed: there is one tokenizer"},
    {"use_flash_attn", "not needed: attention never holds a whole matrix of scores"},
    {"use_liger_kernel", "not needed: the loss never holds the logits of all rows"},
    {"use_lora", "finetuning_type lora, the default"},
    {"use_swanlab", "not there: event files are in output_dir/tensorboard, lines in trainer_log.jsonl"},
    {"use_tensorboard", "not needed: event files are in output_dir/tensorboard"},
    {"use_unsloth", "not needed"},
    {"use_wandb", "not there: event files are in output_dir/tensorboard, lines in trainer_log.jsonl"},
    {"validation_split_percentage", "val_size, as a fraction: 5 % are 0.05"},
    {"vocab_size", "not needed: config.json says it, and model_preset has Qwen3's"},
    {"wandb", "not there: event files are in output_dir/tensorboard, lines in trainer_log.jsonl"},
    {"wandb_project", "not there: event files are in output_dir/tensorboard, lines in trainer_log.jsonl"},
    {"world_size", "not there: a run is one process"},
    {"zero_stage", "not there: a run is one process; memory_limit_gib, gradient_checkpointing, offload"},
};

/// A command of other programs, and what does its work here.
struct ForeignCommand {
  std::string_view name;
  std::string_view here;  ///< a sentence
};

constexpr ForeignCommand foreign_commands[] = {
    {"chat", "not there: generate answers a prompt, or every record of a file"},
    {"deploy", "not there: merge writes a model folder that servers of such models take"},
    {"dpo", "not there: train learns from answers, not from preferences"},
    {"evaluate", "eval"},
    {"export", "merge, which writes base and adapter as one model folder"},
    {"finetune", "train"},
    {"fit", "train"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"predict", "eval with predict, which scores the answers, or generate"},
    {"pretrain", "train, with finetuning_type full, on records of plain text"},
    {"pt", "train, on records of plain text"},
    {"rlhf", "not there: train learns from answers, not from preferences"},
    {"serve", "not there: merge writes a model folder that servers of such models take"},
    {"sft", "train"},
    {"test", "eval"},
    {"webchat", "not there: generate answers a prompt, or every record of a file"},
    {"webui", "not there: the keys of a run stand in a file, for --config"},
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
    for (const Command command : settings::all_commands)
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
