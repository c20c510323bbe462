#pragma once

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

  Block(Attention<D, T> attention, Mlp<D, T> mlp) : attention_(std::move(attention)), mlp_(std::move(mlp)) {}

  bool trains() const { return attention_.trains() || mlp_.trains(); }
  Attention<D, T>& attention() { return attention_; }
  Mlp<D, T>& mlp() { return mlp_; }
  /// The modules of projections, in the order of the work.
  std::array<LoraLinear<D, T>*, 4> groups() {
    return {&attention_.qkv_proj(), &attention_.o_proj(), &mlp_.gate_up_proj(), &mlp_.down_proj()};
  }

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
