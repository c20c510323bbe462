#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/core/precision.hpp"
#include "lora/data/encode.hpp"
#include "lora/inputs/records.hpp"
#include "lora/model/decoder.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/environment.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/memory_plan.hpp"
#include "lora/train/offload.hpp"
#include "lora/train/plan.hpp"

// What a run writes and logs before its first step.

namespace lora::train {

/// The settings of a run with what they leave open filled in from the model, the adapter, the data and the machine.
template <AnyDevice D, class T>
settings::Config resolved_settings(settings::Config config, D& dev, const model::Decoder<D, T>& decoder,
                                   const inputs::TextFiles& text) {
  const inputs::MicroBatchLimit limit = inputs::micro_batch_limit(config);
  if (!config.trains_model()) {
    const model::AdapterConfig& adapter = decoder.adapter();
    config.lora_rank = adapter.rank;
    config.lora_alpha = adapter.alpha;
    config.use_rslora = adapter.rslora;
    config.lora_target = adapter.target_expression.empty() ? adapter.targets : std::vector<std::string>{};
  }
  // The folder of an adapter to start from may hold values that no key can have; it is read again when the run is
  // repeated.
  for (const char* name : {"lora_rank", "lora_alpha", "lora_target"})
    if (const settings::Key& key = *settings::find_key(name); offence(config, key)) reset(config, key);
  config.dtype = name_of(precision_of<T>());
  config.rope_theta = decoder.config().rope.theta;
  if (text.chat_template) config.template_name = text.chat_template->name();
  if constexpr (requires { dev.threads(); }) {
    config.device = "cpu";
    config.threads = dev.threads();
  } else if constexpr (requires { dev.name(); }) {
    config.device = dev.name();
  }
  if (limit.tokens > 0 && config.stages.empty()) config.max_tokens_per_micro_batch = limit.tokens;
  config.overwrite_output_dir = false;  // repeating a run must not remove it
  return config;
}

/// Writes run_config.json, environment_info.txt and, unless `command` is empty, train_command.txt.
inline void write_run_files(const io::Path& output, const settings::Config& resolved, const std::string& device,
                            const std::string& environment, const std::string& command) {
  io::write_json(output / "run_config.json", settings::to_json(resolved, settings::train_command));
  const std::string machine = run::describe_environment(static_cast<int>(resolved.threads.value_or(1)));
  io::write_file(output / "environment_info.txt", std::string_view(machine + "device: " + device + "\n" + environment));
  if (!command.empty()) io::write_file(output / "train_command.txt", std::string_view(command + "\n"));
}

/// Logs what each part of a curriculum draws, and warns of what it does not.
inline void say_curriculum(const data::Curriculum& curriculum, Index first_step) {
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
    log::warn("no record is labelled ", missing, ": ", curriculum.missing().size() == 1 ? "its share" : "their shares",
              " of the curriculum ", curriculum.missing().size() == 1 ? "goes" : "go", " to the others");
  if (curriculum.left_out() > 0)
    log::warn(curriculum.left_out(), " records have a label of no mix, or none, and are not drawn");
}

/// Logs what an epoch has of each file.
inline void say_mixture(const data::Mixture& mixture, std::span<const std::string> names) {
  std::string mix;
  for (std::size_t i = 0; i < mixture.counts.size(); ++i)
    mix += concat(i == 0 ? "" : ", ", mixture.counts[i], " (",
                  fixed(100 * static_cast<double>(mixture.counts[i]) / static_cast<double>(mixture.size()), 1),
                  " %) of ", names[i], "'s ", mixture.files[i].sequences.size());
  if (!mix.empty()) log::info("mix: an epoch has ", mixture.size(), " sequences: ", mix);
}

/// "7 of 4 sequences, 6 an epoch"
inline std::string text_of_steps(const Stage& stage, Index sequences) {
  const data::StepPlan epoch{sequences, stage.sequences_per_step};
  return concat(stage.schedule.total, " of ", stage.sequences_per_step, " sequences",
                stage.curriculum ? "" : concat(", ", epoch.steps_per_epoch(), " an epoch"));
}

/// Throws   ConfigError naming the stage in which nothing of what may train does
template <AnyDevice D, class T>
void expect_something_trains(const settings::Config& config, const Plan& plan, model::Decoder<D, T>& decoder) {
  const auto& entries = decoder.params().entries();
  for (std::size_t i = 0; i < plan.stages().size(); ++i) {
    const auto& trains = plan.stages()[i].trains;
    if (!trains || std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return trains(entry.name); }))
      continue;
    fail<ConfigError>(config.stages.empty() ? "" : settings::stage_name(config, i) + ": ", "none of the model's ",
                      entries.size(), " trainable tensors is left to train");
  }
}

/// Logs which steps a stage has, what trains in it and what it draws.
template <AnyDevice D, class T>
void say_stage(const std::string& name, const Stage& stage, Index begin, const Plan& plan,
               model::Decoder<D, T>& decoder) {
  const auto& entries = decoder.params().entries();
  const auto trained = std::count_if(entries.begin(), entries.end(),
                                     [&](const auto& entry) { return !stage.trains || stage.trains(entry.name); });
  log::info(name, ": steps ", begin + 1, " to ", begin + stage.schedule.total, ": ",
            text_of_steps(stage, plan.sequences()), "; learning rate ", stage.learning_rate, "; ", trained, " of ",
            entries.size(), " tensors train");
}

/// Logs the size of the data, the adapter, the steps and the memory that a run starts with. `device`: its memory.
template <AnyDevice D, class T>
void say_start(const settings::Config& config, model::Decoder<D, T>& decoder, const data::EncodeSummary& records,
               const Plan& plan, const MemoryPlan& memory, const MemoryInfo& device) {
  log::info("data: ", records.text());
  if (records.left_out() > 0)
    log::warn(records.complete() ? "" : "about ", records.left_out(), " of ", records.records(),
              " records have no labelled token and are left out, ", records.lost(), " of them because of ",
              "cutoff_len ", settings::longest_cutoff(config));
  inputs::warn_of_length(decoder.config(), records.length_at(1), "the longest record has");
  Index parameters = 0;
  decoder.params().for_each([&](const auto& param) { parameters += param.value.size(); });
  const std::string what =
      config.trains_model()
          ? concat("trained: ", parameters, " of ", model::parameters_of(decoder.config()), " parameters")
          : concat("adapter: rank ", decoder.adapter().rank, ", ", parameters, " parameters");
  const bool staged = plan.stages().size() > 1;
  log::info(what, "; steps: ", staged ? concat(plan.total()) : text_of_steps(plan.stages().front(), plan.sequences()));
  Index begin = 0;
  for (std::size_t i = 0; i < plan.stages().size(); ++i) {
    const Stage& stage = plan.stages()[i];
    if (staged) say_stage(settings::stage_name(config, i), stage, begin, plan, decoder);
    if (stage.curriculum) say_curriculum(*stage.curriculum, begin);
    if (const Index cutoff = stage.limit.cutoff_len;
        cutoff < settings::longest_cutoff(config) && cutoff < records.length_at(1))
      log::warn(settings::stage_name(config, i), ": records of more than ", cutoff,
                " tokens are cut off there, as its ", "cutoff_len says; the longest has ", records.length_at(1));
    begin += stage.schedule.total;
  }
  if (staged) log::info("most memory is needed by ", settings::stage_name(config, memory.stage));
  say_memory(memory, decoder.config().num_hidden_layers, settings::stage_configs(config)[memory.stage], device);
  say_offload(decoder);
}

}  // namespace lora::train
