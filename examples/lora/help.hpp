#pragma once

#include <string>

#include "lora/settings/keys.hpp"
#include "lora/settings/settings.hpp"

/// What the program's page says of a command, and its own page shows as an example.
struct CommandText {
  lora::settings::Command command;
  const char* does;
  const char* example;
};

inline constexpr CommandText command_texts[] = {
    {lora::settings::train_command,
     "Fine-tunes a model: an adapter (LoRA) or, with finetuning_type full, its own weights.",
     "lora train --model_name_or_path MODEL --dataset train.json --output_dir OUT"},
    {lora::settings::eval_command, "Measures loss and perplexity on a data set, and with predict exact matches.",
     "lora eval --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --dataset test.json --output_dir "
     "EVAL"},
    {lora::settings::generate_command, "Answers a prompt, or every record of a data set.",
     "lora generate --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --prompt \"Hello\""},
    {lora::settings::chat_command, "Talks with a model, in a terminal or by lines of a pipe.",
     "lora chat --model_name_or_path MODEL --adapter_name_or_path OUT/final_model"},
    {lora::settings::merge_command, "Writes base and adapter as one plain model folder.",
     "lora merge --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --output_dir MERGED"},
    {lora::settings::export_command,
     "Writes a model, merged with its adapter, or the adapter alone as a GGUF file, for llama.cpp.",
     "lora export --model_name_or_path MODEL --adapter_name_or_path OUT/final_model --output_file model.gguf"},
    {lora::settings::tokenize_command, "Prints the token ids of texts, a JSON array per line.",
     "lora tokenize --model_name_or_path MODEL --text \"Hello\""},
    {lora::settings::plan_command,
     "Tells what a training would take, in memory and time, before anything is loaded; keys of train that change "
     "neither are taken as well.",
     "lora plan --model_preset qwen2.5-7b --device_type ascend910b3 --cutoff_len 2048 --all"},
    {lora::settings::report_command,
     "Writes a page with the curves, scores and settings of a run, or of several side by side.",
     "lora report OUT OTHER --output_file compared.html"},
    {lora::settings::doctor_command, "Tells what this machine and this build have for training, and what is missing.",
     "lora doctor"},
};

/// The description with the allowed values and the default. CLI11 must not know the default: it would use it as the
/// value of a switch without one.
inline std::string sentence_of(const lora::settings::Key& key) {
  std::string text(key.help);
  const std::string range = key.choices.empty() ? lora::settings::describe(key.range) : lora::settings::allowed(key);
  if (!range.empty()) text += "; " + range;
  const std::string otherwise = lora::settings::default_text(key);
  return otherwise.empty() ? text : text + " (default: " + otherwise + ")";
}
