#pragma once

#include <string>

#include "lora/io/tokenizer.hpp"
#include "lora/model/merge.hpp"
#include "lora/train/config.hpp"
#include "lora/train/metrics.hpp"
#include "lora/train/whole_folder.hpp"

namespace lora::train {

/// The page that tells a reader of the folder what the adapter is and how to use it.
inline std::string model_card(const Config& config, const model::AdapterConfig& adapter, const RunMetrics& metrics) {
  std::string text = "---\n";
  text += concat("base_model: ", io::to_text(config.model_name_or_path, -1), "\n");
  text += "library_name: peft\npipeline_tag: text-generation\ntags:\n- lora\n---\n\n# LoRA adapter\n\n";
  text += concat("Fine-tuned from `", config.model_name_or_path, "` on");
  for (const auto& file : config.dataset) text += concat(" `", io::Path(file).filename().native(), "`");
  text += ".\n\n| setting | value |\n|---|---|\n";
  const auto row = [&](std::string_view name, const auto& value) { text += concat("| ", name, " | ", value, " |\n"); };
  row("rank", adapter.rank);
  row("alpha", adapter.alpha);
  row("rsLoRA", adapter.rslora);
  row("dropout", adapter.dropout);
  std::string targets = adapter.target_expression;
  if (targets.empty())
    for (const auto& target : adapter.targets) targets += (targets.empty() ? "" : ", ") + target;
  row("targets", targets);
  row("learning rate", config.learning_rate);
  row("schedule", config.lr_scheduler_type);
  row("sequences per step", config.per_device_train_batch_size * config.gradient_accumulation_steps);
  row("steps", metrics.steps);
  row("tokens", metrics.total_tokens);
  row("seed", config.seed);
  row("loss of the last step", metrics.train_loss);
  if (metrics.eval_loss) row("evaluation loss", *metrics.eval_loss);
  text += "\n```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n";
  text += concat("base = AutoModelForCausalLM.from_pretrained(", io::to_text(config.model_name_or_path, -1),
                 ")\nmodel = PeftModel.from_pretrained(base, \"path/to/this/folder\")\n```\n");
  return text;
}

/// Writes the adapter with all that is needed to use it: PEFT's two files, the tokenizer and a README.md; for a base
/// from a GGUF file also the config.json that it lacks.
template <Device D, class T>
void write_adapter_folder(D& dev, model::Decoder<D, T>& decoder, const model::Source& source,
                          const io::Tokenizer* tokenizer, const std::string& card, const io::Path& folder) {
  model::save_adapter(dev, decoder, folder);
  if (tokenizer) tokenizer->save(folder);
  if (source.gguf())
    io::write_json(folder / "config.json",
                   model::to_json(source.config(), model::config_dtype_name(model::merged_dtype(source))));
  io::write_file(folder / "README.md", std::string_view(card));
}

}  // namespace lora::train
