#pragma once

#include <concepts>

#include "lora/nn/footprint.hpp"
#include "lora/nn/param.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn {

/// What forward keeps for backward.
enum class Keep {
  nothing,    ///< there will be no backward
  attention,  ///< gradient checkpointing: only what is expensive to recompute, attention's output
  all,        ///< all that backward reads
};

/// What every module promises:
///   forward(dev, pass, x, y, saved, keep) const   y is overwritten; `saved` gets what `keep` says, on the arena's low
///                                                 end, and whoever called forward releases it. What is not kept is
///                                                 scratch and must not be read after forward
///   backward(dev, pass, x, saved, dy, dx)         pass and x are forward's; parameter gradients are added to; dx is
///                                                 overwritten; the memory of `saved` may serve for gradients
///   trains()                                      whether any parameter does
/// What it takes of the arena it says as functions of a shape, see nn/footprint.hpp.
/// An empty view means what it means to kernels (tensor/view.hpp): dx is not needed below the lowest adapter. What is
/// to be done, `keep` says.
template <class M, class D, class T>
concept Module = requires(M& m, const M& cm, D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y,
                          typename M::Saved& saved) {
  cm.forward(dev, pass, x, y, saved, Keep::all);
  m.backward(dev, pass, x, saved, x, y);
  { cm.trains() } -> std::same_as<bool>;
};

/// (rows, cols) where backward will find it, or scratch of the enclosing scope.
template <class T, class D>
View<D, T> save_or_scratch(D& dev, bool keep, Index rows, Index cols) {
  return keep ? save<T>(dev, rows, cols) : scratch<T>(dev, rows, cols);
}

/// (rows, cols) where backward will find it, or nothing.
template <class T, class D>
View<D, T> save_if(D& dev, bool keep, Index rows, Index cols) {
  return keep ? save<T>(dev, rows, cols) : View<D, T>();
}

}  // namespace lora::nn
