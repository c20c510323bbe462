#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/forecast/planned_model.hpp"
#include "lora/forecast/rates.hpp"
#include "lora/model/weights/streamed_layers.hpp"
#include "lora/train/memory_plan.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/step_traffic.hpp"
#include "lora/train/step_work.hpp"

namespace lora::forecast {

/// What a forecast is made for: a device, and how much memory there is.
struct Target {
  std::string device{};  ///< in words
  nn::Machine machine{};
  Rates rates{};
  double device_bytes = 0;  ///< of the device; where that is the processors, of the host
  double host_bytes = 0;
  double held = 0;  ///< resident in the process before anything is loaded; 0 for a device with memory of its own
  int devices = 1, nodes = 1;    ///< that train together, on each of the hosts; `device_bytes` are of each
  double connected = 0;          ///< bytes of a device that being connected with others takes
  std::size_t gather_piece = 0;  ///< bytes of each rank that a collective gathers at most, by way of scratch; 0: any

  int ranks() const { return devices * nodes; }
};

/// A step of a run, on average.
struct StepForecast : train::StepWork {
  StepTime time{};
  double streamed = 0;  ///< bytes from the host's memory
};

/// What a run is forecast to take, as its settings say.
struct RunForecast {
  StepForecast step{};
  std::vector<train::Traffic> traffic{};  ///< of a step, of the rank that sends most
  std::optional<train::MemoryPlan>
      memory{};  ///< of the stage that needs most; nothing where memory_limit_gib can't be met
  bool fits = false;
  std::string advice{};  ///< why it does not fit
};

namespace detail {

/// Bytes of the projections of each layer that don't train, as the device gets them.
template <AnyDevice D, class T>
std::vector<std::size_t> layer_bytes(const model::Blueprint& blueprint) {
  constexpr std::size_t block = Arena::alignment;
  std::vector<std::size_t> layers(static_cast<std::size_t>(blueprint.config.num_hidden_layers));
  for (const model::TensorInfo& info : model::tensors_of(blueprint.config))
    if (info.kind == model::TensorInfo::Kind::projection && !blueprint.may_train(info))
      layers[static_cast<std::size_t>(info.layer)] +=
          (static_cast<std::size_t>(
               bytes_of(model::dtype_on_device<D, T>(info, blueprint.stored(info)), info.shape.count())) +
           block - 1) /
          block * block;
  return layers;
}

}  // namespace detail

/// What decides what ranks exchange.
template <AnyDevice D, class T>
train::TrafficBasis traffic_basis(const model::Blueprint& blueprint, const settings::Config& config, int ranks,
                                  const model::Trained& trains = {}) {
  const auto all = [](std::string_view) { return true; };
  train::TrafficBasis basis{.sizes = blueprint.parameters().sizes(trains ? trains : model::Trained(all)),
                            .ranks = ranks,
                            .units = config.step_units,
                            .zero_stage = config.zero_stage,
                            .element = sizeof(Accum<T>),
                            .product = sizeof(T),
                            .sum = sizeof(typename D::Sum),
                            .depth = blueprint.config.num_hidden_layers,
                            .slots = model::WeightPlaces{}.slots};
  if (!D::reads_host_memory && config.zero_stage > 2) basis.layers = detail::layer_bytes<D, T>(blueprint);
  const auto shape = model::shape_of<D, T>(blueprint, trains, 0);
  basis.first_trained = shape.embedding_trains ? 0 : shape.stack.first_trained();
  return basis;
}

/// That of the rank that sends most.
std::vector<train::Traffic> most_traffic(const train::TrafficBasis& basis);

/// Of a run without data: of sequences that all have cutoff_len tokens, each with a label. `windows`: of the model's
/// layers.
train::StepBatches full_batches(const settings::Config& config, std::span<const Index> windows = {});

namespace detail {

/// Streamed layers, of which as many stay on the device as `room` bytes hold; or shared out, which none does; nothing
/// where all of them train.
template <AnyDevice D, class T>
std::optional<model::LayerStreaming> streaming_of(const model::Blueprint& blueprint, const settings::Config& config,
                                                  int ranks, double room) {
  const std::vector<std::size_t> layers = layer_bytes<D, T>(blueprint);
  const auto largest = static_cast<double>(*std::max_element(layers.begin(), layers.end()));
  if (largest == 0) return std::nullopt;
  const auto least = static_cast<double>(model::WeightPlaces{}.slots);
  const bool shared = config.zero_stage > 2;
  const double slots =
      shared ? least
             : std::clamp(std::floor(room / largest), least, std::max(least, static_cast<double>(layers.size())));
  model::LayerStreaming streaming{.from =
                                      shared ? model::WeightPlaces::From::ranks : model::WeightPlaces::From::memory};
  std::size_t own = 0;
  for (const std::size_t bytes : layers) {
    streaming.layers += bytes;
    own += shared ? model::shard_size(bytes, ranks - 1, ranks) : bytes;
  }
  streaming.device = static_cast<std::size_t>(slots * largest);
  (config.offloads_params() ? streaming.host : streaming.device) += own;
  if (shared) streaming.loading = *std::max_element(layers.begin(), layers.end());
  return streaming;
}

/// Bytes that come of values of what trains in a micro-batch, where they lie on the host: of layers twice, forward and
/// backward.
template <class T>
double brought_values(const std::vector<nn::GroupSize>& sizes) {
  double bytes = 0;
  for (const auto& [number, layer] : nn::gathered_layers(sizes, sizeof(T), sizeof(Accum<T>)))
    bytes += static_cast<double>(layer.bytes) * (number >= 0 ? 2 : 1);
  return bytes;
}

}  // namespace detail

/// `run`: with the data, or null; `config` may differ from the run's in how its memory is used.
/// Throws   ConfigError
template <AnyDevice D, class T>
RunForecast forecast_run(const Target& target, const model::Blueprint& blueprint, const train::Prepared* run,
                         const settings::Config& config) {
  RunForecast result;
  const int ranks = target.ranks();
  train::MemoryBasis basis{blueprint, target.machine, 0, 0, ranks};
  basis.model.forming_layers = nn::forming_layers<D>;
  const nn::ParamTable params = basis.model.parameters();
  const auto all = [](std::string_view) { return true; };
  const auto sizes = params.sizes(all);

  // Steps: of the stage whose steps take most.
  std::optional<train::Plan> plan;
  if (run != nullptr) {
    plan.emplace(train::plan_of(config, run->data.order(),
                                inputs::trained_in_stages(config, blueprint.config, run->options.trains),
                                run->data.classes(), run->data.mixture()));
    plan->fit_to(run->data.train());
  }
  std::optional<model::LayerStreaming> streaming;
  const auto memory_of = [&]() -> train::MemoryPlan {
    basis.weights = train::weight_bytes<D, T>(blueprint, streaming);
    basis.host_weights = streaming ? static_cast<double>(streaming->host) : 0;
    basis.host_loading = streaming ? static_cast<double>(streaming->loading) : 0;
    const double held = target.held + train::trained_memory<T>(sizes, basis.shards(config)).total();
    if (!plan) {
      const train::StepBatches batches = full_batches(config);
      train::LargestBatch largest;
      for (const auto& batch : batches.batches) {
        largest.rows = std::max(largest.rows, batch.rows);
        largest.labeled = std::max(largest.labeled, batch.labeled);
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
      if (config.offloads_params() || config.zero_stage > 2) {
        streaming = detail::streaming_of<D, T>(blueprint, config, ranks, 0);
        if (streaming) {
          const double room = target.device_bytes - memory_of().peak() * 1.1 - 0x1p30;  // as keep_layers leaves
          streaming = detail::streaming_of<D, T>(blueprint, config, ranks,
                                                 static_cast<double>(streaming->device) + std::max(room, 0.0));
        }
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
        plan ? train::first_batches(*plan, stage, run->data.train(), config, blueprint.config.windows)
             : full_batches(config, blueprint.config.windows);
    StepForecast step{train::step_work<D, T>(batches, target.machine, blueprint, trains, recomputed)};
    const double share = 1.0 / basis.shards(config);
    const train::StepWork own = train::step_work<D, T>(train::busiest(batches, config, ranks), target.machine,
                                                       blueprint, trains, recomputed, share);
    const bool shared = streaming && streaming->from == model::WeightPlaces::From::ranks;
    if (streaming && !shared && streaming->layers > streaming->device)  // down and up again, but for what stays
      step.streamed = 2 * own.micro_batches * static_cast<double>(streaming->layers - streaming->device);
    double own_part = 0;  // of what ranks gather, that comes from the host before
    if (shared && config.offloads_params()) own_part = 2 * static_cast<double>(streaming->host);
    if (config.keeps_values_on_host()) {
      const double brought = detail::brought_values<T>(sizes);
      if (config.shares_values())
        own_part += brought / ranks;
      else
        step.streamed += own.micro_batches * brought;
    }
    train::TrafficBasis exchanged = traffic_basis<D, T>(blueprint, config, ranks, trains);
    exchanged.piece = target.gather_piece;
    const auto traffic = most_traffic(exchanged);
    ExchangeTime exchanges;
    for (const train::Traffic& one : traffic) {
      using Beside = train::Traffic::Beside;
      // What processors have in their own memory is moved by those who compute.
      const Beside beside = D::reads_host_memory ? Beside::nothing : one.beside;
      double& seconds = beside == Beside::anything   ? exchanges.beside_all
                        : beside == Beside::backward ? exchanges.beside_backward
                                                     : exchanges.alone;
      seconds += time_of_collectives(one.calls, one.sent, ranks, target.devices, target.rates);
      if (target.gather_piece > 0) seconds += 2 * one.received / target.rates.moved;  // out of scratch
    }
    if (own_part > 0) exchanges.beside_all += own.micro_batches * own_part / target.rates.link;
    step.time = time_of(own.work, target.rates, step.streamed, exchanges);
    if (step.time.seconds <= result.step.time.seconds) continue;
    result.step = step;
    result.traffic = traffic;
  }

  if (!result.memory) return result;
  // Processes of a host share its memory, and the pages of mapped weights.
  const bool has_host = !D::reads_host_memory;
  const double peak = result.memory->peak(), weights = result.memory->needs.weights;
  const double device = has_host ? peak + target.connected : weights + target.devices * (peak - weights);
  const double host = result.memory->host ? target.devices * result.memory->host->total() : 0;
  result.fits = device <= target.device_bytes && host <= target.host_bytes;
  const auto gib = [](double bytes) { return fixed(bytes / 0x1p30, 1) + " GiB"; };
  if (device > target.device_bytes)
    result.advice = concat("it needs ", gib(device), ", but the device has ", gib(target.device_bytes));
  else if (host > target.host_bytes)
    result.advice = concat("it needs ", gib(host), " of the host's memory, which has ", gib(target.host_bytes));
  return result;
}

}  // namespace lora::forecast

#ifndef LORA_COMPILED
#  include "lora/forecast/run_forecast.ipp"
#endif
