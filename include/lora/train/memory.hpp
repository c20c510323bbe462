#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "lora/core/log.hpp"
#include "lora/cpu/machine.hpp"
#include "lora/data/encode.hpp"
#include "lora/model/decoder.hpp"
#include "lora/train/config.hpp"
#include "lora/train/environment.hpp"
#include "lora/train/progress.hpp"
#include "lora/train/records.hpp"

namespace lora::train {

/// What a micro-batch will need at its peak, in bytes, from the shapes alone.
struct MemoryForecast {
  double weights = 0;      ///< the model's, mapped from its files
  double activations = 0;  ///< kept for backward
  double workspace = 0;    ///< of the largest stage

  double total() const { return weights + activations + workspace; }
};

/// Bytes of the files that hold the model's weights.
inline double weight_bytes(const model::Source& source) {
  if (source.gguf()) return static_cast<double>(std::filesystem::file_size(source.path()));
  double bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source.path()))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<double>(entry.file_size());
  return bytes;
}

/// Of a model whose layers [0, `recomputed`) are checkpointed. Not counted: what kernels hold for sums of their own, up
/// to a fifth of the workspace.
/// Shapes   N `rows`, of which n `labelled`; letters as in the design
template <AnyDevice D, class T>
MemoryForecast forecast_memory(model::Decoder<D, T>& decoder, double weight_bytes, Index rows, Index labelled,
                               Index recomputed) {
  const model::Config& c = decoder.config();
  const model::AdapterConfig& adapter = decoder.adapter();
  const auto d = [](Index value) { return static_cast<double>(value); };
  const double t = sizeof(T), a = sizeof(Accum<T>);
  const double n = d(rows), e = d(c.hidden_size), f = d(c.intermediate_size), layers = d(c.num_hidden_layers);
  const double q = d(c.num_attention_heads * c.head_dim), qkv = q + 2 * d(c.num_key_value_heads * c.head_dim);
  double ranks = 0;  // ΣR of a layer
  for (const auto name : model::projection_names) ranks += d(adapter.rank_of(0, name).rank);

  const double kept = n * (q * t + d(c.num_attention_heads) * a);  // attention's output and row sums
  const double norms = c.qk_norm ? n * d(c.num_attention_heads + c.num_key_value_heads) * a : 0;
  const double layer = kept + norms + n * ((e + qkv + 2 * f + ranks) * t + 2 * a);
  MemoryForecast forecast;
  forecast.weights = weight_bytes;
  const double again = d(std::min(recomputed, c.num_hidden_layers));
  forecast.activations = layers * n * e * t + again * kept + (layers - again) * layer + (again > 0 ? layer : 0);

  const bool dropout = adapter.dropout > 0;
  const bool widens = !stores<T>(decoder.head().weight().dtype());
  const double mlp = n * f * t + (dropout ? n * f * t : 0) + (widens ? 2 * e * f * t : 0);
  const double attention = n * (2 * qkv + q) * t + (dropout ? n * e * t : 0);
  const double head = 3 * d(labelled) * e * t + d(decoder.head().scratch_bytes(labelled, true));
  forecast.workspace = 2 * n * e * t + std::max(head, 2 * n * e * t + std::max(mlp, attention));
  return forecast;
}

/// The largest micro-batch that a run may meet: of the longest records.
struct LargestBatch {
  Index rows = 0;
  Index labelled = 0;  ///< of them, by the share of all rows that are
};

/// Of records that are taken `per_step` at a time.
inline LargestBatch largest_batch(const data::EncodeSummary& records, const MicroBatchLimit& limit, Index per_step) {
  const Index longest = records.length_at(1);
  const Index filled = limit.tokens > 0 ? std::max(limit.tokens, longest) : longest * limit.sequences;
  const Index rows = std::min({filled, longest * per_step, records.tokens()});
  if (records.tokens() == 0) return {};
  const double share = static_cast<double>(records.labelled()) / static_cast<double>(records.tokens());
  return {rows, static_cast<Index>(std::ceil(share * static_cast<double>(rows)))};
}

/// What a run will need of memory, with the layers [0, recomputed) checkpointed.
struct MemoryPlan {
  Index recomputed = 0;
  MemoryForecast needs{};
  double held = 0;  ///< bytes that the process has already
};

/// Checkpoints as few layers as the memory limit allows, all where checkpointing is asked for.
/// Throws   ConfigError if not even all are enough
template <AnyDevice D, class T>
MemoryPlan plan_memory(model::Decoder<D, T>& decoder, double weight_bytes, const LargestBatch& batch,
                       const Config& config) {
  const Index layers = decoder.config().num_hidden_layers;
  const double held = resident_memory_gib() * 0x1p30;
  const auto plan = [&](Index count) {
    return MemoryPlan{count, forecast_memory(decoder, weight_bytes, batch.rows, batch.labelled, count), held};
  };
  if (config.gradient_checkpointing) return plan(layers);
  if (!config.memory_limit_gib) return plan(0);
  const double limit = *config.memory_limit_gib * 0x1p30;
  for (Index count = 0; count <= layers; ++count)
    if (const MemoryPlan found = plan(count); held + found.needs.total() <= limit) return found;
  fail<ConfigError>("key memory_limit_gib: given ", *config.memory_limit_gib, ", but with every layer checkpointed ",
                    detail::formatted("%.2f GiB", (held + plan(layers).needs.total()) / 0x1p30),
                    " are expected; allowed: more, or a smaller max_tokens_per_micro_batch or cutoff_len");
}

/// For the lines before training of a model of so many layers.
inline void say_memory(const MemoryPlan& plan, Index layers, const Config& config) {
  const double needed = plan.needs.total() / 0x1p30, held = plan.held / 0x1p30;
  const double available = static_cast<double>(cpu::available_memory()) / 0x1p30;
  const auto gib = [](double value) { return detail::formatted("%.2f GiB", value); };
  log::info("memory: a peak of about ", gib(held + needed), " is expected (weights ", gib(plan.needs.weights / 0x1p30),
            ", activations ", gib(plan.needs.activations / 0x1p30), ", workspace ", gib(plan.needs.workspace / 0x1p30),
            ", held already ", gib(held), "); ", gib(available), " are available");
  if (plan.recomputed > 0 && !config.gradient_checkpointing)
    log::info("gradients of ", plan.recomputed, " of ", layers, " layers are checkpointed to stay below ",
              *config.memory_limit_gib, " GiB");
  if (needed > available)
    log::warn("this may not fit into memory: set gradient_checkpointing true, or a smaller ",
              "max_tokens_per_micro_batch or cutoff_len");
}

}  // namespace lora::train
