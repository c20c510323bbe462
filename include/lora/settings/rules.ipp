#pragma once

#include "lora/core/config.hpp"
#include "lora/io/formats/unpack.hpp"
#include "lora/settings/rules.hpp"

namespace lora::settings::detail {

LORA_INLINE bool reads_only_text(const Config& config) {
  return config.text || io::unpacked_name(config.file).extension() == ".txt";
}

LORA_INLINE std::vector<Rule> make_rules() {
  constexpr unsigned train = train_command, eval = eval_command, generate = generate_command, merge = merge_command,
                     exporting = export_command, tokenize = tokenize_command, talking = generate | chat_command,
                     running = train | eval | talking;
  constexpr auto required = Rule::Kind::required, excludes = Rule::Kind::excludes, refused = Rule::Kind::refused,
                 idle = Rule::Kind::idle;
  constexpr unsigned plan = plan_command;
  constexpr auto always = [](const Config&) { return true; };
  constexpr auto prompted = [](const Config& c) { return c.prompt.has_value(); };
  constexpr auto on_cpu = [](const Config& c) { return c.device == "cpu"; };
  constexpr auto full = [](const Config& c) { return c.trains_model(); };
  constexpr auto uniform = [](const Config& c) { return !any_curriculum(c); };
  constexpr auto by_stages = [](const Config& c) { return c.ends_by_stages(); };
  constexpr std::string_view without_end = "with stages, the last of which has no end of its own";
  constexpr std::string_view with_curriculum = "with use_curriculum";
  constexpr std::string_view without_adapter = "with finetuning_type lora: full trains no adapter";
  constexpr std::string_view with_evaluation = "with eval_dataset or val_size, the records to evaluate";
  constexpr std::string_view a_model = "a model folder, a .gguf file or a model's name";
  constexpr std::string_view warm = "sample or a temperature above 0: greedy answers draw nothing";
  constexpr std::string_view from_data = "with dataset: a prompt is one text";
  constexpr std::string_view conversations = "with a file of conversations: plain texts go through no template";
  constexpr std::string_view gguf_file = "a new file that ends in .gguf";
  constexpr std::string_view base_rotates = "without adapter_only: an adapter's file says nothing of rotary embedding";
  constexpr auto adapter_alone = [](const Config& c) { return c.adapter_only; };
  constexpr auto without_data = [](const Config& c) { return c.dataset.empty(); };
  constexpr auto of_cpu = [](const Config& c) { return c.device_type == "auto"; };
  std::vector<Rule> table = {
      {required, train | plan, "model_name_or_path", "", [](const Config& c) { return c.model_preset.empty(); },
       a_model},
      {required, eval | talking | merge | exporting | tokenize, "model_name_or_path", "", always, a_model},
      {required, train, "tokenizer_name_or_path", "", [](const Config& c) { return !c.model_preset.empty(); },
       "with model_preset, the folder that has the tokenizer"},
      {required, plan, "tokenizer_name_or_path", "",
       [](const Config& c) { return !c.model_preset.empty() && !c.dataset.empty(); },
       "with model_preset and dataset, the folder that has the tokenizer"},
      {required, train | eval, "dataset", "", always, "a file of records, or several"},
      {required, train | eval, "output_dir", "", [](const Config& c) { return c.preview == 0; },
       "a folder for the results"},
      {required, merge, "adapter_name_or_path", "", always, "an adapter folder"},
      {required, merge, "output_dir", "", always, "a folder for the merged model"},
      {required, exporting, "output_file", "", always, gguf_file},
      {refused, exporting, "output_file", "", [](const Config& c) { return !c.output_file.ends_with(".gguf"); },
       gguf_file},
      {refused, exporting, "adapter_only", "", [](const Config& c) { return c.adapter_name_or_path.empty(); },
       "with adapter_name_or_path"},
      {refused, exporting, "rope_theta", "", adapter_alone, base_rotates},
      {refused, exporting, "no_rope_layers", "", adapter_alone, base_rotates},
      {required, generate, "prompt", "", [](const Config& c) { return c.dataset.empty(); },
       "a text, or dataset instead"},
      {required, report_command, "runs", "", always, "folders of runs"},
      {required, report_command, "output_file", "", [](const Config& c) { return c.runs.size() > 1; },
       "with several runs, a file for the page that has them side by side"},
      {required, tokenize, "text", "", [](const Config& c) { return c.file.empty(); }, "a text, or file instead"},

      {refused, running | doctor_command, "device_type", "", on_cpu,
       "with device ascend or auto: a CPU is no kind of NPU"},
      {refused, running, "full_determinism", "", on_cpu,
       "with device ascend or auto: on a CPU bits repeat in any case"},
      {refused, plan, "device", "",
       [](const Config& c) { return c.device.starts_with("ascend") && c.device_type == "auto"; },
       "with device_type, the kind of NPU that the forecast is for"},
      {refused, plan, "nodes", "", of_cpu,
       "with device_type, a kind of NPU: of the network between hosts nothing is known"},
      {refused, plan, "device_memory_gib", "", of_cpu,
       "with device_type, a kind of NPU: the memory of a CPU is the host's, host_memory_gib"},
      {refused, plan, "stages", "", without_data, "with dataset, whose records the stages share out"},
      {refused, plan, "eval_dataset", "", without_data, "with dataset"},
      {refused, plan, "val_size", "", without_data, "with dataset, of which it is a part"},
      {refused, plan, "use_curriculum", "", without_data, "with dataset, whose records have classes"},
      {refused, plan, "share_prefixes", "", without_data, "with dataset, whose records have beginnings in common"},
      {excludes, plan, "all", "max_tokens_per_micro_batch", nullptr, ""},
      {excludes, plan, "all", "gradient_checkpointing", nullptr, ""},
      {excludes, plan, "all", "offload", nullptr, ""},
      {excludes, plan, "all", "zero_stage", nullptr, ""},
      {excludes, generate, "prompt", "dataset", nullptr, ""},
      {excludes, generate, "stream", "dataset", nullptr, ""},
      {excludes, generate, "stream", "output_file", nullptr, ""},
      {excludes, generate, "stream", "num_return_sequences", nullptr, ""},
      {excludes, tokenize, "text", "file", nullptr, ""},
      {excludes, train, "model_preset", "model_name_or_path", nullptr, ""},
      {excludes, train, "eval_dataset", "val_size", nullptr, ""},
      {excludes, train, "warmup_steps", "warmup_ratio", nullptr, ""},
      {excludes, train | eval, "train_on_prompt", "train_on_last_turn_only", nullptr, ""},

      {refused, train, "eval_steps", "", [](const Config& c) { return !c.evaluates(); }, with_evaluation},
      {refused, train, "load_best_model_at_end", "", [](const Config& c) { return !c.evaluates(); }, with_evaluation},
      {refused, train, "load_best_model_at_end", "", [](const Config& c) { return !c.eval_steps && c.save_steps == 0; },
       "with eval_steps, or save_steps above 0: there is nothing to choose from if only the end is evaluated"},
      {refused, train, "eval_on_start", "", [](const Config& c) { return !c.evaluates(); }, with_evaluation},
      {refused, train, "eval_predict", "", [](const Config& c) { return !c.evaluates(); }, with_evaluation},
      {refused, train, "metric_for_best_model", "",
       [](const Config& c) { return c.compares_answers() && !c.eval_predict; },
       "eval_loss or eval_token_accuracy, or with eval_predict, which generates the answers"},
      {refused, train, "early_stopping_patience", "", [](const Config& c) { return !c.evaluates(); }, with_evaluation},
      {refused, train, "early_stopping_patience", "",
       [](const Config& c) { return !c.eval_steps && c.save_steps == 0; },
       "with eval_steps, or save_steps above 0: there is nothing to stop if only the end is evaluated"},
      {refused, train, "early_stopping_threshold", "", [](const Config& c) { return !c.early_stopping_patience; },
       "with early_stopping_patience"},
      {refused, train, "metric_for_best_model", "", [](const Config& c) { return !c.seeks_best(); },
       "with load_best_model_at_end or early_stopping_patience"},
      {refused, train, "max_steps", "", by_stages, without_end},
      {refused, train, "num_train_epochs", "", by_stages, without_end},
      {refused, train, "curriculum_field", "", uniform, with_curriculum},
      {refused, train, "curriculum_stages", "", uniform, with_curriculum},
      {refused, train, "curriculum_seed", "", uniform, with_curriculum},
      {refused, train, "mix_strategy", "", [](const Config& c) { return c.interleaves() && c.dataset.size() < 2; },
       "concat, or with several files in dataset"},
      {refused, train, "mix_strategy", "", [](const Config& c) { return c.interleaves() && any_curriculum(c); },
       "concat with use_curriculum, which draws by class"},
      {refused, train, "shuffle", "", [](const Config& c) { return c.interleaves(); },
       "true: a mix_strategy that interleaves draws an order of its own"},
      {refused, train, "interleave_probs", "", [](const Config& c) { return !c.interleaves(); },
       "with mix_strategy interleave_under or interleave_over"},
      {refused, train, "interleave_probs", "", [](const Config& c) { return weights_in(c.dataset) > 0; },
       "without weights in dataset, which give the shares as well"},
      {refused, train, "interleave_probs", "",
       [](const Config& c) { return c.interleave_probs.size() != c.dataset.size(); },
       "a share for each file of dataset"},
      {refused, train, "interleave_probs", "",
       [](const Config& c) {
         return std::fabs(std::accumulate(c.interleave_probs.begin(), c.interleave_probs.end(), -1.0)) > 1e-6;
       },
       "shares that add up to 1"},
      {refused, train, "dataset", "", [](const Config& c) { return weights_in(c.dataset) > 0 && !c.interleaves(); },
       "files without a weight, or with mix_strategy interleave_under or interleave_over"},
      {refused, train, "dataset", "",
       [](const Config& c) {
         const Index weights = weights_in(c.dataset);
         return weights > 0 && weights < std::ssize(c.dataset);
       },
       "a weight for each file, or for none"},
      {refused, train | eval, "dataset", "", [](const Config& c) { return share_a_name(c.dataset); }, "each name once"},
      {refused, train, "eval_dataset", "",
       [](const Config& c) { return weights_in(c.eval_dataset) > 0 || have_names(c.eval_dataset); },
       "files without weight and name: all of them are one evaluation"},
      {refused, train, "shuffle", "", [](const Config& c) { return c.use_curriculum; },
       "true: use_curriculum draws an order of its own"},
      {refused, train, "trainable", "", [](const Config& c) { return !c.trains_model(); },
       "with finetuning_type full; lora_target chooses what gets an adapter"},
      {refused, train, "train_from_scratch", "", [](const Config& c) { return !c.trains_model(); },
       "with finetuning_type full: an adapter can't make up for weights that nothing has trained"},
      {refused, train, "model_preset", "", [](const Config& c) { return !c.train_from_scratch; },
       "with train_from_scratch: a preset has no weights"},
      {refused, train, "tokenizer_name_or_path", "", [](const Config& c) { return c.model_preset.empty(); },
       "with model_preset; a model folder has its own tokenizer"},
      {refused, train, "adapter_name_or_path", "", full, without_adapter},
      {refused, train, "lora_rank", "", full, without_adapter},
      {refused, train, "lora_alpha", "", full, without_adapter},
      {refused, train, "lora_dropout", "", full, without_adapter},
      {refused, train, "share_prefixes", "",
       [](const Config& c) { return c.share_prefixes.value_or(false) && c.lora_dropout > 0; },
       "false with lora_dropout, which draws other numbers for each sequence"},
      {refused, train, "share_prefixes", "",
       [](const Config& c) { return c.share_prefixes.value_or(false) && c.neftune_noise_alpha.has_value(); },
       "false with neftune_noise_alpha, which draws other numbers for each sequence"},
      {refused, train, "lora_target", "", full, without_adapter},
      {refused, train, "use_rslora", "", full, without_adapter},
      {refused, train, "additional_target", "", full, without_adapter},
      {refused, train, "loraplus_lr_ratio", "", full, without_adapter},
      {refused, train, "offload", "", on_cpu,
       "none with device cpu, whose memory is the host's: weights are used in place from the mapped files"},
      {refused, train, "offload", "",
       [](const Config& c) { return c.keeps_values_on_host() && !c.offloads_optimizer(); },
       "none, optimizer or all with finetuning_type full: an optimizer on the device has the weights that train there, "
       "in "
       "float32"},
      {refused, train, "step_units", "",
       [](const Config& c) {
         return c.ranks == 1 && c.resume_from_checkpoint.empty() && c.step_units > c.sequences_per_step();
       },
       "at most the sequences of a step, per_device_train_batch_size x gradient_accumulation_steps"},
      {refused, train, "lora_target", "",
       [](const Config& c) {
         return c.lora_target.size() > 1 &&
                std::find(c.lora_target.begin(), c.lora_target.end(), "all") != c.lora_target.end();
       },
       "all, or a list of projections"},
      {refused, train, "report_to", "", [](const Config& c) { return c.report_to.size() > 1 && c.reports_to("none"); },
       "none, or a list of tensorboard and jsonl"},

      {idle, train, "per_device_eval_batch_size", "", [](const Config& c) { return !c.evaluates(); }, with_evaluation},
      {idle, train, "max_eval_samples", "", [](const Config& c) { return !c.evaluates(); }, with_evaluation},
      {idle, train, "max_shard_size", "", [](const Config& c) { return !c.trains_model(); },
       "with finetuning_type full, whose final_model is a whole model"},
      {idle, train, "max_new_tokens", "", [](const Config& c) { return !c.eval_predict; },
       "with eval_predict, which generates answers"},
      {refused, eval, "compare_base", "", [](const Config& c) { return c.adapter_name_or_path.empty(); },
       "with adapter_name_or_path, without which the base is evaluated anyway"},
      {idle, eval, "max_new_tokens", "", [](const Config& c) { return !c.predict; },
       "with predict, which generates answers"},
      {idle, eval | generate, "dataset", "", [](const Config& c) { return weights_in(c.dataset) > 0; },
       "files without a weight, which is for training"},
      {idle, generate, "dataset", "", [](const Config& c) { return have_names(c.dataset); }, "files without a name"},
      {idle, exporting, "threads", "", adapter_alone, "without adapter_only, which computes nothing"},
      {idle, doctor_command, "output_file", "", [](const Config& c) { return !c.full; },
       "with full, which writes a report"},
      {refused, talking, "sample", "", [](const Config& c) { return c.temperature == 0; },
       "with a temperature above 0, or without one"},
      {refused, generate, "num_return_sequences", "", [](const Config& c) { return !c.draws(); },
       "1, or sample or a temperature above 0: greedy answers are all the same"},
      {idle, talking, "top_p", "", [](const Config& c) { return !c.draws() && c.top_p != 1; }, warm},
      {idle, talking, "top_k", "", [](const Config& c) { return !c.draws() && c.top_k != 0; }, warm},
      {idle, talking, "min_p", "", [](const Config& c) { return !c.draws() && c.min_p != 0; }, warm},
      {idle, talking, "seed", "", [](const Config& c) { return !c.draws(); }, warm},
      {idle, generate, "max_samples", "", prompted, from_data},
      {idle, generate, "text_column", "", prompted, from_data},
      {idle, generate, "dataset_dir", "", prompted, from_data},
      {idle, train | eval | generate, "dataset_dir", "",
       [](const Config& c) { return c.uses_dataset_dir == false && !c.dataset.empty(); },
       "with names of its dataset_info.json in dataset or eval_dataset"},
      {idle, tokenize, "add_generation_prompt", "", reads_only_text, conversations},
      {idle, tokenize, "template", "", reads_only_text, conversations},
      {idle, tokenize, "date", "", reads_only_text, conversations},
      {idle, tokenize, "enable_thinking", "", reads_only_text, conversations},
  };
  // What is planned is a training, which may lack what only a start needs.
  for (Rule& rule : table) {
    const bool starts = rule.kind == required || rule.key == "model_preset";
    if ((rule.commands & train) && (!starts || rule.kind == excludes)) rule.commands |= plan;
  }
  table.push_back({refused, plan, "offload", "", of_cpu, "none on a CPU, or with device_type, a kind of NPU"});
  for (const char* key : {"dataset_dir", "max_samples", "train_on_prompt", "train_on_last_turn_only",
                          "skip_empty_answers", "shuffle", "text_column", "template", "date", "enable_thinking"})
    table.push_back({idle, plan, key, "", without_data, "with dataset, whose records it is for"});
  return table;
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = detail::make_rules();
  return table;
}

LORA_INLINE bool is_broken(const Rule& rule, const Config& config, Command command) {
  if (!(rule.commands & command)) return false;
  const Key& key = *find_key(rule.key);
  const bool given = is_given(config, key);
  switch (rule.kind) {
    case Rule::Kind::required:
      return !given && rule.applies(config);
    case Rule::Kind::excludes:
      return given && is_given(config, *find_key(rule.other));
    case Rule::Kind::refused:
      return given && rule.applies(config);
    case Rule::Kind::idle: {
      // A file, or a Config in code, may serve the other commands that have the key. A plan is of the same training.
      constexpr unsigned training = train_command | plan_command;
      const unsigned own = (command & training) ? training : static_cast<unsigned>(command);
      if ((key.commands & ~own) && !config.from_command_line.contains(key.name)) return false;
      return given && rule.applies(config);
    }
  }
  return false;
}

}  // namespace lora::settings
