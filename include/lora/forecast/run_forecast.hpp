#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/forecast/planned_model.hpp"
#include "lora/forecast/rates.hpp"
#include "lora/model/streamed_layers.hpp"
#include "lora/train/memory_plan.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/step_work.hpp"

namespace lora::forecast {

/// What a forecast is made for: a device, and how much memory there is.
struct Target {
  std::string device;  ///< in words
  nn::Machine machine{};
  Rates rates{};
  double device_bytes = 0;  ///< of the device; where that is the processors, of the host
  double host_bytes = 0;
  double held = 0;  ///< resident in the process before anything is loaded; 0 for a device with memory of its own
};

/// A step of a run, on average.
struct StepForecast : train::StepWork {
  StepTime time{};
  double streamed = 0;  ///< bytes from the host's memory
};

/// What a run is forecast to take, as its settings say.
struct RunForecast {
  StepForecast step{};
  std::optional<train::MemoryPlan>
      memory{};  ///< of the stage that needs most; nothing where memory_limit_gib can't be met
  bool fits = false;
  std::string advice{};  ///< why it does not fit
};

/// Of a run without data: of sequences that all have cutoff_len tokens, each with a label.
train::StepBatches full_batches(const settings::Config& config);

namespace detail {

/// Streamed layers, of which as many stay on the device as `room` bytes hold.
template <AnyDevice D, class T>
model::LayerStreaming streaming_of(const model::Blueprint& blueprint, double room) {
  std::vector<double> layers(static_cast<std::size_t>(blueprint.config.num_hidden_layers));
  for (const model::TensorInfo& info : model::tensors_of(blueprint.config))
    if (info.kind == model::TensorInfo::Kind::projection)
      layers[static_cast<std::size_t>(info.layer)] +=
          static_cast<double>(bytes_of(model::dtype_on_device<D, T>(info, blueprint.stored(info)), info.shape.count()));
  const double largest = *std::max_element(layers.begin(), layers.end());
  const auto least = static_cast<double>(model::WeightPlaces{}.slots);
  const double slots =
      std::clamp(std::floor(room / largest), least, std::max(least, static_cast<double>(layers.size())));
  model::LayerStreaming streaming;
  for (const double bytes : layers) streaming.layers += static_cast<std::size_t>(bytes);
  streaming.device = static_cast<std::size_t>(slots * largest);
  streaming.host = streaming.layers;
  return streaming;
}

}  // namespace detail

/// `run`: with the data, or null; `config` may differ from the run's in how its memory is used.
/// Throws   ConfigError
template <AnyDevice D, class T>
RunForecast forecast_run(const Target& target, const model::Blueprint& blueprint, const train::Prepared* run,
                         const settings::Config& config) {
  RunForecast result;
  const nn::ParamTable params = blueprint.parameters();
  const auto all = [](std::string_view) { return true; };
  const auto sizes = params.sizes(all);

  // Steps: of the stage whose steps take most.
  train::MemoryBasis basis{blueprint, target.machine, 0, 0};
  std::optional<train::Plan> plan;
  if (run != nullptr)
    plan.emplace(train::plan_of(config, run->data.order(),
                                inputs::trained_in_stages(config, blueprint.config, run->options.trains),
                                run->data.classes(), run->data.mixture()));
  std::optional<model::LayerStreaming> streaming;
  const auto memory_of = [&]() -> train::MemoryPlan {
    basis.weights = train::weight_bytes<D, T>(blueprint, streaming);
    basis.host_weights = streaming ? static_cast<double>(streaming->host) : 0;
    const double held = target.held + train::trained_memory<T>(sizes).total();
    if (!plan) {
      const train::StepBatches batches = full_batches(config);
      train::LargestBatch largest;
      for (const auto& batch : batches.batches) {
        largest.rows = std::max(largest.rows, batch.rows);
        largest.labelled = std::max(largest.labelled, batch.labelled);
      }
      return train::plan_memory<D, T>(basis, largest, {}, config, held);
    }
    const auto plans =
        train::plan_memory<D, T>(basis, *plan, run->survey.train,
                                 train::largest_evaluation(run->survey.eval, config.per_device_eval_batch_size,
                                                           settings::longest_cutoff(config)),
                                 config, held);
    return train::largest(plans);
  };
  try {
    if constexpr (!D::reads_host_memory) {
      if (config.offloads_params()) {
        streaming = detail::streaming_of<D, T>(blueprint, 0);
        const double room = target.device_bytes - memory_of().peak() * 1.1 - 0x1p30;  // as keep_layers leaves
        streaming = detail::streaming_of<D, T>(blueprint, static_cast<double>(streaming->device) + std::max(room, 0.0));
      }
    }
    result.memory = memory_of();
  } catch (const ConfigError& error) {
    if (!config.memory_limit_gib) throw;
    result.advice = error.what();
  }
  const Index recomputed = result.memory ? result.memory->recomputed : blueprint.config.num_hidden_layers;

  const std::size_t stages = plan ? plan->stages().size() : 1;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const model::Trained trains = plan ? plan->stages()[stage].trains : model::Trained();
    const train::StepBatches batches =
        plan ? train::first_batches(*plan, stage, run->data.train(), config) : full_batches(config);
    StepForecast step{train::step_work<D, T>(batches, target.machine, blueprint, trains, recomputed)};
    if (streaming && streaming->layers > streaming->device)  // down and up again, but for what stays
      step.streamed = 2 * step.micro_batches * static_cast<double>(streaming->layers - streaming->device);
    step.time = time_of(step.work, target.rates, step.streamed);
    if (step.time.seconds > result.step.time.seconds) result.step = step;
  }

  if (!result.memory) return result;
  const double host = result.memory->host ? result.memory->host->total() : 0;
  result.fits = result.memory->peak() <= target.device_bytes && host <= target.host_bytes;
  const auto gib = [](double bytes) { return fixed(bytes / 0x1p30, 1) + " GiB"; };
  if (result.memory->peak() > target.device_bytes)
    result.advice = concat("it needs ", gib(result.memory->peak()), ", but the device has ", gib(target.device_bytes));
  else if (host > target.host_bytes)
    result.advice = concat("it needs ", gib(host), " of the host's memory, which has ", gib(target.host_bytes));
  return result;
}

}  // namespace lora::forecast

#ifndef LORA_COMPILED
#  include "lora/forecast/run_forecast.ipp"
#endif
