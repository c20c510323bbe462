#pragma once

#include <utility>

#include "lora/nn/attention.hpp"
#include "lora/nn/mlp.hpp"

namespace lora::nn {

/// One layer:   h = x + attention(norm₁(x)),   y = h + mlp(norm₂(h))
/// Shapes   x, h, y (N, E)
/// Saves    h and what its parts save; the norms' outputs are formed again
template <AnyDevice D, class T>
class Block {
 public:
  using Kept = typename Attention<D, T>::Kept;
  struct Saved {
    View<D, Accum<T>> rstd1;  // (N, 1)
    View<D, Accum<T>> rstd2;  // (N, 1)
    View<D, T> h;             // (N, E)
    typename Attention<D, T>::Saved attention;
    typename Mlp<D, T>::Saved mlp;
  };

  Block(RmsNorm<D, T> norm1, Attention<D, T> attention, RmsNorm<D, T> norm2, Mlp<D, T> mlp)
      : norm1_(std::move(norm1)), attention_(std::move(attention)), norm2_(std::move(norm2)), mlp_(std::move(mlp)) {}

  bool trains() const { return attention_.trains() || mlp_.trains(); }
  Attention<D, T>& attention() { return attention_; }
  Mlp<D, T>& mlp() { return mlp_; }

  /// `kept` as in Attention.
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved* saved,
               Kept* kept = nullptr) const {
    const Index n = x.rows(), e = x.cols();
    const bool keep = saved != nullptr;
    const Arena::Scope scope(dev.arena());
    const View<D, T> h = save_or_scratch<T>(dev, keep, n, e);
    View<D, Accum<T>> rstd1, rstd2;
    if (keep) {
      saved->h = h;
      saved->rstd1 = rstd1 = save<Accum<T>>(dev, n, 1);
      saved->rstd2 = rstd2 = save<Accum<T>>(dev, n, 1);
    }
    const View<D, T> normed = scratch<T>(dev, n, e);
    norm1_.forward(dev, x, normed, rstd1, h);
    attention_.forward(dev, pass, normed, h, keep ? &saved->attention : nullptr, kept, true);

    norm2_.forward(dev, h, normed, rstd2, y);
    if (!y.empty() || keep) mlp_.forward(dev, pass, normed, y, keep ? &saved->mlp : nullptr, true);
  }

  /// dx may be dy.
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved&& saved, View<D, const T> dy, View<D, T> dx) {
    const Index n = x.rows(), e = x.cols();
    const Arena::Scope scope(dev.arena());
    const bool into_attention = !dx.empty() || attention_.trains();
    const View<D, T> normed = scratch<T>(dev, n, e);  // a norm's output, its gradient first
    const View<D, T> dh = !into_attention ? View<D, T>() : dx.empty() ? scratch<T>(dev, n, e) : dx;

    const auto form_normed2 = [&]() -> View<D, const T> {
      if (into_attention) {
        norm2_.backward(dev, saved.h, saved.rstd2, normed, dh, true, normed);
      } else {
        norm2_.forward(dev, saved.h, normed, {});
      }
      return normed;
    };
    if (into_attention && dh.data() != dy.data()) kernel::convert(dev, dy, dh);
    mlp_.backward(dev, pass, form_normed2, std::move(saved.mlp), dy, into_attention ? normed : View<D, T>());
    if (!into_attention) return;

    const auto form_normed1 = [&]() -> View<D, const T> {
      if (dx.empty()) {
        norm1_.forward(dev, x, normed, {});
      } else {
        norm1_.backward(dev, x, saved.rstd1, normed, dx, true, normed);
      }
      return normed;
    };
    attention_.backward(dev, pass, form_normed1, std::move(saved.attention), dh, dx.empty() ? View<D, T>() : normed);
  }

 private:
  RmsNorm<D, T> norm1_;
  Attention<D, T> attention_;
  RmsNorm<D, T> norm2_;
  Mlp<D, T> mlp_;
};

}  // namespace lora::nn
