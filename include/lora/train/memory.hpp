#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/comm/sum_tree.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/machine.hpp"
#include "lora/data/encode.hpp"
#include "lora/inputs/records.hpp"
#include "lora/model/decoder.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/progress.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/answers.hpp"
#include "lora/train/offload.hpp"
#include "lora/train/plan.hpp"

namespace lora::train {

/// Predicted peak memory of a micro-batch, or of an evaluation batch, in bytes, from the shapes alone.
struct MemoryForecast {
  double weights = 0;      ///< the model's, mapped from its files
  double activations = 0;  ///< saved for backward; in an evaluation the widest rows
  double workspace = 0;    ///< of the largest stage

  double total() const { return weights + activations + workspace; }
};

/// Bytes of the model's weights as they are stored.
inline double weight_bytes(const model::Source& source) {
  double bytes = 0;
  model::for_each_tensor(source.config(), [&](const model::TensorInfo& info) {
    bytes += static_cast<double>(bytes_of(source.dtype_of(info), info.shape.count()));
  });
  return bytes;
}

/// Bytes of them that lie in the memory of the run's device, or that it maps: of streamed layers the device's room for
/// them, and blocks decoded where the host does that.
template <AnyDevice D, class T>
double weight_bytes(const model::Decoder<D, T>& decoder, const model::Source& source) {
  if constexpr (D::reads_host_memory) {
    return weight_bytes(source);
  } else {
    const auto& streaming = decoder.streaming();
    double bytes = streaming ? static_cast<double>(streaming->device) : 0;
    model::for_each_tensor(source.config(), [&](const model::TensorInfo& info) {
      if (streaming && info.kind == model::TensorInfo::Kind::projection) return;
      const DType stored = source.dtype_of(info);
      const bool vector = info.shape.rank() == 1,
                 decoded = block_elements(stored) > 1 ? !model::stays_quantised<D>(info, stored) : !D::decodes(stored);
      const Index count = info.shape.count(), each = vector ? sizeof(Accum<T>) : sizeof(T);
      bytes += static_cast<double>(vector || decoded ? count * each : bytes_of(stored, count));
    });
    return bytes;
  }
}

/// Bytes of what trains, beside the model's weights as they are stored.
struct TrainedMemory {
  double masters = 0;    ///< values in Accum<T>
  double copies = 0;     ///< what products read, where T is narrower
  double gradients = 0;  ///< of a step of one unit
  double moments = 0;    ///< the optimizer's, of the rank with the largest part

