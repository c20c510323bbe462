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
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/blueprint.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/model/decoder/trainable.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/settings/stage_lists.hpp"

namespace lora::inputs {

/// The adapter that a run trains: from its settings, or from the adapter folder that it starts from.
/// Throws   ConfigError for a key that contradicts the folder
model::AdapterConfig adapter_of(const settings::Config& config, const model::Config& shape,
                                const model::AdapterFiles* start);

/// The adapter folder that a run starts from, if it does.
/// Throws   FormatError where it does not fit the model, IoError
std::optional<model::AdapterFiles> adapter_to_start_from(const settings::Config& config, const model::Config& shape);

/// The group of parameters that the factors B of a run belong to.
Index group_of_b(const settings::Config& config);

/// Attaches the adapter that a run trains: the one that it starts from, or a new one.
/// Throws   ConfigError, FormatError, IoError
template <AnyDevice D, class T>
void attach_adapter(D& dev, model::Decoder<D, T>& decoder, const settings::Config& config) {
  const std::optional<model::AdapterFiles> start = adapter_to_start_from(config, decoder.config());
  decoder.attach(dev, adapter_of(config, decoder.config(), start ? &*start : nullptr), {}, group_of_b(config));
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

/// The names of those that train in any stage.
/// Throws   as above
TensorNames trainable_in_run(const settings::Config& config, const model::Config& shape);

/// Makes parameters of what a run trains: an adapter, or those tensors of the model that train in any of its stages.
/// Throws   ConfigError, FormatError, IoError
template <AnyDevice D, class T>
void choose_what_trains(D& dev, model::Decoder<D, T>& decoder, const settings::Config& config) {
  if (!config.trains_model()) return attach_adapter(dev, decoder, config);
  const TensorNames names = trainable_in_run(config, decoder.config());
  decoder.train_own(dev, [&](const model::TensorInfo& info) { return names.count(info.name) != 0; });
}

/// What of a model a run trains, without making it. `source` outlives it.
/// Throws   as above
model::Blueprint blueprint_of(const settings::Config& config, const model::Source& source);

/// Whether a tensor trains, by its name, in each stage of a run: those of `chosen` (empty: all) that the stage names.
std::vector<std::function<bool(std::string_view)>> trained_in_stages(
    const settings::Config& config, const model::Config& shape, const std::function<bool(std::string_view)>& chosen);

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/adapter_start.ipp"
#endif
