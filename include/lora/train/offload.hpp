#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/kernel/attention.hpp"
#include "lora/model/decoder/layers.hpp"
#include "lora/model/weights/streamed_layers.hpp"
#include "lora/optim/host.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/stage_lists.hpp"

// What keys want of a device and its memory.

namespace lora::train {

/// Throws   ConfigError where there is nothing to gain
template <AnyDevice D>
void expect_offload_fits(const settings::Config& config) {
  if (config.offload != "none" && D::reads_host_memory)
    fail<ConfigError>("key offload: given ", config.offload, ", but the run's device is the processors, whose memory ",
                      "is the host's: weights are used in place from the mapped files; allowed: none");
}

/// Where the device's attention does not take rows that sequences have in common (kernel::takes_trees), nothing is
/// shared.
/// Throws   ConfigError where it should be
inline void settle_prefixes(settings::Config& config, const kernel::AttentionShape& heads, bool takes) {
  if (takes) return;
  if (config.share_prefixes.value_or(false) && heads.window > 0)
    fail<ConfigError>("key share_prefixes: given true, but the device's attention does not take it: the model has ",
                      "layers that see a window of ", heads.window, " tokens; allowed: false");
  if (config.share_prefixes.value_or(false))
    fail<ConfigError>("key share_prefixes: given true, but the device's attention does not take it: the model has ",
                      heads.heads, " heads of ", heads.width, " numbers, and NPUs take heads of a multiple of 64, not ",
                      "too many, where the toolkit has RingAttentionUpdate; allowed: false");
  config.share_prefixes = false;
}

/// What attention over rows in common must be able to: a window counts where a record may be longer.
inline kernel::AttentionShape shared_attention(const settings::Config& config, const model::Config& model) {
  const Index window = model::narrowest_window(model);
  return model::attention_shape(model, settings::longest_cutoff(config) > window ? window : 0);
}

template <AnyDevice D>
void settle_prefixes(D& dev, settings::Config& config, const model::Config& model) {
  const kernel::AttentionShape heads = shared_attention(config, model);
  settle_prefixes(config, heads, kernel::takes_trees(dev, heads));
}

/// Of one of `ranks`. On the processors layers stay mapped from their files, which all processes of a host share.
/// `trained`: of the model's own tensors, those that may train.
template <AnyDevice D>
model::WeightPlaces weight_places(const settings::Config& config, int ranks,
                                  std::function<bool(const model::TensorInfo&)> trained = {}) {
  model::WeightPlaces places;
  places.trained = std::move(trained);
  places.streams_layers = config.offloads_params();
  places.trains_on_host = config.keeps_values_on_host();
  places.shares_layers = !D::reads_host_memory && config.zero_stage > 2 && ranks > 1;
  places.threads = static_cast<int>(config.threads.value_or(0));
  return places;
}

/// Throws   ConfigError for zero_stage 3 where nobody shares, and with what a rank does while others don't
template <AnyDevice D>
void expect_sharing_fits(const settings::Config& config, int ranks) {
  if (config.zero_stage > 2 && ranks == 1)
    fail<ConfigError>("key zero_stage: given ", config.zero_stage, ", but a single process has nobody to share layers ",
                      "with; allowed: 0, 1 or 2, or more processes");
  if (config.eval_predict && (config.shares_values() || weight_places<D>(config, ranks).shares_layers))
    fail<ConfigError>("key eval_predict: given true, but with zero_stage 3 ", config.shares_values() ? "ranks" : "NPUs",
                      " gather each layer together, and answers differ in length; allowed: false, or zero_stage 0, 1 ",
                      "or 2");
}

inline optim::StatePlace state_place(const settings::Config& config) {
  return {.on_host = config.offloads_optimizer(), .threads = static_cast<int>(config.threads.value_or(0))};
}

/// What a run keeps in the host's memory beside a device of its own, in bytes.
struct HostMemory {
  double weights = 0;  ///< page-locked, of streamed layers and of what trains
  double optimizer =
      0;  ///< moments, values unless they are weights, what travels, and a tensor that ranks gather for a checkpoint
  double loading = 0;  ///< page-locked, of a layer that ranks share out; before there is an optimizer
  double moving = 0;   ///< more of weights, while what trains changes

  double total() const { return weights + moving + std::max(optimizer, loading); }
};

/// Throws   ConfigError where the host's memory does not hold an optimizer of `needed` bytes, of which `present` are
///          there
inline void expect_host_has(double needed, double present, std::size_t available = cpu::available_memory()) {
  if (needed - present > static_cast<double>(available))
    fail<ConfigError>("key offload: the optimizer's state needs ", size_text(static_cast<std::size_t>(needed)),
                      " of the host's memory, but ", size_text(static_cast<std::size_t>(present) + available),
                      " are available; allowed: none, or params with an adapter");
}

/// Throws   ConfigError where the host's memory does not hold `values` and an optimizer of so many bytes
inline void expect_host_has_values(double values, double optimizer, std::size_t available = cpu::available_memory()) {
  if (values + optimizer > static_cast<double>(available))
    fail<ConfigError>("key offload: the weights that train and the optimizer's state need ",
                      size_text(static_cast<std::size_t>(values + optimizer)), " of the host's memory, but ",
                      size_text(available), " are available; allowed: none or optimizer, which need less, or with ",
                      "zero_stage 3 more processes, which share them out");
}

/// Logs how the layers come, where they are streamed or shared out. `held`: bytes of the values of what trains that
/// this rank has on its device, with the room for layers; `on_host`: on its host.
inline void say_offload(const std::optional<model::LayerStreaming>& streaming, const settings::Config& config,
                        std::size_t held, std::size_t on_host = 0) {
  if (on_host > 0) {
    log::info("offload: the weights that train", config.shares_values() ? ", of which this rank has its part," : "",
              " lie beside the optimizer's state in ", size_text(on_host), " of page-locked memory, and each layer ",
              config.shares_values() ? "is gathered" : "is copied", " ahead of its use: ", size_text(held),
              " of the device's memory");
    if (!streaming) return;
  } else if (config.shares_values()) {
    log::info(
        "zero_stage 3: of the weights that train this rank has its part, and gathers each layer ahead of its use: ",
        size_text(held), " of memory");
    if (!streaming) return;
  } else if (!streaming && config.zero_stage > 2) {
    log::info("zero_stage 3: the model's weights stay mapped from their files, which the processes of a host share; ",
              "otherwise as zero_stage 2");
  }
  if (!streaming) return;
  using From = model::WeightPlaces::From;
  if (streaming->from == From::ranks) {
    log::info("zero_stage 3: of the layers as they are stored, ", size_text(streaming->layers),
              ", this rank has its part, and gathers each ahead of its use: ", size_text(streaming->device),
              " of the device's memory",
              streaming->host > 0 ? concat(" and ", size_text(streaming->host), " of page-locked memory") : "");
    return;
  }
  const bool resident = streaming->from == From::memory;
  log::info("offload: the layers, ", size_text(streaming->layers), ", are copied to ", size_text(streaming->device),
            " of the device's memory ahead of their use, from ", size_text(streaming->host), " of page-locked memory ",
            resident ? "that holds all of them" : "that threads of the host fill from the files");
}

}  // namespace lora::train
