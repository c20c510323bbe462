#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/records/data_file.hpp"
#include "lora/data/sampling/curriculum.hpp"

namespace lora::settings {

/// A stage of a training run. What it does not say is the run's.
struct StageSettings {
  std::string name{};                            ///< in messages and the log
  std::optional<Index> until_step{};             ///< steps of the whole run after which it ends; or
  std::optional<double> until_epoch{};           ///< epochs of the whole run
  std::optional<std::string> finetuning_type{};  ///< the run's: all stages train the same
  std::optional<std::vector<std::string>> trainable{};
  std::optional<double> learning_rate{};
  std::optional<std::string> lr_scheduler_type{};
  std::optional<Index> warmup_steps{};
  std::optional<double> warmup_ratio{};
  std::optional<Index> cutoff_len{};
  std::optional<Index> per_device_train_batch_size{};
  std::optional<Index> max_tokens_per_micro_batch{};
  std::optional<Index> gradient_accumulation_steps{};
  std::optional<bool> gradient_checkpointing{};
  std::optional<bool> use_curriculum{};
  std::optional<std::vector<data::CurriculumStage>> curriculum_stages{};

  bool ends() const { return until_step.has_value() || until_epoch.has_value(); }
  bool operator==(const StageSettings&) const = default;
};

/// The settings of all commands, flat as in the user's file. keys.hpp says what a key means, which values it takes and
/// which commands have it.
///
/// A key counts as given if it differs from its default, however it was set. An empty text, list or optional is "not
/// given": the model, an adapter to start from, the template, the machine or another key then decides.
struct Config {
  // model
  std::string model_name_or_path;
  std::string adapter_name_or_path;
  std::string device = "auto";
  std::string device_type = "auto";
  std::optional<bool> full_determinism;
  std::string dtype = "auto";
  std::string template_name = "auto";  // key: template
  std::string template_family;         // no key: whose text auto must be, as a file of LLaMA-Factory's calls it
  std::string template_place;          // no key: where it does
  std::optional<bool> enable_thinking;
  std::string date;  // YYYY-MM-DD
  std::optional<double> rope_theta;
  std::vector<Index> no_rope_layers;

  // data
  std::vector<data::DataFile> dataset;  // paths, or files of which a part is taken
  std::string dataset_dir = "data";     // of dataset_info.json
  std::vector<data::DataFile> eval_dataset;
  std::optional<bool> uses_dataset_dir;  // no key: whether a name was found there; nothing: not looked for yet
  std::string stage;                     // no key: pt or sft, as a file of LLaMA-Factory's calls the records
  std::string stage_place;               // no key: where it does
  std::string mix_strategy = "concat";
  std::vector<double> interleave_probs;
  double val_size = 0;  // below 1 a fraction, else a count
  Index cutoff_len = 2048;
  bool train_on_prompt = false;
  bool train_on_last_turn_only = false;
  std::optional<Index> max_samples;
  std::optional<Index> max_eval_samples;
  bool skip_empty_answers = false;
  bool shuffle = true;
  std::string text_column = "text";
  std::optional<double> neftune_noise_alpha;
  Index preview = 0;

  // curriculum
  bool use_curriculum = false;
  Index curriculum_seed = 42;
  std::string curriculum_field = "difficulty";
  std::vector<data::CurriculumStage> curriculum_stages = data::easy_to_hard();

  // what trains
  std::string finetuning_type = "lora";
  std::vector<std::string> trainable;  // regular expressions
  bool train_from_scratch = false;
  std::string model_preset;
  std::string tokenizer_name_or_path;
  std::optional<Index> lora_rank;
  std::optional<double> lora_alpha;
  double lora_dropout = 0;
  std::vector<std::string> lora_target;
  std::vector<std::string> additional_target;
  std::optional<bool> use_rslora;
  std::optional<double> loraplus_lr_ratio;

  // batch
  std::optional<Index> per_device_train_batch_size;
  std::optional<Index> max_tokens_per_micro_batch;
  std::optional<bool> share_prefixes;
  Index gradient_accumulation_steps = 8;
  Index step_units = 1;
  Index zero_stage = 0;
  double ddp_timeout = 1800;  // seconds
  std::string deepspeed;      // a file
  Index ranks = 1;            // no key: processes whose sequences a step has
  Index per_device_eval_batch_size = 8;

  // stages: one after the other; none: the run is one stage
  std::vector<StageSettings> stages;

  // optimizer
  double learning_rate = 2e-4;
  double num_train_epochs = 3;
  Index max_steps = -1;
  std::string lr_scheduler_type = "linear";
  Index warmup_steps = 0;
  double warmup_ratio = 0;
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1;
  std::string on_non_finite = "stop";

