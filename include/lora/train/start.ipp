#pragma once

#include "lora/core/config.hpp"
#include "lora/train/start.hpp"

namespace lora::train {

LORA_INLINE void write_run_files(const io::Path& output, const settings::Config& resolved, const std::string& device,
                                 const std::string& environment, const std::string& command) {
  io::write_json(output / "run_config.json", settings::to_json(resolved, settings::train_command));
  const std::string machine = run::describe_environment(static_cast<int>(resolved.threads.value_or(1)));
  io::write_file(output / "environment_info.txt", std::string_view(machine + "device: " + device + "\n" + environment));
  if (!command.empty()) io::write_file(output / "train_command.txt", std::string_view(command + "\n"));
}

LORA_INLINE void say_curriculum(const data::Curriculum& curriculum, Index first_step) {
  const std::vector<std::string> labels = curriculum.labels();
  for (const auto& [begin, end, counts] : curriculum.stages()) {
    std::string mix;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (counts[i] > 0) mix += concat(mix.empty() ? "" : ", ", counts[i], " ", settings::in_line(labels[i]));
    if (end > begin) log::info("curriculum: steps ", first_step + begin + 1, " to ", first_step + end, ": ", mix);
  }
  std::string missing;
  for (const std::string& label : curriculum.missing())
    missing += (missing.empty() ? "" : ", ") + settings::in_line(label);
  if (!missing.empty())
    log::warn("no record is labeled ", missing, ": ", curriculum.missing().size() == 1 ? "its share" : "their shares",
              " of the curriculum ", curriculum.missing().size() == 1 ? "goes" : "go", " to the others");
  if (curriculum.left_out() > 0)
    log::warn(curriculum.left_out(), " records have a label of no mix, or none, and are not drawn");
}

LORA_INLINE void say_mixture(const data::Mixture& mixture, std::span<const std::string> names) {
  std::string mix;
  for (std::size_t i = 0; i < mixture.counts.size(); ++i)
    mix += concat(i == 0 ? "" : ", ", mixture.counts[i], " (",
                  fixed(100 * static_cast<double>(mixture.counts[i]) / static_cast<double>(mixture.size()), 1),
                  " %) of ", names[i], "'s ", mixture.files[i].sequences.size());
  if (!mix.empty()) log::info("mix: an epoch has ", mixture.size(), " sequences: ", mix);
}

LORA_INLINE std::string text_of_steps(std::size_t number, const Plan& plan) {
  const Stage& stage = plan.stages()[number];
  const data::StepPlan epoch{plan.sequences(), stage.sequences_per_step};
  return concat(plan.end_of(number) - plan.begin_of(number), " of ", stage.sequences_per_step, " sequences",
                stage.curriculum ? "" : concat(", ", epoch.steps_per_epoch(), " an epoch"));
}

LORA_INLINE void warn_of_warmup(const std::string& begin, const Stage& stage) {
  if (stage.schedule.warmup < stage.schedule.total || stage.schedule.warmup == 0) return;
  log::warn(begin, "the warm-up of ", stage.schedule.warmup, " steps does not end within the ", stage.schedule.total,
            " steps: the learning rate never reaches ", stage.learning_rate);
}

LORA_INLINE void say_unused_rows(const model::Config& shape, const tokenizer::Tokenizer* tokenizer) {
  const Index unused = tokenizer == nullptr ? 0 : shape.vocab_size - tokenizer->vocab_size();
  if (unused <= 0) return;
  const Index numbers = unused * shape.hidden_size * (shape.tie_word_embeddings ? 1 : 2);
  log::info(unused, " of the ", shape.vocab_size, " rows of the vocabulary have no token of the tokenizer: ", numbers,
            " of ", model::parameters_of(shape), " parameters are never used");
}

LORA_INLINE void expect_something_trains(const settings::Config& config, const Plan& plan,
                                         const nn::ParamTable& params) {
  const auto& entries = params.entries();
  for (std::size_t i = 0; i < plan.stages().size(); ++i) {
    const auto& trains = plan.stages()[i].trains;
    if (!trains || std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return trains(entry.name); }))
      continue;
    fail<ConfigError>(config.stages.empty() ? "" : settings::stage_name(config, i) + ": ", "none of the model's ",
                      entries.size(), " trainable tensors is left to train");
  }
}

LORA_INLINE std::string text_of_trained(const model::Trained& trains, const nn::ParamTable& params) {
  std::vector<std::string> names;
  Index numbers = 0;
  for (const auto& entry : params.entries()) {
    if (trains && !trains(entry.name)) continue;
    names.push_back(entry.name);
    numbers += params.elements_of(entry);
  }
  return concat(names.size(), " of ", params.entries().size(), " tensors train, ", numbers,
                " numbers: ", tensor_names(names));
}

