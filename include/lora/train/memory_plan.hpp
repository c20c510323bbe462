#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "lora/comm/sum_tree.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/run/environment.hpp"
#include "lora/settings/stage_lists.hpp"
#include "lora/train/memory.hpp"
#include "lora/train/offload.hpp"
#include "lora/train/plan.hpp"

namespace lora::train {

/// The predicted memory of a stage of a run with layers [0, recomputed) checkpointed: of the process, or of a device
/// that has its own, and then what the host keeps besides.
struct MemoryPlan {
  Index recomputed = 0;
  MemoryForecast needs{};       ///< of the largest micro-batch, or of an evaluation if that needs more
  bool evaluates_most = false;  ///< an evaluation does
  double held = 0;              ///< bytes that are resident besides; of a device's own memory without the weights
  TrainedMemory trained{};      ///< part of what is held
  std::size_t stage = 0;
  std::optional<HostMemory> host{};  ///< beside a device with memory of its own
  double present = 0;                ///< what of all this is held already when the run is planned
  double entering = 0;               ///< more for what trains, while the stage begins
  MemoryForecast before{};           ///< what earlier stages came to need, which the arena keeps
  double sums = 0, sums_before = 0;  ///< of a step's units: part of the workspace, and those of the stage before

  /// In the stage's steps and evaluations.
  double peak_in_stage() const;
  /// While the stage begins, and what trains moves.
  double peak_at_start() const;
  double peak() const { return std::max(peak_in_stage(), peak_at_start()); }
  bool peaks_at_start() const { return entering > 0 && peak_at_start() > peak_in_stage(); }
};

/// What the host keeps beside a device with memory of its own; nothing for one without. The optimizer's state is not
/// the device's then.
template <AnyDevice D, class T>
std::optional<HostMemory> host_memory(const MemoryBasis& basis, const settings::Config& config,
                                      const std::vector<nn::GroupSize>& sizes, TrainedMemory& trained) {
  if constexpr (D::reads_host_memory) {
    return std::nullopt;
  } else {
    HostMemory host{.weights = basis.host_weights + values_on_host<T>(sizes, basis.shards(config)),
                    .loading = basis.host_loading};
    if (config.offloads_optimizer()) {
      host.optimizer =
          static_cast<double>(optim::AdamW<D, T, optim::Host>::host_bytes(sizes, basis.largest_shard(config)));
      trained.moments = 0;
    }
    return host;
  }
}

/// Checkpoints as few layers as the memory limit allows, or all if gradient_checkpointing is set. `evaluation` has no
/// rows if nothing is evaluated; `start` says what is held, and what earlier stages came to need; `trains` what does.
/// Throws   ConfigError if the limit is exceeded with all layers checkpointed, or by an evaluation
template <AnyDevice D, class T>
MemoryPlan plan_memory(const MemoryBasis& basis, const LargestBatch& batch, const LargestBatch& evaluation,
                       const settings::Config& config, const MemoryPlan& start, const model::Trained& trains = {}) {
  const Index layers = basis.model.config.num_hidden_layers;
  MemoryForecast evaluating;
  if (evaluation.rows > 0)
    evaluating = forecast_evaluation<D, T>(basis, evaluation.rows, evaluation.labeled, config.shares_prefixes());
  const double sums = sums_memory<T>(
      basis.model.parameters().sizes(trains ? trains : model::Trained([](std::string_view) { return true; })),
      config.step_units, basis.ranks);
  const double gathered = basis.shards(config) > 1 ? largest_tensor<T>(basis.model.parameters(), trains) : 0;
  const double values = scratch_to_start<D, T>(basis.model);
  const bool on_host = start.host && config.offloads_optimizer();
  if (evaluation.rows > 0) evaluating.workspace += sums;
  if (evaluation.rows > 0 && config.eval_predict)
    evaluating.workspace += cache_bytes<T>(basis.model.config, evaluation.longest + config.answer_tokens());
  const auto plan = [&](Index count) {
    auto training = forecast_memory<D, T>(basis, batch.rows, batch.labeled, count, trains, batch.shares);
    training.workspace = std::max({training.workspace, values, on_host ? 0 : gathered});
    training.workspace += sums;
    MemoryPlan result = start;
    if (on_host) result.host->optimizer += gathered;
    result.recomputed = count;
    result.evaluates_most = training.total() < evaluating.total();
    result.needs = result.evaluates_most ? evaluating : training;
    // A device of its own memory keeps what either end of its arena came to need.
    if (start.host)
      result.needs = {basis.weights, std::max(training.activations, evaluating.activations),
                      std::max(training.workspace, evaluating.workspace)};
    result.sums = sums;
    return result;
  };
  const Index least = config.gradient_checkpointing ? layers : 0;
  if (!config.memory_limit_gib) return plan(least);
  const double limit = *config.memory_limit_gib * 0x1p30;
  for (Index count = least; count <= layers; ++count)
    if (const MemoryPlan found = plan(count); found.peak() <= limit) return found;
  const MemoryPlan most = plan(layers);
  const bool moves = most.peaks_at_start(), evaluates = !moves && most.evaluates_most;
  // What the batches of earlier stages have made of the arena is part of both.
  const bool batches_count = !moves || most.before.total() > most.before.weights;
  fail<ConfigError>("key memory_limit_gib: given ", *config.memory_limit_gib, ", but ",
                    moves       ? "while what trains changes "
                    : evaluates ? "for an evaluation "
                                : "with every layer checkpointed ",
                    fixed(most.peak() / 0x1p30, 2), " GiB are expected; allowed: more, ",
                    moves ? "or fewer tensors that train" : "or a smaller ",
                    moves       ? batches_count ? ", or a smaller max_tokens_per_micro_batch or cutoff_len" : ""
                    : evaluates ? "per_device_eval_batch_size or cutoff_len"
                                : "max_tokens_per_micro_batch or cutoff_len");
}

/// The same for a run of one stage, with all that may train. `held`: bytes already resident, where the device has no
/// memory of its own.
template <AnyDevice D, class T>
MemoryPlan plan_memory(const MemoryBasis& basis, const LargestBatch& batch, const LargestBatch& evaluation,
                       const settings::Config& config, double held = run::resident_memory_gib() * 0x1p30) {
  const auto sizes = basis.model.parameters().sizes([](std::string_view) { return true; });
  MemoryPlan start;
  start.trained = trained_memory<T>(sizes, basis.shards(config));
  start.host = host_memory<D, T>(basis, config, sizes, start.trained);
  start.held = start.present = start.host ? start.trained.total() : held;
  return plan_memory<D, T>(basis, batch, evaluation, config, start);
}

/// What is held in each stage of a run, and while it begins. `held`: bytes resident now, while what the first stage
/// trains does, and its optimizer is there.
template <AnyDevice D, class T>
std::vector<MemoryPlan> held_in_stages(const MemoryBasis& basis, const std::vector<Stage>& stages,
                                       const settings::Config& config, double held) {
  using Sizes = std::vector<nn::GroupSize>;
  const nn::ParamTable params = basis.model.parameters();
  const bool on_host = !D::reads_host_memory && config.offloads_optimizer();
  const model::Trained all = [](std::string_view) { return true; };
  const auto trains_in = [&](std::size_t i) { return stages[i].trains ? stages[i].trains : all; };
  std::vector<Sizes> sizes;
  for (std::size_t i = 0; i < stages.size(); ++i) sizes.push_back(params.sizes(trains_in(i)));
  std::vector<MemoryPlan> plans(stages.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    MemoryPlan& plan = plans[i];
    plan.stage = i;
    plan.trained = trained_memory<T>(sizes[i], basis.shards(config));
    plan.host = host_memory<D, T>(basis, config, sizes[i], plan.trained);
    if (i == 0) plan.present = plan.host ? plan.trained.total() : held;
    plan.held = plans[0].present - plans[0].trained.total() + plan.trained.total();
    plan.present = plans[0].present;
    const auto moves_on_host = [&] {
      const int shards = basis.shards(config);
      if (plan.host)
        plan.host->moving = values_on_host<T>(sizes[i], shards, true) - values_on_host<T>(sizes[i], shards);
    };
    double most = plan.trained.total();
    if (i == 0 && params.differs(all, trains_in(0))) {
      // Everything trained when it was made; then the first stage's choice was, before there was an optimizer.
      const int shards = basis.shards(config);
      moves_on_host();
      const TrainedMemory built = trained_memory<T>(params.sizes(all), shards);
      most = std::max(
          {most, built.total() - built.moments, memory_to_move<D, T>(params.sizes(all), sizes[0], true, shards)});
    }
    for (const std::size_t from : {i - 1, std::size_t{0}}) {  // or a resumed run begins in this stage
      if (i == 0 || !params.differs(trains_in(from), trains_in(i))) continue;
      moves_on_host();
      most = std::max(most, memory_to_move<D, T>(sizes[from], sizes[i], on_host, basis.shards(config)));
      if constexpr (!D::reads_host_memory)
        if (on_host)
          plan.host->optimizer =
              std::max(plan.host->optimizer, static_cast<double>(optim::AdamW<D, T, optim::Host>::host_bytes_to_follow(
                                                 sizes[from], sizes[i], basis.largest_shard(config))));
    }
    plan.entering = most - plan.trained.total();
  }
  return plans;
}

/// The plan of each stage of a run. `held`: bytes resident while what the first stage trains is.
/// Throws   ConfigError as above, naming the stage, and where the host has too little memory for a later stage's
///          optimizer
template <AnyDevice D, class T>
std::vector<MemoryPlan> plan_memory(const MemoryBasis& basis, const Plan& plan, const data::EncodeSummary& records,
                                    const LargestBatch& evaluation, const settings::Config& config,
                                    double held = run::resident_memory_gib() * 0x1p30) {
  const settings::StageConfigs configs(config);
  std::vector<MemoryPlan> plans = held_in_stages<D, T>(basis, plan.stages(), config, held);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const Stage& stage = plan.stages()[i];
    if (i > 0) {
      const MemoryPlan& last = plans[i - 1];
      plans[i].before = {last.needs.weights, std::max(last.before.activations, last.needs.activations),
                         std::max(last.before.workspace, last.needs.workspace - last.sums)};
      plans[i].sums_before = last.sums;
    }
    try {
      const Index of_unit = (stage.sequences_per_step + config.step_units - 1) / config.step_units;
      inputs::Sharing shared = stage.shared;
      // Later steps may share less, and must keep a limit, and leave room for the layers that stay on a device, too.
      if (config.memory_limit_gib || !D::reads_host_memory) shared.rows = 1;
      plans[i] = plan_memory<D, T>(basis, largest_batch(records, stage.limit, of_unit, shared), evaluation, configs[i],
                                   plans[i], stage.trains);
      // The first stage's choice has been made.
      if (const auto& host = plans[i].host)
        expect_host_has(host->optimizer + (i > 0 ? host->moving : 0), plans[0].host->optimizer);
    } catch (const ConfigError& error) {
      if (config.stages.empty()) throw;
      fail<ConfigError>(settings::stage_name(config, i), ": ", std::string_view(error.what()));
    }
  }
  return plans;
}

