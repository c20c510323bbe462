#pragma once

#include <algorithm>
#include <string_view>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/log.hpp"
#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/inputs/records.hpp"
#include "lora/run/fixed_settings.hpp"
#include "lora/settings/stage_lists.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/start.hpp"

namespace lora::train {

LORA_INLINE void expect_units_of_a_micro_batch(const settings::Config& config, bool recorded) {
  const settings::StageConfigs stages(config);
  for (std::size_t i = 0; config.shares_gradients() && i < stages.size(); ++i) {
    const settings::Config stage = stages[i];
    const Index sequences = stage.sequences_per_step(), units = config.step_units;
    const inputs::MicroBatchLimit limit = inputs::micro_batch_limit(stage);
    const Index held = limit.tokens > 0 ? 1 : limit.sequences;  // whatever their length
    if (const Index most = (sequences + units - 1) / units; most > held)
      fail<ConfigError>(config.stages.empty() ? "" : settings::stage_name(config, i) + ": ", "key zero_stage: given ",
                        config.zero_stage, ", where gradients leave with each micro-batch, but of the ", units,
                        " units of a step one has ", most, " sequences, and a micro-batch holds ",
                        limit.tokens > 0 ? "one at least (max_tokens_per_micro_batch)" : concat(held),
                        recorded ? "; allowed: 0 or 1, since a run keeps the units that it began with"
                                 : concat("; allowed: 0, 1, or step_units ", (sequences + held - 1) / held));
  }
}

LORA_INLINE Index usual_units(const settings::Config& config) {
  Index each = 1;
  const settings::StageConfigs stages(config);
  for (std::size_t i = 0; config.shares_gradients() && i < stages.size(); ++i) {
    const settings::Config stage = stages[i];
    const bool by_tokens = inputs::micro_batch_limit(stage).tokens > 0;
    each = std::max(each, stage.gradient_accumulation_steps * (by_tokens ? stage.train_batch_size() : 1));
  }
  return config.ranks * each;
}

/// A step keeps the sequences and units that it has had where a run is gone on with, whichever number of ranks does so.
/// Returns   `config`
LORA_INLINE const settings::Config& settle_ranks(settings::Config& config, run::EarlierRun& earlier) {
  const auto noted = [&](std::string_view name) {
    const io::Json then = earlier.setting(name);
    return then.is_number_integer() ? then.get<Index>() : 0;
  };
  const Index sequences = noted(run::sequences_setting), units = std::max<Index>(noted("step_units"), 1);
  const Index ranks = config.ranks, own = config.sequences_per_step() / ranks;
  const bool given = config.step_units > 1 || config.from_command_line.contains("step_units");
  if (!given) config.step_units = sequences > 0 ? units : usual_units(config);
  if (sequences > 0 && config.step_units > 1 && sequences % own == 0) config.ranks = sequences / own;
  if (given && config.step_units > config.sequences_per_step())
    fail<ConfigError>("key step_units: given ", config.step_units, ", allowed: at most the ",
                      config.sequences_per_step(), " sequences of a step");
  expect_units_of_a_micro_batch(config, sequences > 0);
  if (config.ranks != ranks)
    log::info("a step keeps the ", sequences, " sequences that it has had, whichever number of ranks goes on");
  return config;
}

/// Throws   ConfigError naming a record to train or evaluate on, or a prompt to answer, that is longer than the model
///          computes
LORA_INLINE void expect_supported_lengths(const Prepared& run) {
  const model::Config& shape = run.blueprint.config;
  if (!inputs::limits_length(shape)) return;  // else each prompt would be encoded once more
  const Index cutoff = settings::longest_cutoff(run.config);
  inputs::expect_supported_records(shape, run.data.train(), run.survey.train, cutoff);
  if (run.data.evaluates()) inputs::expect_supported_records(shape, run.data.eval(), run.survey.eval, cutoff);
  if (!run.config.eval_predict) return;
  for (const data::Sample& sample : run.data.answered())
    (void)inputs::supported_prompt(shape, run.data.eval().encoder(), sample);
}

LORA_INLINE Prepared::Prepared(const cpu::Threads& threads, settings::Config config_, model::Source source_,
                               RunOptions options_)
    : config(std::move(config_)),
      options(std::move(options_)),
      source(std::move(source_)),
      output(config.output_dir),
      earlier(config, inputs::paths_of(config, source.path(), options.records)),
      data(
          threads, settle_ranks(config, earlier), source.path(), source.config().vocab_size,
          [this](std::string_view name) { return earlier.setting(name); }, std::exchange(options.records, {})),
      plan(plan_of(config, data.order(), inputs::trained_in_stages(config, source.config(), options.trains),
                   data.classes(), data.mixture())),
      blueprint(inputs::blueprint_of(config, source)) {
  expect_something_trains(config, plan, blueprint.parameters());
  if (!data.date().empty()) config.date = data.date();
  if (data.enable_thinking()) config.enable_thinking = data.enable_thinking();
  if (config.dataset.size() > 1 || settings::have_names(config.dataset)) file_names = data::names_of(config.dataset);
  expect_whole_blocks(config, plan, data.train());
  survey = data.survey(threads, config);
  expect_supported_lengths(*this);
  plan.fit_to(data.train());
  if (plan.total() < 1)
    fail<ConfigError>("key num_train_epochs: given ", config.num_train_epochs, ", which is not even one step");
}

LORA_INLINE run::Talk talk_of(const Prepared& run) {
  const inputs::TextFiles& text = run.data.text();
  inputs::Taught taught = inputs::taught_by(run.data.train().dataset().kinds(), text);
  return run::talk_of(run.source, text.tokenizer.get(), taught.files, std::move(taught.template_name));
}

}  // namespace lora::train
