#pragma once

#include <algorithm>
#include <string_view>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/log.hpp"
#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/run/fixed_settings.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/start.hpp"

namespace lora::train {

/// A step keeps the sequences and units that it has had where a run is gone on with, whichever number of ranks does so;
/// else there is a unit for each rank, where the settings don't say. Returns   `config`
LORA_INLINE const settings::Config& settle_ranks(settings::Config& config, run::EarlierRun& earlier) {
  const auto noted = [&](std::string_view name) {
    const io::Json then = earlier.setting(name);
    return then.is_number_integer() ? then.get<Index>() : 0;
  };
  const Index sequences = noted(run::sequences_setting), units = std::max<Index>(noted("step_units"), 1);
  const Index ranks = config.ranks, own = config.sequences_per_step() / ranks;
  if (config.step_units == 1) config.step_units = sequences > 0 && (units > 1 || ranks > 1) ? units : ranks;
  if (sequences > 0 && config.step_units > 1 && sequences % own == 0) config.ranks = sequences / own;
  if (config.step_units > config.sequences_per_step())
    fail<ConfigError>("key step_units: given ", config.step_units, ", allowed: at most the ",
                      config.sequences_per_step(), " sequences of a step");
  if (config.ranks != ranks)
    log::info("a step keeps the ", sequences, " sequences that it has had, whichever number of ranks goes on");
  return config;
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
  if (plan.total() < 1)
    fail<ConfigError>("key num_train_epochs: given ", config.num_train_epochs, ", which is not even one step");
}

LORA_INLINE run::Talk talk_of(const Prepared& run) {
  const inputs::TextFiles& text = run.data.text();
  inputs::Taught taught = inputs::taught_by(run.data.train().dataset().kinds(), text);
  return run::talk_of(run.source, text.tokenizer.get(), taught.files, std::move(taught.template_name));
}

}  // namespace lora::train
