#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/run_data.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/run/base_checksum.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/fixed_settings.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/plan.hpp"
#include "lora/train/prepared.hpp"

// What a checkpoint must agree in with the run that goes on from it.

namespace lora::train {

/// The settings that a checkpoint of this run notes.
template <AnyDevice D, class T>
io::Json noted_settings(const Prepared& run, model::Decoder<D, T>& decoder) {
  const settings::Config& config = run.config;
  const inputs::RunData& data = run.data;
  const auto& trains = run.options.trains;
  const auto& dataset = data.train().dataset();
  run::DataFacts facts{dataset.fingerprint(), dataset.size(), {}, data.date(), data.enable_thinking()};
  const auto kinds = dataset.kinds();
  if (std::find(kinds.begin(), kinds.end(), data::Sample::Kind::text) != kinds.end())
    facts.text_blocks = data.train().size();
  const bool has_text =
      std::any_of(kinds.begin(), kinds.end(), [](auto kind) { return kind != data::Sample::Kind::tokens; });
  if (has_text && data.text().tokenizer) facts.tokenizer = data.text().tokenizer->fingerprint();
  facts.file_records.resize(static_cast<std::size_t>(dataset.files()));
  for (Index i = 0; config.interleaves() && i < dataset.size(); ++i)
    ++facts.file_records[static_cast<std::size_t>(dataset.file_number(i))];
  for (const Stage& stage : run.plan.stages())
    if (stage.curriculum) facts.curriculum_steps.push_back(stage.schedule.total);
  if (data.text().chat_template) facts.template_name = data.text().chat_template->name();
  if (const auto start = inputs::adapter_to_start_from(config, run.source.config()))
    facts.adapter_start = run::weights_checksum(*start);
  std::vector<std::string> chosen;
  if (trains)
    for (const auto& entry : decoder.params().entries())
      if (trains(entry.name)) chosen.push_back(entry.name);
  return run::fixed_settings(config, run.source, config.trains_model() ? nullptr : &decoder.adapter(),
                             trains ? run::chosen_text(chosen) : std::string(run::all_text), facts, precision_of<T>());
}

/// `settings`: those of this run. Stages that ended early end there in `plan` too.
/// Throws   Error if this run can't resume from the checkpoint
inline void expect_fits(const run::Checkpoint& checkpoint, const io::Json& settings, const settings::Config& config,
                        const model::Source& source, Plan& plan) {
  run::expect_same_settings(run::settings_as(settings, checkpoint, config, source), checkpoint);
  plan.end_stages(checkpoint.state.ended_stages);
  if (checkpoint.state.step > plan.total())
    fail<ConfigError>("key ", config.max_steps > 0 ? "max_steps" : "num_train_epochs", ": given ",
                      config.max_steps > 0 ? static_cast<double>(config.max_steps) : config.num_train_epochs,
                      ", which ends with step ", plan.total(), ", but ", checkpoint.folder.native(), " is step ",
                      checkpoint.state.step, "; allowed: that step or a later one");
  run::expect_same_place(checkpoint, plan.samples_before(checkpoint.state.step), plan.stage_of(checkpoint.state.step));
}

/// What a checkpoint notes of the records that a run evaluates.
inline std::string evaluated_records(const inputs::RunData& data) {
  return run::records_text(data.eval_order().size(), data.eval().dataset().fingerprint());
}

}  // namespace lora::train
