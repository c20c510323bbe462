#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "lora/nn/module.hpp"

namespace lora::nn {

/// Gradient checkpointing around a module, switched by a value between steps. When on, forward keeps no more than
/// Keep::attention says, and backward recomputes the rest, bit for bit the same (dropout has no state).
/// Source   Chen et al. 2016
template <class M>
class Recomputed {
 public:
  using Saved = typename M::Saved;

  template <class S>
  static Footprint footprint(const PassShape& pass, const S& shape, Keep keep) {
    return M::footprint(pass, shape, shape.recomputes && keep == Keep::all ? Keep::attention : keep);
  }
  /// Of backward, whose low end lies behind what forward saved.
  template <class S>
  static Footprint backward_footprint(const PassShape& pass, const S& shape, bool with_dx) {
    const Footprint again = shape.recomputes ? M::recompute_footprint(pass, shape) : Footprint();
    return {0, again.low, std::max(again.scratch, M::backward_footprint(pass, shape, with_dx))};
  }

  explicit Recomputed(M inner) : inner_(std::move(inner)) {}

  void recompute(bool on) { on_ = on; }
  bool recomputes() const { return on_; }
  bool trains() const { return inner_.trains(); }
  const M& inner() const { return inner_; }
  M& inner() { return inner_; }

  template <class D, class T>
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep,
               View<D, const std::int32_t> rows = {}) const {
    inner_.forward(dev, pass, x, y, saved, on_ && keep == Keep::all ? Keep::attention : keep, rows);
  }

  template <class D, class T>
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved, ConstView<D, T> dy, View<D, T> dx,
                View<D, const std::int32_t> rows = {}) {
    const Arena::SavedScope recomputed(dev.arena());
    if (on_) {
      const ProfileScope span(dev, Profile::Kind::phase, "recompute");
      inner_.recompute(dev, pass, x, saved, rows);
    }
    inner_.backward(dev, pass, x, saved, dy, dx, rows);
  }

 private:
  M inner_;
  bool on_ = false;
};

}  // namespace lora::nn