  double total() const { return masters + copies + gradients + moments; }
};

/// From the description alone, before anything is loaded: for an adapter (null: none) and those of the model's own
/// tensors for which `trains` is true, with the optimizer's state shared out among `ranks`.
template <class T, class Trains>
TrainedMemory forecast_trained(const model::Config& config, const model::AdapterConfig* adapter, const Trains& trains,
                               int ranks = 1) {
  Index groups[2] = {0, 0};  // elements: matrices, and what does not decay
  const auto add = [&](Index group, Index count) {
    groups[group] += (count + kernel::sum_block - 1) / kernel::sum_block * kernel::sum_block;
  };
  Index stacked = 0, in = 0;  // the rows of A of the projections that share an input
  model::for_each_tensor(config, [&](const model::TensorInfo& info) {
    if (trains(info)) add(info.shape.rank() > 1 ? 0 : 1, info.shape.count());
    if (adapter == nullptr || info.kind != model::TensorInfo::Kind::projection) return;
    if (info.projection != "k_proj" && info.projection != "v_proj" && info.projection != "up_proj") {
      add(0, stacked * in);
      stacked = 0;
    }
    const Index rank = adapter->rank_of(info.layer, info.projection).rank;
    stacked += rank;
    in = info.shape[1];
    add(0, rank * info.shape[0]);
  });
  add(0, stacked * in);
  TrainedMemory memory;
  for (const Index elements : groups) {
    const auto parts = comm::even_parts(elements / kernel::sum_block, kernel::sum_block, ranks);
    Index largest = 0;
    for (std::size_t i = 1; i < parts.size(); ++i) largest = std::max(largest, parts[i] - parts[i - 1]);
    const double bytes = static_cast<double>(elements) * sizeof(Accum<T>);
    memory.masters += bytes;
    memory.gradients += bytes;
    if (!std::same_as<T, Accum<T>>) memory.copies += static_cast<double>(elements) * sizeof(T);
    memory.moments += 2 * static_cast<double>(largest) * sizeof(Accum<T>);
  }
  return memory;
}

/// The adapter that a model has; null if it has none.
template <class Model>
const model::AdapterConfig* adapter_of(Model& decoder) {
  bool any = false;
  model::for_each_factor(decoder, [&](const auto&) { any = true; });
  return any ? &decoder.adapter() : nullptr;
}

/// Whether products of a weight of the layers decode it first.
template <class Model>
bool decodes_projections(Model& decoder) {
  bool any = false;
  for (Index i = 0; i < decoder.stack().size(); ++i) {
    auto& block = decoder.stack().layer(i).inner();
    for (auto* group : {&block.attention().qkv_proj(), &block.attention().o_proj(), &block.mlp().gate_up_proj(),
                        &block.mlp().down_proj()})
      for (std::size_t j = 0; j < group->projections().size(); ++j) any = any || group->linear(j).weight.decodes();
  }
  return any;
}

/// For a model whose layers [0, `recomputed`) are checkpointed. Kernels' own buffers, up to a fifth of the workspace,
/// are not counted. Shapes   N `rows`, of which n `labelled`; letters as in the design
template <AnyDevice D, class T>
MemoryForecast forecast_memory(model::Decoder<D, T>& decoder, double weight_bytes, Index rows, Index labelled,
                               Index recomputed) {
  const model::Config& c = decoder.config();
  const model::AdapterConfig* adapter = adapter_of(decoder);
  const auto d = [](Index value) { return static_cast<double>(value); };
  const double t = sizeof(T), a = sizeof(Accum<T>);
  const double n = d(rows), e = d(c.hidden_size), f = d(c.intermediate_size), layers = d(c.num_hidden_layers);
  const double q = d(c.num_attention_heads * c.head_dim), qkv = q + 2 * d(c.num_key_value_heads * c.head_dim);
  double ranks = 0;  // ΣR of a layer
  if (adapter != nullptr)
    for (const auto name : model::projection_names) ranks += d(adapter->rank_of(0, name).rank);

  const double sums = d(c.num_attention_heads * kernel::Attention<D>::saved_per_head) * a;
  const double kept = n * (q * t + sums);  // attention's output and what its backward needs
  const double norms = c.qk_norm ? n * d(c.num_attention_heads + c.num_key_value_heads) * a : 0;
  const bool dropout = adapter != nullptr && adapter->dropout > 0;
  const kernel::DropoutBytes dropping =
      dropout ? kernel::Elementwise<D>::template dropout_bytes<T>() : kernel::DropoutBytes{};
  const double masks = n * (2 * e + q + f) * dropping.kept;
  const double layer = kept + norms + masks + n * ((e + qkv + 2 * f + ranks) * t + 2 * a);
  MemoryForecast forecast;
  forecast.weights = weight_bytes;
  const double again = d(std::min(recomputed, c.num_hidden_layers));
  forecast.activations = layers * n * e * t + again * kept + (layers - again) * layer + (again > 0 ? layer : 0);

  const bool decodes = decodes_projections(decoder);
  const double input = n * e * t * (dropout ? 2 : 1);  // the norm's output, and what dropout makes of it
  const double apart = kernel::swiglu_backward_in_place<D> ? 0 : 2 * n * f * t;  // gradients of gate and up
  const double mlp =
      apart + std::max(n * f * (t + std::max(dropout ? t : 0, dropping.scratch)) + (decodes ? e * f * t : 0),
                       input + (decodes ? 2 * e * f * t : 0));
  const double attention = n * (q + qkv) * t + std::max(input, c.qk_norm ? n * (q + qkv) / 2 * t : 0);
  const double head = 3 * d(labelled) * e * t + d(decoder.head().scratch_bytes(labelled, true));
  // The stack's output and gradient, and the gradient between a layer's halves; then its widest part, or the head.
  forecast.workspace = 2 * n * e * t + std::max(head, n * e * t + std::max(mlp, attention));
  return forecast;
}

/// For an evaluation, which saves nothing between layers.
/// Shapes   as above
template <AnyDevice D, class T>
MemoryForecast forecast_evaluation(model::Decoder<D, T>& decoder, double weight_bytes, Index rows, Index labelled) {
  const model::Config& c = decoder.config();
  const auto d = [](Index value) { return static_cast<double>(value); };
  const double t = sizeof(T);
  const double n = d(rows), e = d(c.hidden_size), f = d(c.intermediate_size);
  const double q = d(c.num_attention_heads * c.head_dim), kv = d(c.num_key_value_heads * c.head_dim);
  const bool decodes = decodes_projections(decoder);
  const double gate_up = 2 * n * f * t;
  const double mlp = std::max(n * f * t + (decodes ? e * f * t : 0), n * e * t + (decodes ? 2 * e * f * t : 0));
  const double attention = n * (q + (q + 2 * kv) + std::max(e, c.qk_norm ? q + kv : 0)) * t;
  const double head = 2 * d(labelled) * e * t + d(decoder.head().scratch_bytes(labelled, false));
  MemoryForecast forecast;
  forecast.weights = weight_bytes;
  forecast.activations = gate_up;
  // The stack's input and output, a layer's input, output and h; then its widest part, or the head.
  forecast.workspace = n * e * t + std::max(head, 4 * n * e * t + std::max(mlp, attention));
  return forecast;
}

/// Keys and values of the records that are answered together, each of `length` tokens.
template <class T>
double cache_bytes(const model::Config& config, Index length) {
  const Index numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
  return static_cast<double>(answered_together) * static_cast<double>(numbers * length) * sizeof(T);
}

/// The largest micro-batch that a run can have, from the longest records.
struct LargestBatch {
  Index rows = 0;
  Index labelled = 0;  ///< estimated from the share of labelled rows
  Index longest = 0;   ///< record, of an evaluation
};

/// For records that are taken `per_step` at a time.
inline LargestBatch largest_batch(const data::EncodeSummary& records, const inputs::MicroBatchLimit& limit,
                                  Index per_step) {
  const Index longest = std::min(records.length_at(1), limit.cutoff_len);
  const Index filled = limit.tokens > 0 ? std::max(limit.tokens, longest) : longest * limit.sequences;
  const Index rows = std::min({filled, longest * per_step, records.tokens()});
  if (records.tokens() == 0) return {};
  const double share = static_cast<double>(records.labelled()) / static_cast<double>(records.tokens());
  return {rows, static_cast<Index>(std::ceil(share * static_cast<double>(rows)))};
}

/// The same for an evaluation of `sequences` at a time, which reads longer records in windows.
inline LargestBatch largest_evaluation(const data::EncodeSummary& records, Index sequences, Index window) {
  if (records.tokens() == 0) return {};
  const Index longest = std::min(records.length_at(1), window);
  // The stride is half a window, so a token is in at most two windows.
  const Index all = records.length_at(1) > window ? 2 * records.tokens() : records.tokens();
  const Index rows = std::min(longest * sequences, all);
  const double share = static_cast<double>(records.labelled()) / static_cast<double>(records.tokens());
  return {rows, static_cast<Index>(std::ceil(share * static_cast<double>(rows))), records.length_at(1)};
}

/// The predicted memory of a run with layers [0, recomputed) checkpointed: of the process, or of a device that has its
/// own, and then what the host keeps besides.
struct MemoryPlan {
  Index recomputed = 0;
  MemoryForecast needs{};   ///< of the largest micro-batch, or of an evaluation if that needs more
  double held = 0;          ///< bytes already resident; of a device's own memory without the weights
  TrainedMemory trained{};  ///< part of what is held
  std::size_t stage = 0;
  std::optional<HostMemory> host{};  ///< beside a device with memory of its own
};

/// What the host keeps beside a device with memory of its own; nothing for one without. The optimizer's state is not
/// the device's then.
template <AnyDevice D, class T>
std::optional<HostMemory> host_memory(model::Decoder<D, T>& decoder, const settings::Config& config,
                                      TrainedMemory& trained) {
  if constexpr (D::reads_host_memory) {
    return std::nullopt;
  } else {
    HostMemory host;
    if (const auto& streaming = decoder.streaming()) host.weights = static_cast<double>(streaming->host);
    if (config.offloads_optimizer()) {
      host.optimizer = static_cast<double>(optim::AdamW<D, T, optim::Host>::host_bytes(decoder.params()));
      trained.moments = 0;
    }
    return host;
  }
}

/// Checkpoints as few layers as the memory limit allows, or all if gradient_checkpointing is set. `evaluation` has no
/// rows if nothing is evaluated; `held`: bytes already resident, where the device has no memory of its own.
/// Throws   ConfigError if the limit is exceeded with all layers checkpointed, or by an evaluation
template <AnyDevice D, class T>
MemoryPlan plan_memory(model::Decoder<D, T>& decoder, double weight_bytes, const LargestBatch& batch,
                       const LargestBatch& evaluation, const settings::Config& config,
                       double held = run::resident_memory_gib() * 0x1p30) {
  const Index layers = decoder.config().num_hidden_layers;
  MemoryForecast evaluating;
  if (evaluation.rows > 0)
    evaluating = forecast_evaluation(decoder, weight_bytes, evaluation.rows, evaluation.labelled);
  std::set<std::string, std::less<>> names;
  for (const auto& entry : decoder.params().entries()) names.insert(entry.name);
  TrainedMemory trained =
      forecast_trained<T>(decoder.config(), adapter_of(decoder),
                          [&](const model::TensorInfo& info) { return names.count(info.name) != 0; });
  const std::optional<HostMemory> host = host_memory(decoder, config, trained);
  if (host) held = trained.total();
  const double sums =  // of units, from the first step on
      config.step_units > 1 ? trained.gradients * static_cast<double>(1 + comm::waiting_sums(config.step_units)) : 0;
  if (evaluation.rows > 0) evaluating.workspace += sums;
  if (evaluation.rows > 0 && config.eval_predict)
    evaluating.workspace += cache_bytes<T>(decoder.config(), evaluation.longest + config.max_new_tokens);
  const auto plan = [&](Index count) {
    auto training = forecast_memory(decoder, weight_bytes, batch.rows, batch.labelled, count);
    training.workspace += sums;
    MemoryPlan result{count, training.total() < evaluating.total() ? evaluating : training, held, trained};
    // A device of its own memory keeps what either end of its arena came to need.
    if (host)
      result.needs = {weight_bytes, std::max(training.activations, evaluating.activations),
                      std::max(training.workspace, evaluating.workspace)};
    result.host = host;
    return result;
  };
  const Index least = config.gradient_checkpointing ? layers : 0;
  if (!config.memory_limit_gib) return plan(least);
  const double limit = *config.memory_limit_gib * 0x1p30;
  for (Index count = least; count <= layers; ++count)
    if (const MemoryPlan found = plan(count); held + found.needs.total() <= limit) return found;
  const bool evaluates_too_much = evaluation.rows > 0 && held + evaluating.total() > limit;
  const double needed = held + (evaluates_too_much ? evaluating : plan(layers).needs).total();
  fail<ConfigError>("key memory_limit_gib: given ", *config.memory_limit_gib, ", but ",
                    evaluates_too_much ? "for an evaluation " : "with every layer checkpointed ",
                    fixed(needed / 0x1p30, 2), " GiB are expected; allowed: more, or a smaller ",
                    evaluates_too_much ? "per_device_eval_batch_size" : "max_tokens_per_micro_batch", " or cutoff_len");
}

/// The plan of each stage of a run. What is resident is asked for now, while all that any stage trains does.
/// Throws   ConfigError as above, naming the stage
template <AnyDevice D, class T>
std::vector<MemoryPlan> plan_memory(model::Decoder<D, T>& decoder, const model::Source& source, const Plan& plan,
                                    const data::EncodeSummary& records, const LargestBatch& evaluation,
                                    const settings::Config& config) {
  const std::vector<settings::Config> configs = settings::stage_configs(config);
  const double held = run::resident_memory_gib() * 0x1p30;
  std::vector<MemoryPlan> plans;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const Stage& stage = plan.stages()[i];
    try {
      plans.push_back(plan_memory(decoder, weight_bytes(decoder, source),
                                  largest_batch(records, stage.limit, stage.sequences_per_step), evaluation, configs[i],
                                  held));
      plans.back().stage = i;
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
    const double needed = plan.needs.total() - plan.needs.weights;  // the weights are there
    room = std::min(room, static_cast<double>(dev.memory().free) - 1.1 * needed - 0x1p30);
    if (config.memory_limit_gib)
      room = std::min(room, *config.memory_limit_gib * 0x1p30 - plan.held - plan.needs.total());
  }
  if (room <= 0) return;
  const auto taken = static_cast<double>(decoder.keep_layers(static_cast<std::size_t>(room)));
  for (MemoryPlan& plan : plans) plan.needs.weights += taken;
}

/// The plan of the stage that needs most.
inline const MemoryPlan& largest(const std::vector<MemoryPlan>& plans) {
  return *std::max_element(plans.begin(), plans.end(),
                           [](const MemoryPlan& a, const MemoryPlan& b) { return a.needs.total() < b.needs.total(); });
}

/// Logs the plan before training, for a model of `layers` layers. `device`: its memory, where it has its own.
inline void say_memory(const MemoryPlan& plan, Index layers, const settings::Config& config,
                       const MemoryInfo& device = {}) {
  // What is still to be taken: a device holds its weights already.
  const double needed = plan.needs.total() - (plan.host ? plan.needs.weights : 0);
  const double available = static_cast<double>(plan.host ? device.free : cpu::available_memory());
  const auto gib = [](double value) { return fixed(value / 0x1p30, 2) + " GiB"; };
  log::info("memory: a peak of about ", gib(plan.held + plan.needs.total()), " is expected",
            plan.host ? " on the device" : "", " (weights ", gib(plan.needs.weights), ", activations ",
            gib(plan.needs.activations), ", workspace ", gib(plan.needs.workspace), ", held already ", gib(plan.held),
            ", of it ", size_text(static_cast<double>(plan.trained.total())), " for what trains); ", gib(available),
            " are available");
  if (plan.host && plan.host->total() > 0)
    log::info("memory of the host: ", gib(plan.host->weights), " for weights that are streamed, ",
              gib(plan.host->optimizer), " for the optimizer; ", gib(static_cast<double>(cpu::available_memory())),
              " are still available");
  if (plan.recomputed > 0 && !config.gradient_checkpointing && config.memory_limit_gib)
    log::info("gradients of ", plan.recomputed, " of ", layers, " layers are checkpointed to stay below ",
              *config.memory_limit_gib, " GiB");
  if (needed > available)
    log::warn("this may not fit into memory: set gradient_checkpointing true, or a smaller ",
              "max_tokens_per_micro_batch or cutoff_len");
}

}  // namespace lora::train
