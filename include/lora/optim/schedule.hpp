#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"

namespace lora::optim {

/// How the learning rate goes down after the warm-up.
enum class Decay { linear, cosine, constant };

inline Decay decay_of(std::string_view name) {
  if (name == "linear") return Decay::linear;
  if (name == "cosine") return Decay::cosine;
  if (name == "constant") return Decay::constant;
  fail<ConfigError>("[schedule] unknown decay ", name, "; known: linear, cosine, constant");
}

/// The learning rate's factor at step s, the first being 0, with W steps of warm-up and T in all:
///   s < W      s / W
///   linear     (T − s) / (T − W)
///   cosine     ½ (1 + cos π (s − W) / (T − W))
///   constant   1
/// Source   transformers, optimization.py
struct Schedule {
  Decay decay = Decay::linear;
  Index warmup = 0;
  Index total = 0;

  double factor(Index step) const {
    if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
    const auto span = static_cast<double>(std::max<Index>(1, total - warmup));
    const auto left = static_cast<double>(std::max<Index>(0, total - step));
    switch (decay) {
      case Decay::linear:
        return left / span;
      case Decay::cosine:
        return 0.5 * (1 + std::cos(std::numbers::pi * (span - left) / span));
      case Decay::constant:
        break;
    }
    return 1;
  }
};

/// Steps of warm-up: given as a count, or as a share of all steps, rounded up.
inline Index warmup_of(Index steps, double ratio, Index total) {
  return steps > 0 ? steps : static_cast<Index>(std::ceil(static_cast<double>(total) * ratio));
}

}  // namespace lora::optim
