#pragma once

#include "lora/core/config.hpp"
#include "lora/model/description/presets.hpp"
#include "lora/settings/keys.hpp"

namespace lora::settings {

LORA_INLINE bool Range::holds(double value) const {
  if (!std::isfinite(value)) return false;
  if (also && value == *also) return true;
  if (whole_from_one && value >= 1 && value != std::floor(value)) return false;
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

}  // namespace lora::settings

namespace lora::settings::detail {

constexpr Range at_least(double low) { return {.low = low}; }

/// Counts whose products must not overflow an Index.
constexpr Range count_to(double high) { return {.low = 1, .high = high}; }

constexpr Range normal_in_float32() { return {.low = 1.2e-38, .high = 3.4e38}; }

constexpr Range fraction_below_one() { return {.low = 0, .high = 1, .high_open = true}; }

/// auto and the names of the chat templates.
LORA_INLINE std::vector<std::string_view> template_names() {
  std::vector<std::string_view> names = data::ChatTemplate::names();
  names.insert(names.begin(), "auto");
  return names;
}

LORA_INLINE std::vector<Key> make_keys() {
  constexpr unsigned train = train_command, eval = eval_command, generate = generate_command, merge = merge_command,
                     tokenize = tokenize_command, doctor = doctor_command, plan = plan_command, report = report_command,
                     exporting = export_command, chat = chat_command;
  constexpr unsigned talking = generate | chat, running = train | eval | talking, data = train | eval;
  constexpr Range any = {};
  const std::vector<std::string_view> free = {};
  const Form day = {data::is_date, "a day of the calendar as YYYY-MM-DD"};
  const Form size = {[](std::string_view text) { return parse_size(text).has_value(); },
                     "a number above 0 with KB, MB, GB, KiB, MiB or GiB, such as 5GB"};
  const Form checkpoint = {[](std::string_view text) { return text != "true" && text != "false"; },
                           "auto (the newest complete one), or the path of a checkpoint"};
  const Form device = {[](std::string_view text) { return parse_device(text).has_value(); },
                       "auto, cpu, ascend, ascend:N or ascend:N,M,... with numbers of NPUs"};
  const Form folder = {
      [](std::string_view text) { return !text.empty() && text != "ONLINE" && !text.starts_with("REMOTE:"); },
      "a folder: nothing is downloaded"};
  const Form curriculum = {
      nullptr,
      "[{\"until\": share of the steps, \"mix\": {label: share, ...}}, ...] with until ascending to 1 "
      "and shares that add up to 1"};
  const Form stages = {nullptr,
                       "[{\"name\": text, \"until_step\" or \"until_epoch\": where it ends, and keys of its own}, ...] "
                       "with ascending ends, of which the last may be left to max_steps or num_train_epochs"};
  using C = Config;
  std::vector<Key> table = {
      {"model_name_or_path", "model", running | merge | exporting | tokenize, &C::model_name_or_path, any, free, "",
       "Model folder, .gguf file, or a name in the local Hugging Face cache"},
      {"adapter_name_or_path", "model", running | merge | exporting, &C::adapter_name_or_path, any, free, "none",
       "Adapter folder to start from; its file supplies rank, alpha, targets and rsLoRA"},
      {"device", "model", running | doctor, &C::device, any, free, "",
       "Where to compute: cpu, ascend (an NPU: ascend:2, or a list of which LOCAL_RANK picks), or auto: an NPU where "
       "one "
       "can be used, else cpu",
       device},
      {"device_type", "model", running | doctor, &C::device_type, any, free, "",
       "Of device ascend: only NPUs of this kind, such as ascend910b3, or family, such as ascend910b; auto: any"},
      {"full_determinism", "model", running, &C::full_determinism, any, free, "true",
       "Of device ascend: operators add up in a fixed order, so that a run repeats its bits; false may be faster"},
      {"dtype",
       "model",
       running | merge,
       &C::dtype,
       any,
       {"auto", "float32", "bfloat16", "float16"},
       "",
       "Arithmetic; auto: the model's own, float32 where bfloat16 would be slower. merge: the type to store, auto: as "
       "stored"},
      {"template", "model", running | tokenize, &C::template_name, any, template_names(), "",
       "Chat template; auto: the adapter's, else the model's own, interpreted where its text is none of the known "
       "ones"},
      {"enable_thinking", "model", running | tokenize, &C::enable_thinking, any, free, "true",
       "Of qwen3 and smollm3: false puts an empty think block before an answer, in training as in eval, generate and "
       "chat"},
      {"date", "model", running | tokenize, &C::date, any, free, "the template's own, or today",
       "The day that some templates print, YYYY-MM-DD", day},
      {"rope_theta", "model", running | merge | exporting, &C::rope_theta, above(1), free, "as the model",
       "Base of the rotary embedding's frequencies"},
      {"no_rope_layers", "model", running | merge | exporting, &C::no_rope_layers,
       Range{.low = 0, .high = highest_layer}, free, "as the model",
       "Layers without rotary embedding, added to the model's own: indices and inclusive ranges a..b"},

      {"dataset", "data", data | generate, &C::dataset, any, free, "",
       "Files of records, or folders of them: .json, .jsonl, .parquet, .csv, .tsv or .txt, also compressed (.gz, "
       ".zst); or objects "
       "{path, weight, name, max_samples, num_samples, split, columns, tags}"},
      {"dataset_dir", "data", data | generate, &C::dataset_dir, any, free, "",
       "Folder of a dataset_info.json, whose names of data sets may stand in dataset and eval_dataset", folder},
      {"eval_dataset", "data", train, &C::eval_dataset, any, free, "none",
       "Files to evaluate on while training, or folders of them"},
      {"mix_strategy",
       "data",
       train,
       &C::mix_strategy,
       any,
       {"concat", "interleave_under", "interleave_over"},
       "",
       "Several files: concat: an epoch has each record once; interleave_under, interleave_over: in the shares of "
       "interleave_probs, until the first file has no more, or until each record of every file came"},
      {"interleave_probs", "data", train, &C::interleave_probs, above(0), free, "the files' weights, else equal shares",
       "Share of each file of dataset; they add up to 1"},
      {"val_size", "data", train, &C::val_size, Range{.low = 0, .whole_from_one = true}, free, "",
       "Part of dataset kept back for evaluation while training: a fraction or a count"},
      {"cutoff_len", "data", data, &C::cutoff_len, at_least(2), free, "",
       "Longest sequence in tokens: what is longer is cut off, or of a text becomes blocks"},
      {"train_on_prompt", "data", data, &C::train_on_prompt, any, free, "", "Labels the prompt's tokens too"},
      {"train_on_last_turn_only", "data", data, &C::train_on_last_turn_only, any, free, "",
       "Labels only the last answer of a conversation"},
      {"max_samples", "data", data | generate, &C::max_samples, at_least(1), free, "all",
       "Reads only this many records, from the beginning (eval: of each file)"},
      {"max_eval_samples", "data", train, &C::max_eval_samples, at_least(1), free, "all",
       "Evaluates while training on only this many of the records of eval_dataset or val_size"},
      {"skip_empty_answers", "data", data, &C::skip_empty_answers, any, free, "",
       "Leaves records with an empty answer or text out, and counts them, instead of stopping at the first"},
      {"shuffle", "data", train, &C::shuffle, any, free, "", "Draws a new order each epoch; else the file's"},
      {"neftune_noise_alpha", "data", train, &C::neftune_noise_alpha, above(0), free, "no noise",
       "NEFTune: noise on the embeddings while training, uniform to alpha / sqrt(tokens of the sequence x width)"},
      {"text_column", "data", data | generate, &C::text_column, any, free, "", "Field of a plain text record"},
      {"preview", "data", data, &C::preview, at_least(0), free, "",
       "Prints this many rendered records with the labeled tokens marked, and stops"},

      {"use_curriculum", "curriculum", train, &C::use_curriculum, any, free, "",
       "Draws each step's records by class, in a mix that changes as curriculum_stages say"},
      {"curriculum_field", "curriculum", train, &C::curriculum_field, any, free, "",
       "Field of a record that names its class"},
      {"curriculum_stages", "curriculum", train, &C::curriculum_stages, any, free,
       "explain first, then reasoning, then topology", "Shares of the classes, up to which share of the steps",
       curriculum},
      {"curriculum_seed", "curriculum", train, &C::curriculum_seed, at_least(0), free, "",
       "Fixes the order in which records are drawn"},

      {"finetuning_type",
       "adapter",
       train,
       &C::finetuning_type,
       any,
       {"lora", "full"},
       "",
       "What trains: a LoRA adapter, or the model's own weights, of which final_model is then a whole model"},
      {"trainable", "adapter", train, &C::trainable, any, free, "all",
       "Of a full fine-tuning: regular expressions, found in the names of the tensors that train; the rest is frozen"},
      {"train_from_scratch", "adapter", train, &C::train_from_scratch, any, free, "",
       "Begins with random weights, as transformers draws them: of the model folder its config.json and tokenizer "
       "count"},
      {"model_preset", "adapter", train, &C::model_preset, any, model::preset_names(), "none",
       "With train_from_scratch, or to plan, in place of model_name_or_path: a model's shape; tiny to large are small "
       "ones of Qwen3 with its vocabulary, with 2, 6, 24 or 96 million parameters beside the embedding"},
      {"tokenizer_name_or_path", "adapter", train, &C::tokenizer_name_or_path, any, free, "none",
       "Of model_preset: the folder that has the tokenizer"},
      {"lora_rank", "adapter", train, &C::lora_rank, count_to(65536), free, "8", "Rank of the update"},
      {"lora_alpha", "adapter", train, &C::lora_alpha, above(0), free, "2 x lora_rank",
       "Scale of the update, times rank"},
      {"lora_dropout", "adapter", train, &C::lora_dropout, fraction_below_one(), free, "",
       "Share of an adapter's inputs dropped while training"},
      {"lora_target",
       "adapter",
       train,
       &C::lora_target,
       any,
       {"all", "q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj"},
       "all",
       "Projections that get an adapter"},
      {"additional_target",
       "adapter",
       train,
       &C::additional_target,
       any,
       {"embed_tokens", "lm_head", "norms"},
       "none",
       "Trained in full beside the adapter and kept in it, as PEFT's modules_to_save; a tied head trains with the "
       "embedding"},
      {"use_rslora", "adapter", train, &C::use_rslora, any, free, "false",
       "Scale alpha / sqrt(rank) instead of alpha / rank"},
      {"loraplus_lr_ratio", "adapter", train, &C::loraplus_lr_ratio, above(0), free, "1",
       "LoRA+: learning rate of lora_B over that of lora_A, such as 16"},

      {"max_tokens_per_micro_batch", "batch", train, &C::max_tokens_per_micro_batch, at_least(1), free,
       "1024 and, with share_prefixes and without memory_limit_gib, the beginning that records usually have in common; "
       "by sequences where per_device_train_batch_size is given",
       "Fills micro-batches up to this many tokens, with share_prefixes of what is computed, at least one sequence "
       "each; "
       "the step and its loss stay the same"},
      {"per_device_train_batch_size", "batch", train, &C::per_device_train_batch_size, count_to(1e6), free, "1",
       "Sequences in a micro-batch; with max_tokens_per_micro_batch, which then says what a micro-batch holds, only a "
       "factor of the sequences in a step"},
      {"share_prefixes", "batch", data | generate, &C::share_prefixes, any, free,
       "true, but false with lora_dropout or neftune_noise_alpha",
       "Computes once what sequences that are computed together have in common at their beginning: of a micro-batch or "
       "an evaluation before what is learned, and prompts"},
      {"gradient_accumulation_steps", "batch", train, &C::gradient_accumulation_steps, count_to(1e6), free, "",
       "Micro-batches in a step, which has per_device_train_batch_size x gradient_accumulation_steps sequences"},
      {"step_units", "batch", train, &C::step_units, count_to(1e6), free, "",
       "Parts that a step's sequences are dealt into first; micro-batches do not cross them, and their gradients are "
       "added up in a fixed order"},
      {"zero_stage", "batch", train, &C::zero_stage, Range{.low = 0, .high = 3}, free, "",
       "What ranks share out: 0: nothing, each has all of it; 1: the optimizer's state; 2: gradients too, which leave "
       "layer by layer; 3: layers as well, gathered when they are used: the weights that train with finetuning_type "
       "full, on NPUs frozen ones"},
      {"ddp_timeout", "batch", train, &C::ddp_timeout, Range{.low = 0, .high = 1e9, .low_open = true}, free, "",
       "Seconds that a rank waits for another before it ends with an error"},
      {"deepspeed", "batch", train, &C::deepspeed, any, free, "none",
       "A DeepSpeed configuration file, whose stage, offloads, precision, batch, clipping, optimizer and schedule set "
       "the "
       "keys for these"},
      {"per_device_eval_batch_size", "batch", data, &C::per_device_eval_batch_size, count_to(1e6), free, "",
       "Sequences evaluated together"},

      {"stages", "stages", train, &C::stages, any, free, "none",
       "Parts of the run, one after the other, each with what trains, learning rate, schedule and batch of its own",
       stages},

      {"learning_rate", "optimizer", train, &C::learning_rate, at_least(0), free, "", "Highest learning rate"},
      {"num_train_epochs", "optimizer", train, &C::num_train_epochs, Range{.low = 0, .high = 1e6, .low_open = true},
       free, "", "Passes over the data"},
      {"max_steps", "optimizer", train, &C::max_steps, Range{.low = 1, .also = -1.0}, free, "",
       "Steps to train; overrides num_train_epochs unless -1"},
      {"lr_scheduler_type",
       "optimizer",
       train,
       &C::lr_scheduler_type,
       any,
       {"linear", "cosine", "constant"},
       "",
       "How the learning rate falls after the warm-up"},
      {"warmup_steps", "optimizer", train, &C::warmup_steps, at_least(0), free, "",
       "Steps in which the learning rate rises"},
      {"warmup_ratio", "optimizer", train, &C::warmup_ratio, Range{.low = 0, .high = 1}, free, "",
       "The same as a share of all steps; give one of the two"},
      {"weight_decay", "optimizer", train, &C::weight_decay, at_least(0), free, "",
       "Decay of matrices; biases and the weights of norms have none"},
      {"adam_beta1", "optimizer", train, &C::adam_beta1, fraction_below_one(), free, "",
       "Decay of AdamW's first moment"},
      {"adam_beta2", "optimizer", train, &C::adam_beta2, fraction_below_one(), free, "",
       "Decay of AdamW's second moment"},
      {"adam_epsilon", "optimizer", train, &C::adam_epsilon, normal_in_float32(), free, "",
       "AdamW's epsilon; others are no normal numbers in float32, in which it is added"},
      {"max_grad_norm", "optimizer", train, &C::max_grad_norm, at_least(0), free, "",
       "Gradients are scaled down to this norm; 0: never"},
      {"on_non_finite",
       "optimizer",
       train,
       &C::on_non_finite,
       any,
       {"stop", "skip"},
       "",
       "What a NaN or infinite loss or gradient does: stops the run with a checkpoint from before it, or skips the "
       "step"},

      {"memory_limit_gib", "memory", train, &C::memory_limit_gib, above(0), free, "none",
       "Checkpoints gradients of as few layers as make the predicted peak of memory fit"},
      {"gradient_checkpointing", "memory", train, &C::gradient_checkpointing, any, free, "",
       "Keeps only each layer's input and computes the rest again: less memory, more time"},
      {"offload",
       "memory",
       train,
       &C::offload,
       any,
       {"none", "optimizer", "params", "all"},
       "",
       "Of a device with memory of its own, what stays on the host: the optimizer's state, whose step the processors "
       "make; the layers' frozen weights, which are streamed; both, and of a whole model the weights that train"},
      {"devices", "memory", plan, &C::devices, count_to(64), free, "",
       "Processes that train together on each node, on NPUs one for each; on processors they share those of this "
       "machine"},
      {"nodes", "memory", plan, &C::nodes, count_to(256), free, "", "Machines with so many NPUs that train together"},
      {"device_memory_gib", "memory", plan, &C::device_memory_gib, above(0), free, "61, of an NPU of 64 GB",
       "Memory of the device that the forecast is for"},
      {"host_memory_gib", "memory", plan, &C::host_memory_gib, above(0), free,
       "what this machine has available; with device_type no limit", "Memory of the host that it is for"},

      {"output_dir", "run", data | merge, &C::output_dir, any, free, "", "Folder for the results"},
      {"seed", "run", train | talking, &C::seed, at_least(0), free, "", "Fixes every random number"},
      {"logging_steps", "run", train, &C::logging_steps, at_least(1), free, "", "Steps between lines of the log"},
      {"report_to",
       "run",
       train,
       &C::report_to,
       any,
       {"tensorboard", "jsonl", "none"},
       "tensorboard",
       "Who else gets the lines of the log: tensorboard: event files; jsonl: standard output, for a program that reads "
       "them from a pipe; none: nobody"},
      {"save_steps", "run", train, &C::save_steps, at_least(0), free, "",
       "Steps between checkpoints; 0: none on the way"},
      {"save_total_limit", "run", train, &C::save_total_limit, at_least(1), free, "all",
       "Keeps only this many of the newest checkpoints"},
      {"eval_steps", "run", train, &C::eval_steps, at_least(1), free,
       "at the end; with load_best_model_at_end or early_stopping_patience as save_steps", "Steps between evaluations"},
      {"load_best_model_at_end", "run", train, &C::load_best_model_at_end, any, free, "",
       "final_model is the checkpoint with the best evaluation"},
      {"eval_predict", "run", train, &C::eval_predict, any, free, "",
       "Evaluations while training also generate the answers, greedily, and score them: exact match and ROUGE-L"},
      {"eval_on_start", "run", train, &C::eval_on_start, any, free, "",
       "Evaluates before the first step too, for comparison: it is never the best"},
      {"metric_for_best_model",
       "run",
       train,
       &C::metric_for_best_model,
       any,
       {"eval_loss", "eval_token_accuracy", "eval_exact_match", "eval_rouge_l"},
       "",
       "By what one evaluation is better than another: the lowest loss or the highest score"},
      {"early_stopping_patience", "run", train, &C::early_stopping_patience, at_least(1), free, "none",
       "Ends the run, or the stage, after so many evaluations in a row without improvement"},
      {"early_stopping_threshold", "run", train, &C::early_stopping_threshold, at_least(0), free, "",
       "By more than this an evaluation must be better than the best to count as improvement"},
      {"resume_from_checkpoint", "run", train, &C::resume_from_checkpoint, any, free, "none",
       "Checkpoint to go on from; auto: the newest complete one, or a new start", checkpoint},
      {"overwrite_output_dir", "run", train | merge, &C::overwrite_output_dir, any, free, "",
       "Permits an output_dir that holds an earlier result, which is replaced"},
      {"json", "run", doctor | plan, &C::json, any, free, "", "Prints JSON"},
      {"all", "run", plan, &C::all, any, free, "",
       "Compares sizes of micro-batches, gradient_checkpointing, zero_stage and offload, and names the fastest that "
       "fits"},
      {"full", "run", doctor, &C::full, any, free, "",
       "Also runs every kernel of the device against the processors, and a short training, and writes a report"},
      {"threads", "run", running | merge | exporting | doctor, &C::threads, Range{.low = 1, .high = 4096}, free,
       "what the machine allows", "Threads to compute with"},
      {"profile", "run", train, &C::profile, any, free, "",
       "Says at the end where time and memory went; writes profile.md, and profile.json for ui.perfetto.dev"},

      {"compare_base", "evaluation", eval, &C::compare_base, any, free, "",
       "Also evaluates without the adapter, and shows what it changes"},
      {"compare_with", "evaluation", eval, &C::compare_with, any, free, "none",
       "Earlier evaluations to compare with: their folders, or evaluation_results.json"},
      {"predict", "evaluation", eval, &C::predict, any, free, "",
       "Also generates the answers and scores them: exact match and ROUGE-L"},

      {"prompt", "generation", generate, &C::prompt, any, free, "", "The user's words; or give dataset"},
      {"output_file", "generation", generate | exporting | doctor | report, &C::output_file, any, free,
       "standard output; of doctor doctor_report.md, of report the run's report.html",
       "File for the answers to dataset, a JSON object per line; of doctor for the report of full; of report for the "
       "page; of export the .gguf file, which must not be there"},
      {"max_new_tokens", "generation", running, &C::max_new_tokens, count_to(1e6), free,
       "256; of chat what the context has room for", "Longest answer in tokens"},
      {"sample", "generation", talking, &C::sample, any, free, "",
       "Draws answers as the model's makers advise: temperature, top_p, top_k, min_p and repetition_penalty that are "
       "not given are those of its generation_config.json, else transformers' (temperature 1, top_k 50)"},
      {"temperature", "generation", talking, &C::temperature, at_least(0), free, "0",
       "Of the sampling; 0: greedy, without top_p, top_k, min_p and seed"},
      {"top_p", "generation", talking, &C::top_p, Range{.low = 0, .high = 1, .low_open = true}, free, "1",
       "Samples from the smallest set of tokens with this probability"},
      {"top_k", "generation", talking, &C::top_k, at_least(0), free, "0",
       "Samples from this many tokens, and those as likely as the last of them; 0: from all"},
      {"min_p", "generation", talking, &C::min_p, Range{.low = 0, .high = 1}, free, "0",
       "Samples from tokens that are at least this times as likely as the likeliest"},
      {"repetition_penalty", "generation", talking, &C::repetition_penalty, above(0), free, "1",
       "Divides the positive logits of tokens that are there already by this, and multiplies negative ones"},
      {"num_return_sequences", "generation", generate, &C::num_return_sequences, count_to(1e4), free, "",
       "Answers to each prompt, each drawn with random numbers of its own"},
      {"stream", "generation", generate, &C::stream, any, free, "", "Writes the answer to a prompt as it comes"},
      {"stop", "generation", talking, &C::stop, any, free, "none", "Texts that end an answer"},
      {"system", "generation", chat, &C::system, any, free, "the template's own", "The system prompt"},
      {"max_model_len", "generation", chat, &C::max_model_len, Range{.low = 2, .high = 1e9}, free,
       "what the model was made for", "Longest conversation in tokens; past it the oldest turns are left out"},
      {"jsonl", "generation", chat, &C::jsonl, any, free, "",
       "Reads a JSON object for each message, {\"role\", \"content\"}, and writes one for each answer"},

      {"max_shard_size", "merge", train | merge, &C::max_shard_size, any, free, "",
       "Largest weight file of a whole model, such as 500MB or 5GB", size},

      {"outtype",
       "export",
       exporting,
       &C::outtype,
       any,
       {"auto", "f32", "f16", "bf16", "q8_0"},
       "",
       "Type of the matrices in the file; auto: bf16 of a model that is stored so, else f16, and of adapter_only as "
       "stored. Vectors are f32; matrices whose rows are not whole blocks of q8_0 are f16"},
      {"adapter_only", "export", exporting, &C::adapter_only, any, free, "",
       "Writes the adapter as llama.cpp's LoRA file, to be used with the base's GGUF file, instead of the merged "
       "model"},

      {"text", "input", tokenize, &C::text, any, free, "", "One text; or give file"},
      {"file", "input", tokenize, &C::file, any, free, "",
       ".txt: a text per line; .jsonl: {\"text\"} or {\"messages\"} per line; .csv, .parquet: a record per row"},
      {"add_generation_prompt", "input", tokenize, &C::add_generation_prompt, any, free, "",
       "Ends conversations with the opening of an answer"},
      {"runs", "input", report, &C::runs, any, free, "",
       "Folders of runs; or words without a key: lora report RUN RUN"},
  };
  // What is planned is a training: a command line of train's is one of plan's.
  for (Key& key : table)
    if ((key.commands & train) && key.name != "preview") key.commands |= plan;
  return table;
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE const std::vector<Key>& keys() {
  static const std::vector<Key> table = detail::make_keys();
  return table;
}

LORA_INLINE const Key* find_key(std::string_view name) {
  for (const Key& key : keys())
    if (key.name == name) return &key;
  return nullptr;
}

LORA_INLINE bool is_given(const Config& config, const Key& key) {
  static const Config defaults;
  return std::visit([&](auto member) { return config.*member != defaults.*member; }, key.member);
}

LORA_INLINE void reset(Config& config, const Key& key) {
  std::visit([&](auto member) { config.*member = Config{}.*member; }, key.member);
}

LORA_INLINE ValueType type_of(const Key& key) {
  return std::visit(
      []<class V>(V Config::*) {
        using Value = typename detail::Unwrapped<V>::type;
        if constexpr (std::is_same_v<Value, bool>) return ValueType::flag;
        if constexpr (std::is_same_v<Value, Index>) return ValueType::integer;
        if constexpr (std::is_same_v<Value, double>) return ValueType::number;
        if constexpr (std::is_same_v<Value, std::string>) return ValueType::text;
        if constexpr (std::is_same_v<Value, std::vector<std::string>>) return ValueType::list;
        if constexpr (std::is_same_v<Value, std::vector<Index>>) return ValueType::layers;
        if constexpr (std::is_same_v<Value, std::vector<double>>) return ValueType::numbers;
        if constexpr (std::is_same_v<Value, std::vector<data::DataFile>>) return ValueType::files;
        if constexpr (std::is_same_v<Value, std::vector<data::CurriculumStage>>) return ValueType::stages;
        if constexpr (std::is_same_v<Value, std::vector<StageSettings>>) return ValueType::stages;
      },
      key.member);
}

LORA_INLINE bool is_list(const Key& key) {
  const ValueType type = type_of(key);
  return type == ValueType::list || type == ValueType::layers || type == ValueType::numbers || type == ValueType::files;
}

}  // namespace lora::settings

namespace lora::settings::detail {

LORA_INLINE std::string join(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text += concat(text.empty() ? "" : ", ", word);
  return text;
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE std::string describe(const Range& range) {
  std::string text;
  const auto add = [&](const auto&... parts) { text += concat(text.empty() ? "" : " and ", parts...); };
  if (std::isfinite(range.low)) add(range.low_open ? "above " : "at least ", range.low);
  if (std::isfinite(range.high)) add(range.high_open ? "below " : "at most ", range.high);
  if (range.also) text = concat(*range.also, " or ", text);
  if (range.whole_from_one) text += ", whole from 1 on";
  return text;
}

LORA_INLINE std::string allowed(const Key& key) {
  if (!key.form.words.empty()) return std::string(key.form.words);
  if (!key.choices.empty()) return concat(is_list(key) ? "a list of " : "one of ", detail::join(key.choices));
  const std::string range = describe(key.range);
  return concat(may_be_auto(key) ? "auto, " : "", describe(type_of(key)), range.empty() ? "" : ", ", range);
}

}  // namespace lora::settings
