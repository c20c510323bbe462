#pragma once

#include <string>

#include "lora/io/atomic_folder.hpp"
#include "lora/model/merge.hpp"
#include "lora/run/folder.hpp"
#include "lora/run/metrics.hpp"
#include "lora/settings/config.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::run {

namespace detail {

/// Python code that loads the base and the adapter, and notes on where transformers computes something else.
inline std::string usage_of(const settings::Config& config, const model::Source& source) {
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
  if (const auto layers = model::unwritable_no_rope_layers(source.config()); !layers.empty()) {
    text += "\nThese layers ran without rotary embedding, which transformers can't do with a " +
            source.config().model_type + " model; use the adapter with `lora`:";
    for (const Index layer : layers) text += concat(" ", layer);
    text += ".\n";
  }
  return text;
}

}  // namespace detail

/// The README.md of an adapter: what it is and how to use it.
inline std::string model_card(const settings::Config& config, const model::Source& source,
                              const model::AdapterConfig& adapter, const RunMetrics& metrics) {
  std::string text = "---\n";
  text += concat("base_model: ", io::to_text(config.model_name_or_path, -1), "\n");
  text += card_head;
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
  row("sequences per step", config.sequences_per_step());
  row("steps", metrics.steps);
  row("tokens", metrics.total_tokens);
  row("seed", config.seed);
  row("loss of the last step", metrics.train_loss);
  if (metrics.eval_loss) row("evaluation loss", *metrics.eval_loss);
  return text + detail::usage_of(config, source);
}

/// Whether an adapter folder needs its own config.json: the base has none (GGUF), or ran with other rotary settings.
inline bool brings_config(const model::Source& source) {
  return source.gguf() != nullptr || model::rotary_changed(source);
}

/// Writes an adapter folder: PEFT's two files, the tokenizer, a README.md and, if it `brings_config`, a config.json
/// from which inputs::open_source takes the rotary settings.
template <AnyDevice D, class T>
void write_adapter_folder(D& dev, model::Decoder<D, T>& decoder, const model::Source& source,
                          const tokenizer::Tokenizer* tokenizer, const std::string& card, const io::Path& folder) {
  model::save_adapter(dev, decoder, folder);
  if (tokenizer) tokenizer->save(folder);
  if (brings_config(source)) io::write_json(folder / "config.json", model::config_json_of(source));
  io::write_file(folder / "README.md", std::string_view(card));
}

}  // namespace lora::run
