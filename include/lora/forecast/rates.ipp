#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/forecast/rates.hpp"

namespace lora::forecast {

LORA_INLINE Rates rates_of(const Limits& limits, Precision precision) {
  const bool narrow = precision != Precision::float32;
  const double f32 = 1e9 * limits.f32_gflops, own = narrow ? 1e9 * std::max(limits.bf16_gflops, 0.0) : f32;
  const double bytes = 1e9 * limits.gb_per_second;
  // bfloat16's products are so fast that their shapes count for more, those of attention too (float16 is widened
  // there); numbers of two bytes are converted on their way.
  return {.products = (narrow ? 0.88 : 0.93) * own,
          .attention = 0.48 * (precision == Precision::bfloat16 ? own : f32),
          .moved = (narrow ? 0.55 : 0.95) * bytes,
          .thin = (narrow ? 0.5 : 0.8) * bytes,
          .decoded = 0.1 * bytes,
          .peer = 0.1 * bytes,  // not measured: a copy by each of two processes
          .call = 50e-6};
}

LORA_INLINE const std::vector<Npu>& npus() {
  static const std::vector<Npu> all = {{"ascend910b1", 363.7e12, 61}, {"ascend910b3", 294.9e12, 61}};
  return all;
}

LORA_INLINE const Npu& npu_of(std::string_view type) {
  std::string types;
  for (const Npu& npu : npus()) {
    if (npu.type == type) return npu;
    types += concat(types.empty() ? "" : ", ", npu.type);
  }
  fail<ConfigError>("key device_type: given ", type, ", of which no forecast is made; allowed: ", types);
}

LORA_INLINE Rates rates_of(const Npu& npu, Precision precision) {
  constexpr double products = 0.7, memory = 0.8 * 1.6e12, link = 20e9, peer = 0.75 * 28e9, network = 0.8 * 25e9;
  const double peak = products * (precision == Precision::float32 ? npu.peak / 4 : npu.peak);
  return {.products = peak,
          .attention = peak,
          .moved = memory,
          .thin = memory,
          .decoded = memory / 3,  // a number is read as a byte or so, and written as two
          .link = link,
          .peer = peer,
          .network = network,
          .call = 50e-6};
}

LORA_INLINE double time_of_collectives(double calls, double bytes, int ranks, int devices, const Rates& rates) {
  if (ranks == 1) return 0;
  const double each = bytes / (ranks - 1), far = each * (ranks - devices);
  const double near_seconds = devices > 1 ? each / rates.peer : 0;
  return calls * rates.call + std::max(near_seconds, far > 0 ? far / rates.network : 0);
}

LORA_INLINE StepTime time_of(const nn::Work& work, const Rates& rates, double streamed, const ExchangeTime& exchanges) {
  const std::pair<std::string_view, double> parts[] = {{"products", work.products / rates.products},
                                                       {"attention", work.attention / rates.attention},
                                                       {"memory", work.moved / rates.moved + work.thin / rates.thin},
                                                       {"decoding weights", work.decoded / rates.decoded}};
  StepTime time;
  double longest = -1;
  for (const auto& [what, seconds] : parts) {
    time.seconds += seconds;
    if (seconds > longest) time.limited_by = what;
    longest = std::max(longest, seconds);
  }
  const double link = streamed > 0 ? streamed / rates.link : 0;
  if (link > time.seconds) time = {link, "the host's link"};
  const double beside = exchanges.beside_backward + exchanges.beside_all;
  time.hidden = std::min(exchanges.beside_all + std::min(exchanges.beside_backward, time.seconds / 2), time.seconds);
  time.between_ranks = exchanges.alone + beside - time.hidden;
  if (beside > time.seconds || time.between_ranks > std::max(longest, link))
    time.limited_by = "exchanges between ranks";
  time.seconds += time.between_ranks;
  return time;
}

}  // namespace lora::forecast
