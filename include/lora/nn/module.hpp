#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "lora/nn/param.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn {

/// A module's input in backward: a view, or a function that forms it again, which must outlive this. It is called at
/// most once, when dx is there, so that it may go on with dx and leave the input in its place. The dy of the module
/// that calls it must stay.
template <AnyDevice D, class T>
class Input {
 public:
  template <std::convertible_to<View<D, const T>> V>
  Input(const V& view) : view_(view) {}
  template <class F>
  requires(std::is_invocable_r_v<View<D, const T>, const F&>) Input(const F& form)
      : form_(&form), call_([](const void* f) -> View<D, const T> { return (*static_cast<const F*>(f))(); }) {}

  View<D, const T> operator()() const { return call_ != nullptr ? call_(form_) : view_; }

 private:
  View<D, const T> view_{};
  const void* form_ = nullptr;
  View<D, const T> (*call_)(const void*) = nullptr;
};

/// What every module promises:
///   forward(dev, pass, x, y, Saved*) const     y overwritten; nullptr keeps nothing; an empty y fills Saved only
///   backward(dev, pass, x, Saved&&, dy, dx)    x handed back by the caller (parts of a layer take an Input); parameter
///                                              gradients are added to; dx is overwritten, and not formed where it is
///                                              empty; Saved's memory may serve for gradients
/// Saved is a nested, named struct of views on the arena's low end; whoever called forward releases it.
template <class M, class D, class T>
concept Module = requires(M& m, const M& cm, D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y,
                          typename M::Saved saved) {
  cm.forward(dev, pass, x, y, &saved);
  m.backward(dev, pass, x, std::move(saved), x, y);
};

/// (rows, cols) where backward will look for it, or scratch where nobody will.
template <class T, class D>
View<D, T> save_or_scratch(D& dev, bool keep, Index rows, Index cols) {
  return keep ? save<T>(dev, rows, cols) : scratch<T>(dev, rows, cols);
}

}  // namespace lora::nn
