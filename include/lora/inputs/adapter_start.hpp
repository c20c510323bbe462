#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/inputs/model_files.hpp"
#include "lora/model/adapter.hpp"
#include "lora/model/decoder.hpp"
#include "lora/model/trainable.hpp"
#include "lora/settings/config.hpp"

namespace lora::inputs {

/// The adapter that a run trains: from its settings, or from the adapter folder that it starts from.
/// Throws   ConfigError for a key that contradicts the folder
inline model::AdapterConfig adapter_of(const settings::Config& config, const model::AdapterFiles* start) {
  model::AdapterConfig adapter;
  auto targets = config.lora_target;
  if (targets.empty() || targets.front() == "all")
    targets.assign(model::projection_names.begin(), model::projection_names.end());
  if (start == nullptr) {
    adapter.rank = config.rank();
    adapter.alpha = config.alpha();
    adapter.rslora = config.use_rslora.value_or(false);
    adapter.targets = std::move(targets);
  } else {
    adapter = start->config;
    const auto expect = [&](std::string_view key, const auto& given, const auto& found) {
      if (given && *given != found)
        fail<ConfigError>("key ", key, ": given ", *given, ", but the adapter ", start->folder.native(), " has ",
                          found);
    };
    expect("lora_rank", config.lora_rank, adapter.rank);
    expect("lora_alpha", config.lora_alpha, adapter.alpha);
    expect("use_rslora", config.use_rslora, adapter.rslora);
    const auto list = [](std::vector<std::string> names) {
      std::sort(names.begin(), names.end());
      std::string text;
      for (const auto& name : names) text += (text.empty() ? "" : ",") + name;
      return text;
    };
    const std::string found = adapter.target_expression.empty() ? list(adapter.targets) : adapter.target_expression;
    expect("lora_target", config.lora_target.empty() ? std::nullopt : std::optional(list(targets)), found);
  }
  adapter.dropout = config.lora_dropout;
  adapter.base_model = config.model_name_or_path;
  return adapter;
}

/// Attaches the adapter that a run trains: the one that it starts from, or a new one.
/// Throws   ConfigError, FormatError, IoError
template <AnyDevice D, class T>
void attach_adapter(D& dev, model::Decoder<D, T>& decoder, const settings::Config& config) {
  std::optional<model::AdapterFiles> start;
  if (!config.adapter_name_or_path.empty()) {
    start.emplace(model::open_adapter(find_adapter(config.adapter_name_or_path)));
    model::check_adapter(*start, decoder.config());
  }
  decoder.attach(dev, adapter_of(config, start ? &*start : nullptr));
  if (start) {
    model::load_adapter(dev, decoder, *start);
  } else {
    model::init_adapter(dev, decoder, static_cast<std::uint64_t>(config.seed));
  }
}

/// Makes parameters of what a run trains: an adapter, or tensors of the model.
/// Throws   ConfigError, FormatError, IoError
template <AnyDevice D, class T>
void choose_what_trains(D& dev, model::Decoder<D, T>& decoder, const settings::Config& config) {
  if (!config.trains_model()) return attach_adapter(dev, decoder, config);
  const auto names = model::trainable_tensors(decoder.config(), config.trainable);
  decoder.train_own(dev, [&](const model::TensorInfo& info) { return names.count(info.name) != 0; });
}

}  // namespace lora::inputs
