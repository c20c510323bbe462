#pragma once

#include <concepts>
#include <utility>

#include "lora/nn/param.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn {

/// What every module promises:
///   forward(dev, pass, x, y, Saved*) const     y overwritten; nullptr keeps nothing; an empty y fills Saved only
///   backward(dev, pass, x, Saved&&, dy, dx)    x handed back by the caller; parameter gradients are added to; dx
///   overwritten,
///                                              and not formed where it is empty; Saved's memory may serve for
///                                              gradients
///   for_each_param(prefix, f)                  f(ParamRef) for everything that trains, each storage once
/// Saved is a nested, named struct of views on the arena's low end; whoever called forward releases it.
template <class M, class D, class T>
concept Module = requires(M& m, const M& cm, D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y,
                          typename M::Saved saved) {
  cm.forward(dev, pass, x, y, &saved);
  m.backward(dev, pass, x, std::move(saved), x, y);
  m.for_each_param(std::string(), [](const ParamRef<D, T>&) {});
};

/// (rows, cols) where backward will look for it, or scratch where nobody will.
template <class T, class D>
View<D, T> save_or_scratch(D& dev, bool keep, Index rows, Index cols) {
  return keep ? save<T>(dev, rows, cols) : scratch<T>(dev, rows, cols);
}

}  // namespace lora::nn
