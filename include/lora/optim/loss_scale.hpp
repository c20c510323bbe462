#pragma once

#include "lora/core/scalar.hpp"

namespace lora::optim {

/// The factor of the loss whose gradient is formed in float16, where smaller numbers than 2⁻²⁴ are lost: as large as
/// overflow allows. A gradient that overflows is not applied, and the factor halves; after 2000 that were applied in a
/// row it doubles. Always a power of two, so that dividing by it is exact.
/// Source   PyTorch, torch.amp.GradScaler
struct LossScale {
  static constexpr double least = 1;
  static constexpr double most = 0x1p126;  // of a float32, which the gradient's sums are
  static constexpr Index growth_interval = 2000;

  double value = 65536;
  Index good_steps = 0;  ///< applied since the last change

  /// False where the gradient would overflow without a factor too: then it is no matter of scale.
  bool can_shrink() const { return value > least; }

  /// Of a step whose gradient was applied, or overflowed.
  void add_step(bool overflowed, Index interval = growth_interval) {
    if (overflowed) {
      value /= 2;
      good_steps = 0;
    } else if (++good_steps >= interval) {
      value = value < most ? 2 * value : value;
      good_steps = 0;
    }
  }

  bool operator==(const LossScale&) const = default;
};

}  // namespace lora::optim
