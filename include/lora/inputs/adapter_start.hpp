#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/inputs/model_files.hpp"
#include "lora/model/adapter.hpp"
#include "lora/model/decoder.hpp"
#include "lora/model/trainable.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/settings/stage_lists.hpp"

namespace lora::inputs {

/// The adapter that a run trains: from its settings, or from the adapter folder that it starts from.
/// Throws   ConfigError for a key that contradicts the folder
model::AdapterConfig adapter_of(const settings::Config& config, const model::Config& shape,
                                const model::AdapterFiles* start);

/// Attaches the adapter that a run trains: the one that it starts from, or a new one.
/// Throws   ConfigError, FormatError, IoError
template <AnyDevice D, class T>
void attach_adapter(D& dev, model::Decoder<D, T>& decoder, const settings::Config& config) {
  std::optional<model::AdapterFiles> start;
  if (!config.adapter_name_or_path.empty()) {
    start.emplace(model::open_adapter(find_adapter(config.adapter_name_or_path)));
    model::check_adapter(*start, decoder.config());
  }
  decoder.attach(dev, adapter_of(config, decoder.config(), start ? &*start : nullptr), {},
                 config.loraplus_lr_ratio.value_or(1) != 1 ? optim::faster_group : 0);
  if (start) {
    model::load_adapter(dev, decoder, *start);
  } else {
    model::init_adapter(dev, decoder, static_cast<std::uint64_t>(config.seed));
  }
}

using TensorNames = std::set<std::string, std::less<>>;

/// The names of the model's own tensors that train in each stage of a run. Stages that say the same share them.
/// Throws   ConfigError naming the stage
std::vector<std::shared_ptr<const TensorNames>> trainable_in_stages(const settings::Config& config,
                                                                    const model::Config& shape);

/// Makes parameters of what a run trains: an adapter, or those tensors of the model that train in any of its stages.
/// Throws   ConfigError, FormatError, IoError
template <AnyDevice D, class T>
void choose_what_trains(D& dev, model::Decoder<D, T>& decoder, const settings::Config& config) {
  if (!config.trains_model()) return attach_adapter(dev, decoder, config);
  TensorNames names;
  std::set<std::shared_ptr<const TensorNames>> lists;
  for (const auto& of_stage : trainable_in_stages(config, decoder.config())) lists.insert(of_stage);
  for (const auto& list : lists) names.insert(list->begin(), list->end());
  decoder.train_own(dev, [&](const model::TensorInfo& info) { return names.count(info.name) != 0; });
}

/// Whether a tensor trains, by its name, in each stage of a run: those of `chosen` (empty: all) that the stage names.
std::vector<std::function<bool(std::string_view)>> trained_in_stages(
    const settings::Config& config, const model::Config& shape, const std::function<bool(std::string_view)>& chosen);

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/adapter_start.ipp"
#endif
