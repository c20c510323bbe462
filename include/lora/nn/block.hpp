#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "lora/nn/attention.hpp"
#include "lora/nn/mlp.hpp"

namespace lora::nn {

/// One layer:   h = attention(x),   y = mlp(h)
template <AnyDevice D, class T>
class Block {
 public:
  struct Saved {
    View<D, T> h;  // (N, E)
    typename Attention<D, T>::Saved attention;
    typename Mlp<D, T>::Saved mlp;
  };

  static Footprint footprint(const PassShape& pass, const BlockShape& shape, Keep keep) {
    const Footprint attention = Attention<D, T>::footprint(pass, shape.attention, keep),
                    mlp = Mlp<D, T>::footprint(pass, shape.mlp, keep);
    const Index h = pass.rows_of<T>(shape.mlp.width), saved_h = keep == Keep::all ? h : 0;
    return {saved_h + attention.saved + mlp.saved, saved_h + attention.saved + mlp.low,
            h - saved_h + std::max(attention.scratch, mlp.scratch)};
  }
  static Footprint recompute_footprint(const PassShape& pass, const BlockShape& shape) {
    const Footprint attention = Attention<D, T>::recompute_footprint(pass, shape.attention),
                    mlp = Mlp<D, T>::recompute_footprint(pass, shape.mlp);
    const Index saved = pass.rows_of<T>(shape.mlp.width) + attention.saved + mlp.saved;
    return {saved, saved, std::max(attention.scratch, mlp.scratch)};
  }
  /// Scratch, where dx is wanted or not.
  static Index backward_footprint(const PassShape& pass, const BlockShape& shape, bool with_dx) {
    const bool further = with_dx || shape.attention.trains();
    const Index mlp = Mlp<D, T>::backward_footprint(pass, shape.mlp, further);
    if (!further) return mlp;
    return (with_dx ? 0 : pass.rows_of<T>(shape.mlp.width)) +
           std::max(mlp, Attention<D, T>::backward_footprint(pass, shape.attention, with_dx));
  }

  Block(Attention<D, T> attention, Mlp<D, T> mlp) : attention_(std::move(attention)), mlp_(std::move(mlp)) {}

  bool trains() const { return attention_.trains() || mlp_.trains(); }
  Attention<D, T>& attention() { return attention_; }
  Mlp<D, T>& mlp() { return mlp_; }
  /// The modules of projections, in the order of the work.
  std::array<LoraLinear<D, T>*, 4> groups() {
    return {&attention_.qkv_proj(), &attention_.o_proj(), &mlp_.gate_up_proj(), &mlp_.down_proj()};
  }

  /// y may be x, unless backward reads it.
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep) const {
    const Arena::Scope scope(dev.arena());
    saved.h = save_or_scratch<T>(dev, keep == Keep::all, x.rows(), x.cols());
    attention_.forward(dev, pass, x, saved.h, saved.attention, keep);
    mlp_.forward(dev, pass, saved.h, y, saved.mlp, keep);
  }

  /// Fills in what forward did not save under Keep::attention.
  void recompute(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved) const {
    saved.h = save<T>(dev, x.rows(), x.cols());
    attention_.recompute(dev, pass, x, saved.h, saved.attention);
    mlp_.recompute(dev, pass, saved.h, saved.mlp);
  }

  /// dx may be dy.
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved, View<D, const T> dy, View<D, T> dx) {
    const Arena::Scope scope(dev.arena());
    const View<D, T> dh = dx.empty() && attention_.trains() ? scratch<T>(dev, x.rows(), x.cols()) : dx;
    mlp_.backward(dev, pass, saved.h, saved.mlp, dy, dh);
    if (!dh.empty()) attention_.backward(dev, pass, x, saved.attention, dh, dx);
  }

 private:
  Attention<D, T> attention_;
  Mlp<D, T> mlp_;
};

}  // namespace lora::nn
