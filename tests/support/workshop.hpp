#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/trainer.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"
#include "support/tensorboard_events.hpp"

namespace lora::test {

/// A tiny model and data, and settings that use most of what a run has: dropout, shuffling, accumulation, a schedule
/// with warm-up, an evaluation set, and steps that the records don't divide.
struct Workshop {
  TempFolder temp = TempFolder::in_memory();

  Workshop() {
    write_random_model(temp / "model", {});
    write_tokens(temp / "train.jsonl", 22, 1);
    write_tokens(temp / "eval.jsonl", 5, 2);
  }

  Config config(const std::string& output = "run") const {
    Config config;
    config.model_name_or_path = (temp / "model").native();
    config.dataset = {(temp / "train.jsonl").native()};
    config.eval_dataset = {(temp / "eval.jsonl").native()};
    config.output_dir = (temp / output).native();
    config.dtype = "float32";
    config.lora_rank = 2;
    config.lora_dropout = 0.25;
    config.per_device_train_batch_size = 2;
    config.gradient_accumulation_steps = 2;
    config.learning_rate = 1e-2;
    config.lr_scheduler_type = "cosine";
    config.warmup_steps = 3;
    config.weight_decay = 0.01;
    config.num_train_epochs = 4;
    config.eval_steps = 4;
    config.save_steps = 3;
    config.logging_steps = 2;
    config.threads = 1;
    return config;
  }
};

inline RunResult fine_tune(const Config& config, RunOptions options = {}) {
  return Trainer(config, std::move(options)).train();
}

inline std::vector<io::Json> log_of(const io::Path& run) {
  std::vector<io::Json> lines;
  const std::string text = io::read_file(run / "trainer_log.jsonl");
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(io::parse_json(text.substr(at, end - at), "log"));
  return lines;
}

/// The log without what differs between two runs of the same numbers.
inline std::string numbers_of(const io::Path& run) {
  std::string text;
  for (io::Json line : log_of(run)) {
    for (const char* field : {"tokens_per_second", "elapsed_seconds", "peak_memory_gib"}) line.erase(field);
    text += io::to_text(line, -1) + "\n";
  }
  return text;
}

/// A run's TensorBoard events without what differs between two runs of the same numbers.
inline std::vector<std::string> events_of(const io::Path& run) {
  return lines_of_events(io::read_file(run / "tensorboard" / "events.out.tfevents.lora"),
                         {"train/tokens_per_second", "train/peak_memory_gib"});
}

/// The files of a run whose bytes must repeat.
inline std::map<std::string, std::string> lasting_files(const io::Path& run) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
    const std::string name = std::filesystem::relative(entry.path(), run).native();
    if (entry.is_regular_file() && (name.starts_with("final_model") || name.starts_with("checkpoints")))
      files[name] = io::read_file(entry.path());
  }
  files["log"] = numbers_of(run);
  return files;
}

inline void expect_same(const std::map<std::string, std::string>& a, const std::map<std::string, std::string>& b) {
  std::set<std::string> names;
  for (const auto* files : {&a, &b})
    for (const auto& [name, bytes] : *files) names.insert(name);
  for (const auto& name : names) {
    CAPTURE(name);
    REQUIRE(a.count(name) == 1);
    REQUIRE(b.count(name) == 1);
    CHECK(a.at(name) == b.at(name));
  }
}

inline std::vector<float> adapter_values(const io::Path& folder) {
  const auto file = io::Safetensors::open(folder / "adapter_model.safetensors");
  std::vector<float> values;
  for (const auto& tensor : file.tensors()) {
    const auto* data = reinterpret_cast<const float*>(tensor.bytes.data());
    values.insert(values.end(), data, data + tensor.shape.count());
  }
  return values;
}

}  // namespace lora::test
