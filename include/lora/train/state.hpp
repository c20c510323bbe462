#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/safetensors.hpp"
#include "lora/model/adapter.hpp"
#include "lora/model/config.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/train/checkpoint.hpp"
#include "lora/train/config.hpp"

namespace lora::train {

/// What decides the data of a run.
struct DataFacts {
  std::uint64_t fingerprint = 0;
  Index records = 0;
  std::string template_name{};
  std::string date{};  ///< that the template prints; empty if it prints none
};

/// The settings that must not change when a run goes on: with another of them, the steps that are done would not have
/// been this run's. All others may.
inline io::Json fixed_settings(const Config& config, const model::Config& shape, const model::AdapterConfig& adapter,
                               const DataFacts& data, bool bfloat16) {
  auto targets = adapter.targets;
  std::sort(targets.begin(), targets.end());
  return {{"model", concat(shape.model_type, ", ", shape.num_hidden_layers, " layers of ", shape.hidden_size, " and ",
                           shape.intermediate_size, ", vocabulary of ", shape.vocab_size)},
          {"dtype", bfloat16 ? "bfloat16" : "float32"},
          {"rope_theta", shape.rope.theta},
          {"no_rope_layers", config.no_rope_layers},
          {"lora_rank", adapter.rank},
          {"lora_alpha", adapter.alpha},
          {"lora_dropout", adapter.dropout},
          {"lora_target", targets},
          {"use_rslora", adapter.rslora},
          {"dataset", concat(data.records, " records with checksum ", checksum_text(data.fingerprint))},
          {"val_size", config.val_size},
          {"template", data.template_name},
          {"date", data.date},
          {"enable_thinking", config.enable_thinking.value_or(true)},
          {"text_column", config.text_column},
          {"cutoff_len", config.cutoff_len},
          {"train_on_prompt", config.train_on_prompt},
          {"train_on_last_turn_only", config.train_on_last_turn_only},
          {"shuffle", config.shuffle},
          {"per_device_train_batch_size x gradient_accumulation_steps",
           config.per_device_train_batch_size * config.gradient_accumulation_steps},
          {"seed", config.seed}};
}

/// Throws   ConfigError that names the first setting that changed, with both values
inline void expect_same_settings(const io::Json& now, const Checkpoint& checkpoint) {
  const auto text_of = [](const io::Json* value) { return value ? io::to_text(*value, -1) : std::string("nothing"); };
  for (const auto& [name, value] : now.items()) {
    const io::Json* then = io::json_find(checkpoint.state.settings, name);
    if (then != nullptr && *then == value) continue;
    fail<ConfigError>("key ", name, ": given ", text_of(&value), ", but ", checkpoint.folder.native(),
                      " was made with ", text_of(then), "; a run that goes on must not change it");
  }
}

/// The optimizer's state as optimizer.safetensors: m and v of each parameter, laid out as in memory.
template <Device D, class T>
void save_optimizer(D& dev, optim::AdamW<D, T>& optimizer, const io::Path& folder) {
  static_assert(std::same_as<Accum<T>, float>, "optimizer state is saved as float32");
  std::vector<io::TensorDeclaration> declarations;
  optimizer.for_each_state([&](const std::string& name, View<D, float> view) {
    declarations.push_back({name, DType::f32, view.shape()});
  });
  io::SafetensorsWriter writer(folder / "optimizer.safetensors", std::move(declarations));
  optimizer.for_each_state([&](const std::string& name, View<D, float> view) {
    const std::vector<float> values = to_host(dev, view);
    writer.add(name, std::as_bytes(std::span(values)));
  });
  writer.commit();
}

/// Throws   FormatError if a tensor is missing or has another shape
template <Device D, class T>
void load_optimizer(D& dev, optim::AdamW<D, T>& optimizer, const io::Path& folder) {
  const io::Path path = folder / "optimizer.safetensors";
  const auto file = io::Safetensors::open(path);
  optimizer.for_each_state([&](const std::string& name, View<D, float> view) {
    const io::StoredTensor* tensor = file.find(name);
    if (tensor == nullptr) fail<FormatError>(path.native(), ": the tensor ", name, " is missing");
    if (tensor->dtype != DType::f32 || tensor->shape != view.shape())
      fail<FormatError>(path.native(), ": the tensor ", name, " is ", name_of(tensor->dtype), " ",
                        to_string(tensor->shape), "; expected F32 ", to_string(view.shape()));
    std::vector<float> values(static_cast<std::size_t>(view.size()));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    copy_from_host<D, float>(dev, values, view);
  });
}

}  // namespace lora::train
