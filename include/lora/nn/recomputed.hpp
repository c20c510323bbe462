#pragma once

#include <optional>
#include <utility>

#include "lora/nn/module.hpp"

namespace lora::nn {

/// Gradient checkpointing around a module, switched by a value. When on, forward keeps only M::Kept and backward runs
/// M's forward again, bit for bit the same (dropout has no state). Source   Chen et al. 2016
template <class M>
class Recomputed {
 public:
  struct Saved {
    std::optional<typename M::Saved> full;
    typename M::Kept kept{};
  };

  explicit Recomputed(M inner) : inner_(std::move(inner)) {}

  void recompute(bool on) { on_ = on; }
  bool recomputes() const { return on_; }
  bool trains() const { return inner_.trains(); }
  M& inner() { return inner_; }

  template <class D, class T>
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved* saved) const {
    if (saved == nullptr) {
      inner_.forward(dev, pass, x, y, nullptr);
    } else if (on_) {
      inner_.forward(dev, pass, x, y, nullptr, &saved->kept);
    } else {
      inner_.forward(dev, pass, x, y, &saved->full.emplace());
    }
  }

  template <class D, class T>
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved&& saved,
                std::type_identity_t<View<D, const T>> dy, View<D, T> dx) {
    const Arena::SavedScope again(dev.arena());
    if (!saved.full) {
      const Span span(profile_of(dev), Profile::Kind::phase, "recompute");
      inner_.forward(dev, pass, x, View<D, T>(), &saved.full.emplace(), &saved.kept);
    }
    inner_.backward(dev, pass, x, std::move(*saved.full), dy, dx);
  }

 private:
  M inner_;
  bool on_ = false;
};

}  // namespace lora::nn
