#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "lora/core/config.hpp"
#include "lora/nn/rotary.hpp"

namespace lora::nn {

LORA_INLINE std::vector<float> inverse_frequencies(const RopeConfig& config, Index width) {
  const auto half = static_cast<std::size_t>(width / 2);
  std::vector<float> frequencies(half);
  const auto plain = [&](std::size_t i) {
    return std::pow(config.theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  };
  const auto dimension_of = [&](double rotations) {  // the pair with so many rotations over the original length
    return static_cast<double>(width) *
           std::log(config.original_max_position_embeddings / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.theta));
  };
  double low = 0, high = 0;
  if (config.scaling == RopeConfig::Scaling::yarn) {
    low = dimension_of(config.beta_fast);
    high = dimension_of(config.beta_slow);
    if (config.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(width - 1));
    if (low == high) high += 0.001;
  }
  for (std::size_t i = 0; i < half; ++i) {
    double f = plain(i);
    switch (config.scaling) {
      case RopeConfig::Scaling::none:
        break;
      case RopeConfig::Scaling::linear:
        f /= config.factor;
        break;
      case RopeConfig::Scaling::llama3: {
        const double length = 2 * std::numbers::pi / f;
        const double low_length = config.original_max_position_embeddings / config.low_freq_factor;
        const double high_length = config.original_max_position_embeddings / config.high_freq_factor;
        if (length > low_length) {
          f /= config.factor;
        } else if (length >= high_length) {
          const double smooth = (config.original_max_position_embeddings / length - config.low_freq_factor) /
                                (config.high_freq_factor - config.low_freq_factor);
          f = (1 - smooth) * f / config.factor + smooth * f;
        }
        break;
      }
      case RopeConfig::Scaling::yarn: {
        const double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
        f = f / config.factor * ramp + f * (1 - ramp);
        break;
      }
      case RopeConfig::Scaling::longrope:
        f /= static_cast<double>(config.short_factors[i]);
        break;
    }
    if (!config.frequency_factors.empty()) f = plain(i) / static_cast<double>(config.frequency_factors[i]);
    frequencies[i] = static_cast<float>(f);
  }
  return frequencies;
}

LORA_INLINE double rotary_magnitude(const RopeConfig& config) {
  if (config.scaling != RopeConfig::Scaling::yarn && config.scaling != RopeConfig::Scaling::longrope) return 1;
  if (config.attention_factor != 0) return config.attention_factor;
  if (config.scaling == RopeConfig::Scaling::longrope)
    return config.factor <= 1
               ? 1.0
               : std::sqrt(1 + std::log(config.factor) / std::log(config.original_max_position_embeddings));
  const auto magnitude = [&](double scale) {
    return config.factor <= 1 ? 1.0 : 0.1 * scale * std::log(config.factor) + 1.0;
  };
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return magnitude(config.mscale) / magnitude(config.mscale_all_dim);
  return magnitude(1);
}

LORA_INLINE Index longest_rotation(const RopeConfig& config) {
  const bool longrope = config.scaling == RopeConfig::Scaling::longrope;
  return longrope && config.long_factors != config.short_factors
             ? static_cast<Index>(config.original_max_position_embeddings)
             : std::numeric_limits<Index>::max();
}

}  // namespace lora::nn
