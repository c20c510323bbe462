#pragma once

#include "lora/core/config.hpp"
#include "lora/run/final_model.hpp"

namespace lora::run::detail {

/// Python code that loads the base and the adapter, and notes on where transformers computes something else.
LORA_INLINE std::string usage_of(const settings::Config& config, const model::Source& source) {
  const bool changed = model::rotary_changed(source);
  std::string text = "\n```python\nfrom peft import PeftModel\nfrom transformers import ";
  text += changed ? "AutoConfig, AutoModelForCausalLM\n\n" : "AutoModelForCausalLM\n\n";
  std::string arguments = io::to_text(config.model_name_or_path, -1);
  if (source.gguf() != nullptr) {  // transformers takes folder and file separately
    const io::Path file = config.model_name_or_path;
    const io::Path folder = file.has_parent_path() ? file.parent_path() : io::Path(".");
    arguments = concat(io::to_text(folder.native(), -1), ", gguf_file=", io::to_text(file.filename().native(), -1));
  }
  if (changed) {
    text += "config = AutoConfig.from_pretrained(\"path/to/this/folder\")\n";
    arguments += ", config=config";
  }
  text += concat("base = AutoModelForCausalLM.from_pretrained(", arguments,
                 ")\nmodel = PeftModel.from_pretrained(base, \"path/to/this/folder\")\n```\n");
  if (changed)
    text +=
        "\nThe base ran with other rotary settings than its own file has: `config.json` holds them, and `lora` takes "
        "them from there.\n";
  return text + model::rotary_note(source.config(), "base");
}

LORA_INLINE std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c == '\n' ? ' ' : c);  // a row is a line
  return escaped;
}

/// "45 of many (60.0 %), 30 of few (40.0 %)"
LORA_INLINE std::string counts_text(const std::vector<std::pair<std::string, Index>>& counts) {
  Index sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  std::string text;
  for (const auto& [name, count] : counts)
    text += concat(text.empty() ? "" : ", ", count, " of ", settings::in_line(name), " (",
                   fixed(sum > 0 ? 100 * static_cast<double>(count) / static_cast<double>(sum) : 0, 1), " %)");
  return text;
}

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE std::string model_card(const settings::Config& config, const model::Source& source,
                                   const model::AdapterConfig* adapter, const RunMetrics& run,
                                   const RunMetrics& weights, const Talk& talk) {
  std::string text = "---\n";
  if (!source.is_initial()) text += concat("base_model: ", io::to_text(config.model_name_or_path, -1), "\n");
  text += adapter != nullptr ? adapter_card_head : model_card_head;
  text += concat(source.is_initial() ? "Trained from scratch, with the shape of `" : "Fine-tuned from `",
                 config.model_name(), "` on");
  for (const auto& file : config.dataset) text += concat(" `", data::last_part(file.path).native(), "`");
  text += ".\n\n| setting | value |\n|---|---|\n";
  const auto row = [&](std::string_view name, const auto& value) {
    text += concat("| ", detail::cell(concat(name)), " | ", detail::cell(concat(value)), " |\n");
  };
  const auto list = [&](std::string_view name, const std::vector<std::string>& values) {
    std::string line;
    for (const auto& value : values) line += (line.empty() ? "" : ", ") + value;
    row(name, line);
  };
  if (adapter != nullptr) {
    row("rank", adapter->rank);
    row("alpha", adapter->alpha);
    row("rsLoRA", adapter->rslora);
    row("dropout", adapter->dropout);
    list("targets", adapter->target_expression.empty() ? adapter->targets : std::vector{adapter->target_expression});
    if (!adapter->whole_modules.empty()) list("trained in full", adapter->whole_modules);
  }
  const settings::StageConfigs stages(config);
  const std::size_t begun = stages.size() > 1 ? run.stages.size() : stages.size();
  for (std::size_t i = 0; i < begun; ++i) {
    const settings::Config stage = stages[i];
    const std::string of = config.stages.empty() ? "" : concat(", ", settings::stage_name(config, i));
    if (!stage.trainable.empty()) list("trained tensors" + of, stage.trainable);
    row("learning rate" + of, stage.learning_rate);
    row("schedule" + of, stage.lr_scheduler_type);
    row("sequences per step" + of, stage.sequences_per_step());
  }
  for (std::size_t i = 0; i < run.stages.size(); ++i)
    row(concat("steps, ", settings::stage_name(config, i)),
        concat(run.stages[i].from_step + 1, " to ", run.stages[i].to_step,
               run.stages[i].ended_early ? ", ended early by early_stopping_patience" : ""));
  if (begun < stages.size()) row("stages that have not begun", stages.size() - begun);
  const bool is_last = weights.steps == run.steps;
  if (!is_last) row("weights", concat("of step ", weights.steps, ", the best by ", config.metric_for_best_model));
  if (!is_last) row("steps of the run", run.steps);
  if (!run.ended_early.empty()) row("the run ended early", concat("after step ", run.steps, " by ", run.ended_early));
  row("steps", weights.steps);
  row("tokens", weights.total_tokens);
  row("seed", config.seed);
  if (!talk.template_name.empty()) row("chat template", talk.template_name);
  if (!weights.files.empty()) row("records learned from", detail::counts_text(weights.files));
  if (!weights.absent_class_field.empty())
    row("curriculum", concat("none: no record has the field ", settings::in_line(weights.absent_class_field)));
  for (const DrawnClasses& part : weights.curriculum)
    row(concat("curriculum, steps ", part.from_step + 1, " to ", part.to_step), detail::counts_text(part.counts));
  if (!std::isnan(weights.train_loss))
    row(is_last ? "loss of the last step" : concat("loss of step ", weights.steps), weights.train_loss);
  if (weights.eval_loss) row("evaluation loss", *weights.eval_loss);
  if (adapter != nullptr) return text + detail::usage_of(config, source) + stopping_text(talk);
  return text +
         "\n```python\nfrom transformers import AutoModelForCausalLM\n\n"
         "model = AutoModelForCausalLM.from_pretrained(\"path/to/this/folder\")\n```\n" +
         model::rotary_note(source.config(), "model");
}

LORA_INLINE bool brings_config(const model::Source& source) {
  return source.gguf() != nullptr || model::rotary_changed(source);
}

}  // namespace lora::run
