#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lora/forecast/run_forecast.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::forecast {

/// A run, with what it was forecast from.
struct Report {
  std::string model;  ///< in words, with what trains
  std::string device;
  std::string data;                                ///< where its sequences come from
  std::string ranks = "1, which holds all of it";  ///< or how many, and what they share out
  int devices = 1, nodes = 1;
  double connected = 0;   ///< bytes of a device that being connected takes
  bool has_host = false;  ///< the device has memory of its own beside the host's
  double device_bytes = 0;
  double host_bytes = 0;
  RunForecast forecast{};
  Index layers = 0;
};

/// A way to run the same.
struct Strategy {
  Index micro_batch_tokens = 0;  ///< at most
  bool recomputes = false;
  std::string offload = "none";
  Index zero_stage = 0;
  RunForecast forecast{};
  std::optional<Index> sequences{}, accumulation{};  ///< of a micro-batch, and micro-batches, where these are units
};

/// The same step in micro-batches of `tokens` at most. Where gradients leave with each, which then is a unit
/// (zero_stage 2 and 3 of several ranks), it has so many sequences that it would hold them if each were the `longest`;
/// one at least, and a divisor of what a rank has. With stages of other batches they stay as they are.
settings::Config with_micro_batches(settings::Config config, Index tokens, Index longest);
/// Whether its units are micro-batches, where zero_stage wants that.
bool can_share(const settings::Config& config);
/// Whether one that takes the same memory and time is there.
bool is_known(const std::vector<Strategy>& strategies, const Strategy& one);

/// Sizes of micro-batches, in tokens or sequences, with gradient checkpointing and without, and where all of that does
/// not fit, with what ranks may share out and, beside a device of its own memory, what may stay on the host. Those that
/// take the same are there once. Throws   ConfigError
template <AnyDevice D, class T>
std::vector<Strategy> compare(const Target& target, const model::Blueprint& blueprint, const train::Prepared* run,
                              const settings::Config& config) {
  std::vector<std::string> offloads{"none"};
  if constexpr (!D::reads_host_memory) {
    offloads.push_back("optimizer");
    if (!config.trains_model()) offloads.push_back("params");
    offloads.push_back("all");
  }
  std::vector<Index> zero_stages{config.zero_stage};
  if (target.ranks() > 1) zero_stages = {0, 1, 2};
  const bool answers = (!D::reads_host_memory || config.trains_model()) && config.eval_predict;
  if (target.ranks() > 1 && !answers) zero_stages.push_back(3);
  const Index longest =
      run == nullptr ? config.cutoff_len : std::min(run->survey.train.length_at(1), config.cutoff_len);
  std::set<Index> sizes{512, 1024, 2048, 4096, 8192, 16384};
  if (run != nullptr) sizes.insert(run->plan.stages().front().limit.tokens);
  sizes.erase(0);  // by sequences
  std::vector<Strategy> strategies;
  for (const bool recomputes : {false, true})
    for (const Index tokens : sizes) {
      settings::Config variant = config;
      variant.gradient_checkpointing = recomputes;
      bool fits = false;
      for (const std::string& offload : offloads)
        for (const Index zero_stage : zero_stages) {
          variant.offload = offload;
          variant.zero_stage = zero_stage;
          settings::Config way = with_micro_batches(variant, tokens, longest);
          if (config.step_units == train::usual_units(config)) way.step_units = train::usual_units(way);
          if (fits || !can_share(way)) continue;
          model::Blueprint shared = blueprint;
          shared.shares_by_layer = zero_stage > 1;
          shared.shares_values = way.shares_values();
          shared.values_on_host = way.keeps_values_on_host();
          Strategy one{tokens, recomputes, offload, zero_stage, forecast_run<D, T>(target, shared, run, way)};
          if (!way.max_tokens_per_micro_batch) {
            one.sequences = way.train_batch_size();
            one.accumulation = way.gradient_accumulation_steps;
            one.micro_batch_tokens = *one.sequences * longest;
          }
          fits = one.forecast.fits;
          if (!is_known(strategies, one)) strategies.push_back(std::move(one));
        }
    }
  return strategies;
}

/// A table for people.
std::string text_of(const Report& report);
/// As scripts read it; see docs/plan.md.
io::Json json_of(const Report& report, const std::vector<Strategy>& strategies = {});

/// The fastest that fits, and of those that are as fast within a hundredth the one that needs least; null if none does.
const Strategy* fastest_that_fits(const std::vector<Strategy>& strategies);
/// A table for people, and below it which is the fastest, or what the one that needs least lacks.
std::string text_of(const Report& report, const std::vector<Strategy>& strategies);

}  // namespace lora::forecast

#ifndef LORA_COMPILED
#  include "lora/forecast/report.ipp"
#endif