/// Lets as many of a model's streamed layers stay on the device as there is room for, beside what `plans` forecast and
/// a tenth and 1 GiB more, for what operators take of themselves.
template <AnyDevice D, class T>
void keep_layers(D& dev, model::Decoder<D, T>& decoder, std::vector<MemoryPlan>& plans,
                 const settings::Config& config) {
  if (!decoder.streaming()) return;
  double room = static_cast<double>(dev.memory().free);
  for (const MemoryPlan& plan : plans) {
    const double needed = plan.peak() - plan.needs.weights - plan.present;  // the weights are there
    room = std::min(room, static_cast<double>(dev.memory().free) - 1.1 * needed - 0x1p30);
    if (config.memory_limit_gib) room = std::min(room, *config.memory_limit_gib * 0x1p30 - plan.peak());
  }
  if (room <= 0) return;
  const auto taken = static_cast<double>(decoder.keep_layers(static_cast<std::size_t>(room)));
  for (MemoryPlan& plan : plans) plan.needs.weights += taken;
}

/// The plan of the stage that needs most.
const MemoryPlan& largest(const std::vector<MemoryPlan>& plans);

/// Logs the plan before training, for a model of `layers` layers. `device`: its memory, where it has its own.
void say_memory(const MemoryPlan& plan, Index layers, const settings::Config& config, const MemoryInfo& device = {});

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/memory_plan.ipp"
#endif
