#pragma once

#include <utility>

#include "lora/core/config.hpp"
#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/start.hpp"

namespace lora::train {

LORA_INLINE Prepared::Prepared(const cpu::Threads& threads, settings::Config config_, model::Source source_,
                               RunOptions options_)
    : config(std::move(config_)),
      options(std::move(options_)),
      source(std::move(source_)),
      output(config.output_dir),
      earlier(config, inputs::paths_of(config, source.path(), options.records)),
      data(
          threads, config, source.path(), source.config().vocab_size,
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
