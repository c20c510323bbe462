#pragma once

#include <vector>

#include "lora/kernel/reduce.hpp"
#include "lora/nn/param.hpp"

namespace lora::optim {

/// out[0] += Σ over all gradients of g². Shapes   out (1)
template <AnyDevice D, class T>
void add_squared_norm(D& dev, const std::vector<nn::ParamRef<D, T>>& params, View<D, double> out) {
  for (const auto& param : params) kernel::sum_of_squares(dev, param.grad, out);
}

/// What every gradient is multiplied with so that their common norm stays within `max_norm`; 0 switches it off.
/// Source   PyTorch, clip_grad_norm_
inline double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return max_norm > 0 && factor < 1 ? factor : 1;
}

}  // namespace lora::optim
