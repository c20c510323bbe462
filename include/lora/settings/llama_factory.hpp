#pragma once

#include <string_view>

#include "lora/settings/keys.hpp"

// Values of LLaMA-Factory's keys that say what is done here anyway, or what a key here says. Any other value is
// answered as foreign_keys.hpp has it.

namespace lora::settings {

/// A value that such a key may have: of a switch "true" or "false", of a list without values "[]", of any map "{}";
/// empty: any other.
struct ForeignValue {
  std::string_view name;
  std::string_view value = {};
  std::string_view key = {};      ///< that means it here; empty: none is needed
  std::string_view meaning = {};  ///< that key's value; where any is taken its unit, behind what the file says
  bool denies = false;            ///< it may have any other
  unsigned commands = ~0u;
};

constexpr unsigned of_training = train_command | plan_command, of_others = ~of_training;

constexpr ForeignValue llama_factory_values[] = {
    // what is computed
    {"stage", "sft"},
    {"stage", "pt"},
    {"do_train", "true"},
    {"do_train", "false", {}, {}, false, of_others},
    {"do_predict", "false"},
    {"do_predict", "true", {}, {}, false, of_others},
    {"bf16", "true", "dtype", "bfloat16"},
    {"bf16", "false", "dtype", "bfloat16", true},
    {"pure_bf16", "true", "dtype", "bfloat16"},
    {"pure_bf16", "false"},
    {"fp16", "true", "dtype", "float16"},
    {"fp16", "false", "dtype", "float16", true},
    {"template", "qwen", "template", "qwen2_5"},
    {"template", "qwen3_nothink", "template", "qwen3_instruct_2507"},
    // of families whose models carry the text themselves
    {"template", "gemma", "template", "auto"},
    {"template", "gemma2", "template", "auto"},
    {"template", "gemma3", "template", "auto"},
    {"template", "llama2", "template", "auto"},
    {"template", "ministral", "template", "auto"},
    {"template", "mistral", "template", "auto"},
    {"template", "mistral_small", "template", "auto"},
    {"template", "phi", "template", "auto"},
    {"template", "phi3", "template", "auto"},
    {"template", "phi4", "template", "auto"},
    {"template", "phi4_mini", "template", "auto"},
    {"template", "smollm", "template", "auto"},
    {"infer_dtype", {}, "dtype", {}, false, of_others},
    {"mask_history", "true", "train_on_last_turn_only", "true"},
    {"mask_history", "false", "train_on_last_turn_only", "false"},
    {"disable_shuffling", "true", "shuffle", "false"},
    {"disable_shuffling", "false", "shuffle", "true"},
    {"disable_gradient_checkpointing", "true", "gradient_checkpointing", "false"},
    {"disable_gradient_checkpointing", "false", "gradient_checkpointing", "true"},
    {"lr_scheduler_type", "constant_with_warmup", "lr_scheduler_type", "constant"},
    {"metric_for_best_model", "loss", "metric_for_best_model", "eval_loss"},
    {"optim", "adamw_torch"},
    {"optim", "adamw_torch_fused"},
    {"optim", "adamw_hf"},
    {"label_smoothing_factor", "0"},
    {"label_smoothing_factor", "0.0"},
    {"group_by_length", "false"},
    {"packing", "false"},
    {"neat_packing", "false"},
    {"streaming", "false"},
    {"use_dora", "false"},
    {"pissa_init", "false"},
    {"create_new_adapter", "false"},
    {"use_llama_pro", "false"},
    {"use_galore", "false"},
    {"use_apollo", "false"},
    {"use_badam", "false"},
    {"use_adam_mini", "false"},
    {"use_muon", "false"},
    {"use_dft_loss", "false"},
    {"shift_attn", "false"},
    {"resize_vocab", "false"},
    {"split_special_tokens", "false"},
    {"eval_on_each_dataset", "false"},
    {"ignore_pad_token_for_loss", "true"},
    {"ignore_data_skip", "false"},
    {"dataloader_drop_last", "false"},
    {"auto_find_batch_size", "false"},
    {"predict_with_generate", "false", "eval_predict", "false", false, ~eval_command},
    {"predict_with_generate", "false", "predict", "false", false, eval_command},
    {"predict_with_generate", "true", "eval_predict", "true", false, ~eval_command},
    {"predict_with_generate", "true", "predict", "true", false, eval_command},
    {"resume_from_checkpoint", "false"},
    {"resume_from_checkpoint", "true", "resume_from_checkpoint", "auto"},
    // when something is written
    {"save_strategy", "steps", "save_steps", "0", true},
    {"save_strategy", "no", "save_steps", "0"},
    {"logging_strategy", "steps"},
    {"save_only_model", "false"},
    {"save_safetensors", "true"},
    {"report_to", "[]", "report_to", "none"},
    {"use_swanlab", "false"},
    {"push_to_hub", "false"},
    {"export_dir", {}, "output_dir", {}, false, merge_command},
    {"export_size", {}, "max_shard_size", "GB", false, merge_command},
    // how it is computed, or told, which changes no result
    {"attn"},
    {"attn_impl"},
    {"attn_implementation"},
    {"compute_accuracy"},
    {"dataloader_num_workers"},
    {"dataloader_persistent_workers"},
    {"dataloader_pin_memory"},
    {"dataloader_prefetch_factor"},
    {"ddp_find_unused_parameters"},
    {"disable_tqdm"},
    {"enable_liger_kernel"},
    {"eval_accumulation_steps"},
    {"export_device"},
    {"export_legacy_format", "false"},
    {"flash_attn"},
    {"gradient_checkpointing_kwargs", "{}"},
    {"hf_hub_token"},
    {"include_num_input_tokens_seen"},
    {"infer_backend", "huggingface"},
    {"log_level"},
    {"low_cpu_mem_usage"},
    {"ms_hub_token"},
    {"om_hub_token"},
    {"overwrite_cache"},
    {"plot_loss"},
    {"preprocessing_batch_size"},
    {"preprocessing_num_workers"},
    {"print_param_status"},
    {"run_name"},  // of the services to which nothing is sent
    {"torch_compile"},
    {"trust_remote_code"},
    {"upcast_layernorm"},
    {"use_fast_tokenizer", "true"},
    {"use_flash_attn"},
    {"use_kv_cache"},
    {"use_liger_kernel"},
    {"use_reentrant_gc"},
    {"use_unsloth"},
    {"use_unsloth_gc"},
};

/// The types of model that carry the text of a family.
struct TemplateFamily {
  std::string_view name;
  std::string_view types[2];  ///< of one the second is empty
};
constexpr TemplateFamily template_families[] = {
    {"gemma", {"gemma2", "gemma3_text"}},
    {"gemma2", {"gemma2", "gemma3_text"}},
    {"gemma3", {"gemma2", "gemma3_text"}},
    {"llama2", {"llama"}},
    {"ministral", {"mistral", "llama"}},  // as which GGUF files of Mistral come
    {"mistral", {"mistral", "llama"}},
    {"mistral_small", {"mistral", "llama"}},
    {"phi", {"phi3"}},
    {"phi3", {"phi3"}},
    {"phi4", {"phi3"}},
    {"phi4_mini", {"phi3"}},
    {"smollm", {"llama"}},
};

/// A value that is answered otherwise than the key's other ones.
struct ForeignAnswer {
  std::string_view name, value, here;
};
constexpr std::string_view sends_nothing =
    "not there: nothing is sent anywhere; jsonl is for a program that sends its lines there (docs/watching.md)";
constexpr std::string_view no_preferences = "not there: train learns from answers, not from preferences";
constexpr ForeignAnswer llama_factory_answers[] = {
    {"adapter", "lora", "finetuning_type lora, the default"},
    {"adapter", "qlora", "a .gguf file as model_name_or_path"},
    {"stage", "rm", no_preferences},
    {"stage", "ppo", no_preferences},
    {"stage", "dpo", no_preferences},
    {"stage", "kto", no_preferences},
    {"do_train", "false", "not there: train and plan are of training; eval and generate are commands of their own"},
    {"do_predict", "true", "not there: train and plan are of training; the command eval is for a file that predicts"},
    {"finetuning_type", "freeze", "finetuning_type full with trainable, such as layers\\.(2[0-9])\\."},
    {"finetuning_type", "oft", "not there: LoRA and rsLoRA"},
    {"save_strategy", "epoch", "save_steps, a number of steps"},
    {"save_strategy", "best", "load_best_model_at_end"},
    {"eval_strategy", "epoch", "eval_steps, a number of steps"},
    {"eval_strategy", "no", "not there: eval_dataset and val_size evaluate, at the end if eval_steps is not given"},
    {"packing", "false",
     "not there with stage pt: texts of more than cutoff_len tokens are cut into blocks of so many"},
    {"report_to", "all", sends_nothing},
    {"report_to", "mlflow", sends_nothing},
    {"report_to", "swanlab", sends_nothing},
    {"report_to", "wandb", sends_nothing},
    {"template", "default", "not there: LLaMA-Factory's own Human: and Assistant:; auto is the model's own"},
    {"logging_strategy", "no", "not there: lines of the log are always written"},
    {"logging_strategy", "epoch", "logging_steps, a number of steps"},
};

}  // namespace lora::settings