LORA_INLINE void say_stage(const std::string& name, std::size_t number, const Plan& plan,
                           const nn::ParamTable& params) {
  const Stage& stage = plan.stages()[number];
  log::info(name, ": steps ", plan.begin_of(number) + 1, " to ", plan.end_of(number), ": ", text_of_steps(number, plan),
            "; learning rate ", stage.learning_rate, "; ", text_of_trained(stage.trains, params));
  warn_of_warmup(name + ": ", stage);
}

LORA_INLINE void say_work(const StepWork& step) {
  if (step.sequences == 0) return;  // no step is planned
  log::info("a step: ", fixed(step.sequences, 0), " sequences, ", fixed(step.tokens, 0), " tokens",
            step.rows < step.tokens ? concat(", ", fixed(step.rows, 0), " of them computed,") : "", " in ",
            significant(step.micro_batches, 3), " micro-batches, ", plain_number(step.work.flops() * 1e-12, 3),
            " TFLOP, on average of the first");
}

LORA_INLINE void say_sharing(const settings::Config& config, const StepWork& step) {
  if (!config.share_prefixes.has_value() && !config.shares_prefixes())
    log::info("share_prefixes: false with ", config.lora_dropout > 0 ? "lora_dropout" : "neftune_noise_alpha",
              ", which draws other numbers for each sequence");
  if (!config.share_prefixes.value_or(false) || step.sequences == 0 || step.rows < step.tokens) return;
  log::warn("share_prefixes: nothing is shared in the first steps: no sequences of a micro-batch have ",
            data::least_shared, " tokens or more in common, from the first one on and without the last before what is ",
            "learned; ",
            config.shares_gradients()
                ? concat("with zero_stage ", config.zero_stage, " without max_tokens_per_micro_batch ",
                         "per_device_train_batch_size of them meet in one")
                : "max_tokens_per_micro_batch or per_device_train_batch_size decides how many meet in one");
}

LORA_INLINE void say_start(const settings::Config& config, const model::Blueprint& model,
                           const data::EncodeSummary& records, const Plan& plan, const StepWork& step,
                           const MemoryPlan& memory, const MemoryInfo& device, bool initial,
                           const tokenizer::Tokenizer* tokenizer) {
  log::info("data: ", records.text());
  if (records.left_out() > 0)
    log::warn(records.complete() ? "" : "about ", records.left_out(), " of ", records.records(),
              " records have no labeled token and are left out, ", records.lost(), " of them because of ",
              "cutoff_len ", settings::longest_cutoff(config));
  inputs::warn_of_length(model.config, records.length_at(1), "the longest record has");
  const nn::ParamTable params = model.parameters();
  Index parameters = 0;
  for (const auto& entry : params.entries()) parameters += params.elements_of(entry);
  const std::string what =
      config.trains_model() ? concat("trained: ", parameters, " of ", model::parameters_of(model.config), " parameters")
                            : concat("adapter: rank ", model.adapter->rank, ", ", parameters, " parameters");
  const bool staged = plan.stages().size() > 1;
  if (!staged) log::info(text_of_trained(plan.stages().front().trains, params));
  if (!staged) warn_of_warmup("", plan.stages().front());
  if (initial) say_unused_rows(model.config, tokenizer);
  log::info(what, "; steps: ", staged ? concat(plan.total()) : text_of_steps(0, plan));
  const Index longest = settings::longest_cutoff(config);
  for (std::size_t i = 0; i < plan.stages().size(); ++i) {
    const Stage& stage = plan.stages()[i];
    const Index begin = plan.begin_of(i);
    if (staged) say_stage(settings::stage_name(config, i), i, plan, params);
    if (stage.curriculum) say_curriculum(*stage.curriculum, begin);
    if (const Index cutoff = stage.limit.cutoff_len; cutoff < longest && cutoff < records.length_at(1))
      log::warn(settings::stage_name(config, i), ": records of more than ", cutoff,
                " tokens are cut off there, as its ", "cutoff_len says; the longest has ", records.length_at(1));
  }
  if (staged) log::info("most memory is needed by ", settings::stage_name(config, memory.stage));
  say_work(step);
  say_sharing(config, step);
  say_memory(memory, model.config.num_hidden_layers, settings::StageConfigs(config)[memory.stage], device);
}

}  // namespace lora::train