  // memory
  bool gradient_checkpointing = false;
  std::optional<double> memory_limit_gib;
  Index devices = 1;
  Index nodes = 1;
  std::optional<double> device_memory_gib;
  std::optional<double> host_memory_gib;
  std::string offload = "none";

  // run
  std::string output_dir;
  Index seed = 42;
  Index logging_steps = 10;
  std::vector<std::string> report_to;  // empty: tensorboard
  Index save_steps = 500;
  std::optional<Index> save_total_limit;
  std::optional<Index> eval_steps;
  bool eval_on_start = false;
  bool eval_predict = false;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "eval_loss";
  std::optional<Index> early_stopping_patience;  // evaluations
  double early_stopping_threshold = 0;
  std::string resume_from_checkpoint;  // "auto" or a path
  bool overwrite_output_dir = false;
  bool json = false;
  bool full = false;
  bool all = false;
  std::optional<Index> threads;
  bool profile = false;

  // eval, generate and chat
  bool predict = false;
  bool compare_base = false;
  std::vector<std::string> compare_with;
  std::optional<std::string> prompt;
  std::string output_file;
  std::optional<Index> max_new_tokens;
  bool sample = false;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<Index> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  Index num_return_sequences = 1;
  bool stream = false;
  std::vector<std::string> stop;
  std::optional<std::string> system;
  std::optional<Index> max_model_len;
  bool jsonl = false;

  // model files
  std::string max_shard_size = "5GB";
  std::string outtype = "auto";
  bool adapter_only = false;

  // tokenize
  std::optional<std::string> text;
  std::string file;

  // report
  std::vector<std::string> runs;
  bool add_generation_prompt = false;

  /// Keys given on the command line, which take precedence over the file's.
  std::set<std::string_view> from_command_line;

  Index rank() const { return lora_rank.value_or(8); }
  double alpha() const { return lora_alpha.value_or(2.0 * static_cast<double>(rank())); }
  bool reports_to(std::string_view place) const {
    if (report_to.empty()) return place == "tensorboard";
    return std::find(report_to.begin(), report_to.end(), place) != report_to.end();
  }
  Index train_batch_size() const { return per_device_train_batch_size.value_or(1); }
  Index sequences_per_step() const { return train_batch_size() * gradient_accumulation_steps * ranks; }
  /// Whether gradients go to the ranks that own them with each micro-batch.
  bool shares_gradients() const { return zero_stage > 1 && ranks > 1; }
  /// Whether ranks share out the values of what trains, layer by layer: matrices of an adapter, which are small, stay
  /// whole.
  bool shares_values() const { return zero_stage > 2 && trains_model(); }
  /// Whether what sequences have in common is computed once. Dropout and noise draw other numbers for each sequence.
  bool shares_prefixes() const { return share_prefixes.value_or(lora_dropout == 0 && !neftune_noise_alpha); }
  /// Tokens of an answer that is no chat's.
  Index answer_tokens() const { return max_new_tokens.value_or(256); }
  /// Whether answers are drawn, rather than greedy.
  bool draws() const { return sample || temperature.value_or(0) > 0; }
  /// The model, as the user called it.
  const std::string& model_name() const { return model_preset.empty() ? model_name_or_path : model_preset; }
  bool trains_model() const { return finetuning_type == "full"; }
  /// Whether the layers' frozen weights stay on the host.
  bool offloads_params() const { return offload == "params" || offload == "all"; }
  /// Of a whole model they are the values that train.
  bool keeps_values_on_host() const { return offloads_params() && trains_model(); }
  /// Whether the optimizer's state does.
  bool offloads_optimizer() const { return offload == "optimizer" || offload == "all"; }
  /// What final_model is.
  std::string_view result_name() const { return trains_model() ? "model" : "adapter"; }
  /// Whether evaluations are compared with the best one.
  bool seeks_best() const { return load_best_model_at_end || early_stopping_patience.has_value(); }
  /// Whether the stages say where the run ends.
  bool ends_by_stages() const { return !stages.empty() && stages.back().ends(); }
  /// Whether metric_for_best_model is a score of generated answers.
  bool compares_answers() const {
    return metric_for_best_model == "eval_exact_match" || metric_for_best_model == "eval_rouge_l";
  }
  bool evaluates() const { return !eval_dataset.empty() || val_size > 0; }
  /// Whether files give shares to an epoch, rather than all their records.
  bool interleaves() const { return mix_strategy != "concat"; }
};

}  // namespace lora::settings
