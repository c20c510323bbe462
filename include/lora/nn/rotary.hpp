#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/rope.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::nn {

/// Rotary settings as config.json has them.
struct RopeConfig {
  enum class Scaling { none, linear, llama3, yarn, longrope };

  double theta = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;
  double low_freq_factor = 1;   ///< llama3
  double high_freq_factor = 4;  ///< llama3
  double original_max_position_embeddings = 0;
  double beta_fast = 32;                   ///< yarn
  double beta_slow = 1;                    ///< yarn
  double attention_factor = 0;             ///< yarn, longrope; 0: from factor, mscale and mscale_all_dim
  double mscale = 0;                       ///< yarn
  double mscale_all_dim = 0;               ///< yarn
  bool truncate = true;                    ///< yarn: round the ramp's ends to whole dimensions
  std::vector<float> frequency_factors{};  ///< GGUF's rope_freqs.weight: divides the frequencies; replaces scaling
  std::vector<float> short_factors{};      ///< longrope: divide the frequencies up to the original length
  std::vector<float> long_factors{};       ///< longrope: those of longer sequences, which are not computed
};

/// The angle per position of each of the C/2 pairs, in float32 as the models were trained with.
/// Source   Su et al. 2021; Chen et al. 2023 (linear); Llama 3.1 (llama3); Peng et al. 2023 (yarn)
std::vector<float> inverse_frequencies(const RopeConfig& config, Index width);

/// The factor of cos and sin with yarn and longrope; 1 otherwise.
double rotary_magnitude(const RopeConfig& config);

/// The longest sequence that is rotated as transformers does: with longrope's factors for short ones. Longer ones have
/// others there, all of their rows.
Index longest_rotation(const RopeConfig& config);

/// The tables cos, sin (P, C/2), grown on demand; shared by all layers.
template <AnyDevice D, class T>
class Rotary {
 public:
  Rotary() = default;
  Rotary(const RopeConfig& config, Index width)
      : frequencies_(inverse_frequencies(config, width)), magnitude_(rotary_magnitude(config)), width_(width) {
    if (!config.frequency_factors.empty() && static_cast<Index>(config.frequency_factors.size()) != width / 2)
      fail<ShapeError>("[rotary] ", config.frequency_factors.size(), " frequency factors for heads of ", width,
                       " columns");
    longest_ = longest_rotation(config);
  }

  /// Grows the tables to hold `max_position`, to twice as many rows at least, so that a long generation computes each
  /// row once and copies few of them. To be called before a pass.
  /// Throws   ConfigError for positions beyond longest_rotation
  void reach(D& dev, Index max_position) {
    if (max_position >= longest_)  // which the tables may go beyond
      fail<ConfigError>("[rotary] a sequence of ", max_position + 1, " tokens; beyond ", longest_, " the model's ",
                        "longrope scaling has other factors, which are not supported; expected no more");
    if (max_position < cos_.rows()) return;
    const Index old = cos_.rows(), rows = std::max((max_position + 1 + 255) / 256 * 256, 2 * old);
    const auto half = static_cast<std::size_t>(width_ / 2), count = static_cast<std::size_t>(rows - old);
    std::vector<Accum<T>> cos(count * half), sin(cos.size());
    for (std::size_t p = 0; p < count; ++p)
      for (std::size_t i = 0; i < half; ++i) {
        const double position = static_cast<double>(p) + static_cast<double>(old);
        const double angle = position * static_cast<double>(frequencies_[i]);
        cos[p * half + i] = static_cast<Accum<T>>(magnitude_ * std::cos(angle));
        sin[p * half + i] = static_cast<Accum<T>>(magnitude_ * std::sin(angle));
      }
    append(dev, cos, rows, cos_);
    append(dev, sin, rows, sin_);
    dev.synchronize();  // the host's numbers go away
  }

  void forward(D& dev, View<D, const T> x, View<D, const std::int32_t> positions, View<D, T> y) const {
    kernel::rope(dev, x, cos_.view(), sin_.view(), positions, kernel::Rotation::forward, y);
  }
  void backward(D& dev, View<D, const T> dy, View<D, const std::int32_t> positions, View<D, T> dx) const {
    kernel::rope(dev, dy, cos_.view(), sin_.view(), positions, kernel::Rotation::inverse, dx);
  }

 private:
  // The table's rows and these below them.
  void append(D& dev, std::span<const Accum<T>> numbers, Index rows, Tensor<D, Accum<T>>& table) const {
    Tensor<D, Accum<T>> longer(dev, rows, width_ / 2);
    const Index old = table.rows();
    if (old > 0) kernel::convert(dev, std::as_const(table).view(), longer.view().row_slice(0, old));
    copy_from_host<D, Accum<T>>(dev, numbers, longer.view().row_slice(old, rows - old));
    table = std::move(longer);
  }

  std::vector<float> frequencies_;
  Index longest_ = std::numeric_limits<Index>::max();
  double magnitude_ = 1;
  Index width_ = 0;
  Tensor<D, Accum<T>> cos_;  // (P, C/2)
  Tensor<D, Accum<T>> sin_;  // (P, C/2)
};

}  // namespace lora::nn

#ifndef LORA_COMPILED
#  include "lora/nn/rotary.ipp"
#endif
