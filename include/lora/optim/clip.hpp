#pragma once

#include <cstddef>

#include "lora/comm/communicator.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/nn/param.hpp"
#include "lora/tensor/arena.hpp"

namespace lora::optim {

/// out[0] += Σ g² over the gradients of all ranks, of which each has its part (ParamStore::parts): sums of blocks,
/// added up in their order. Shapes   out (1)
template <AnyDevice D, class T>
void add_squared_norm(D& dev, nn::ParamStore<D, T>& params, comm::Communicator<D>& comm, View<D, typename D::Sum> out) {
  for (Index group = 0; group < params.groups(); ++group) {
    const auto grad = params.slab(group).grad;
    if (grad.empty()) continue;
    const Arena::Scope scope(dev.arena());
    const View<D, typename D::Sum> sums = scratch<typename D::Sum>(dev, 1, grad.cols() / kernel::sum_block);
    auto begins = params.parts(group, comm.size());
    const auto rank = static_cast<std::size_t>(comm.rank());
    const View<D, const Accum<T>> part = grad.col_slice(begins[rank], begins[rank + 1] - begins[rank]);
    for (Index& place : begins) place /= kernel::sum_block;
    if (part.size() > 0)
      kernel::block_sums_of_squares(dev, part, sums.col_slice(begins[rank], begins[rank + 1] - begins[rank]));
    comm.all_gather(dev, sums, begins);
    kernel::sum(dev, sums, out);
  }
}

/// The same for a single process.
template <AnyDevice D, class T>
void add_squared_norm(D& dev, nn::ParamStore<D, T>& params, View<D, typename D::Sum> out) {
  comm::Single<D> alone;
  add_squared_norm(dev, params, alone, out);
}

/// What every gradient is multiplied with so that their common norm stays within `max_norm`; 0 switches it off.
/// Source   PyTorch, clip_grad_norm_
inline double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return max_norm > 0 && factor < 1 ? factor : 1;
}

}  // namespace lora::optim
