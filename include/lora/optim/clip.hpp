#pragma once

#include "lora/kernel/reduce.hpp"
#include "lora/nn/param.hpp"
#include "lora/tensor/arena.hpp"

namespace lora::optim {

/// out[0] += Σ over all gradients of g²: sums of blocks, added up in their order. Shapes   out (1)
template <AnyDevice D, class T>
void add_squared_norm(D& dev, nn::ParamStore<D, T>& params, View<D, double> out) {
  for (Index group = 0; group < params.groups(); ++group) {
    const auto grad = params.slab(group).grad;
    if (grad.empty()) continue;
    const Arena::Scope scope(dev.arena());
    const View<D, double> sums = scratch<double>(dev, 1, grad.cols() / kernel::sum_block);
    kernel::block_sums_of_squares(dev, grad, sums);
    kernel::sum(dev, sums, out);
  }
}

/// What every gradient is multiplied with so that their common norm stays within `max_norm`; 0 switches it off.
/// Source   PyTorch, clip_grad_norm_
inline double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return max_norm > 0 && factor < 1 ? factor : 1;
}

}  // namespace lora::optim
