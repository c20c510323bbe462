#pragma once

#include <cstddef>

#include "lora/comm/communicator.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/nn/param_store.hpp"
#include "lora/tensor/arena.hpp"

namespace lora::optim {

/// out[0] += Σ g² over the gradients of all ranks, of which each has its shares (nn::shares_of): sums of blocks, added
/// up in their order. Shapes   out (1)
template <AnyDevice D, class T>
void add_squared_norm(D& dev, nn::ParamStore<D, T>& params, comm::Communicator<D>& comm, View<D, typename D::Sum> out) {
  for (Index group = 0; group < params.groups(); ++group) {
    const nn::GroupSize& size = params.size(group);
    if (size.trained == 0) continue;
    const Arena::Scope scope(dev.arena());
    const View<D, typename D::Sum> sums = scratch<typename D::Sum>(dev, 1, size.trained / kernel::sum_block);
    const auto shares = nn::shares_of(size, comm.rank(), comm.size());
    const auto buckets = size.shared_out();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const nn::Share& own = shares[i];
      const View<D, const Accum<T>> part(params.grad_of(group, own));
      if (part.size() > 0)
        kernel::block_sums_of_squares(dev, part,
                                      sums.col_slice(own.begin / kernel::sum_block, part.size() / kernel::sum_block));
      auto begins = nn::parts_of(buckets[i], comm.size());
      for (Index& begin : begins) begin /= kernel::sum_block;
      comm.all_gather(dev, sums.col_slice(buckets[i].begin / kernel::sum_block, begins.back()), begins);
    }
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
