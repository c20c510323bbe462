#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "lora/core/precision.hpp"
#include "lora/forecast/limits.hpp"
#include "lora/nn/work.hpp"

namespace lora::forecast {

/// What a device reaches in a training step, by kind of work.
struct Rates {
  double products = 0;   ///< FLOP/s of matrix products
  double attention = 0;  ///< FLOP/s
  double moved = 0;      ///< bytes/s of other kernels
  double thin = 0;       ///< bytes/s of rows of products with an adapter's factors
  double decoded = 0;    ///< numbers/s of weights
  double link = 0;       ///< bytes/s from the host's memory; 0 where that is the device's
  double peer = 0;       ///< bytes/s from a device to each other one of its host
  double network = 0;    ///< bytes/s from a device to those of other hosts
  double call = 0;       ///< seconds that a collective takes at least

  /// Of one of several processes that share a machine.
  Rates& operator/=(double processes) {
    for (double* rate : {&products, &attention, &moved, &thin, &decoded, &link, &peer, &network}) *rate /= processes;
    return *this;
  }
};

/// Of the processors: shares of what they reach at best, as steps were measured to reach
/// (bench/plan_against_runs.py).
Rates rates_of(const Limits& limits, Precision precision);

/// A kind of NPU that is known from its data sheet; nothing of it was measured.
struct Npu {
  std::string_view type;  ///< as the key device_type has it
  double peak = 0;        ///< FLOP/s in bfloat16 and float16
  double memory_gib = 0;  ///< that is free
};

const std::vector<Npu>& npus();
/// Throws   ConfigError for another type, with those that there are
const Npu& npu_of(std::string_view type);
/// Shares of the peak and of 1.6 TB/s, as docs/ascend_forecast.md states them.
Rates rates_of(const Npu& npu, Precision precision);

/// Seconds of a step, and what most of them go to.
struct StepTime {
  double seconds = 0;
  /// "products", "attention", "memory", "decoding weights", "the host's link" or "exchanges between ranks"
  std::string_view limited_by;
  double between_ranks = 0;  ///< of these, spent on what ranks exchange
  double hidden = 0;         ///< of what ranks exchange beside the work, what takes no time of its own
};

/// Seconds of collectives in which a rank sends `bytes` in all, to each other rank as much: to those of its host at
/// once, and beside that to the others. Ranks are `devices` on each of some hosts.
double time_of_collectives(double calls, double bytes, int ranks, int devices, const Rates& rates);

/// Seconds of what ranks exchange in a step: while nothing is computed, beside backward, and beside anything.
struct ExchangeTime {
  double alone = 0, beside_backward = 0, beside_all = 0;
};

/// `streamed`: bytes that come from the host's memory beside the work. Backward is counted as half of it, which it is
/// where no weight has a gradient, and less than it is elsewhere.
StepTime time_of(const nn::Work& work, const Rates& rates, double streamed = 0, const ExchangeTime& exchanges = {});

}  // namespace lora::forecast

#ifndef LORA_COMPILED
#  include "lora/forecast/rates.ipp"
#endif
