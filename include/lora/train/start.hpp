#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/core/precision.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/inputs/records.hpp"
#include "lora/io/files/path.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/environment.hpp"
#include "lora/settings/settings.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "lora/train/memory_plan.hpp"
#include "lora/train/offload.hpp"
#include "lora/train/plan.hpp"
#include "lora/train/step_work.hpp"
#include "lora/train/tensor_names.hpp"

// What a run writes and logs before its first step.

namespace lora::train {

/// The settings of a run with what they leave open filled in from the model, the adapter, the data and the machine.
template <AnyDevice D, class T>
settings::Config resolved_settings(settings::Config config, D& dev, const model::Decoder<D, T>& decoder,
                                   const inputs::TextFiles& text, const inputs::MicroBatchLimit& limit) {
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
  if (text.chat_template && !text.chat_template->is_interpreted()) config.template_name = text.chat_template->name();
  if constexpr (requires { dev.threads(); }) {
    config.device = "cpu";
    config.threads = dev.threads();
  } else if constexpr (requires { dev.name(); }) {
    config.device = dev.name();
  }
  if (limit.tokens > 0 && config.stages.empty()) config.max_tokens_per_micro_batch = limit.tokens;
  config.share_prefixes = limit.shares;
  config.overwrite_output_dir = false;  // repeating a run must not remove it
  return config;
}

/// Writes run_config.json, environment_info.txt and, unless `command` is empty, train_command.txt.
void write_run_files(const io::Path& output, const settings::Config& resolved, const std::string& device,
                     const std::string& environment, const std::string& command);

/// Logs what each part of a curriculum draws, and warns of what it does not.
void say_curriculum(const data::Curriculum& curriculum, Index first_step);

/// Logs what an epoch has of each file.
void say_mixture(const data::Mixture& mixture, std::span<const std::string> names);

/// "7 of 4 sequences, 6 an epoch"
std::string text_of_steps(std::size_t number, const Plan& plan);

/// Throws   ConfigError naming the stage in which nothing of what may train does
void expect_something_trains(const settings::Config& config, const Plan& plan, const nn::ParamTable& params);

/// "16 of 25 tensors train, 1234 numbers: model.layers.0..1.{...}.weight". `trains`: empty: all that can.
std::string text_of_trained(const model::Trained& trains, const nn::ParamTable& params);

/// Warns of a warm-up that a stage does not get through. `begin`: of the sentence.
void warn_of_warmup(const std::string& begin, const Stage& stage);

/// Tells of a vocabulary, of a model that begins with random weights, that is larger than the tokenizer's.
void say_unused_rows(const model::Config& shape, const tokenizer::Tokenizer* tokenizer);

/// Logs which steps a stage has, what trains in it and what it draws.
void say_stage(const std::string& name, std::size_t number, const Plan& plan, const nn::ParamTable& params);

/// Logs what the first steps of a stage take on average.
void say_work(const StepWork& step);

/// Says why nothing is shared unless that was asked for, and warns where what was asked for finds nothing to share in
/// the first steps.
void say_sharing(const settings::Config& config, const StepWork& step);

/// Logs the size of the data, the adapter, the steps and the memory that a run of a model starts with. `step`: of the
/// stage that needs most memory. `device`: its memory. `initial`: the weights are random. `tokenizer`: null if there is
/// none.
void say_start(const settings::Config& config, const model::Blueprint& model, const data::EncodeSummary& records,
               const Plan& plan, const StepWork& step, const MemoryPlan& memory, const MemoryInfo& device, bool initial,
               const tokenizer::Tokenizer* tokenizer);

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/start.ipp"
#endif
