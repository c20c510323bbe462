#pragma once

#include <utility>

#include "lora/kernel/activation.hpp"
#include "lora/nn/lora_linear.hpp"

namespace lora::nn {

/// y = down_proj(silu(gate) ∘ up),   (gate, up) = gate_up_proj(x)
/// Shapes   x, y (N, E) · gate, up (N, F)
/// Saves    gate and up; their product is formed again
/// Source   Shazeer 2020
template <AnyDevice D, class T>
class Mlp {
 public:
  struct Saved {
    View<D, T> gate_up;  // (N, 2F)
    typename LoraLinear<D, T>::Saved in;
    typename LoraLinear<D, T>::Saved out;
  };

  Mlp(LoraLinear<D, T> gate_up_proj, LoraLinear<D, T> down_proj)
      : gate_up_proj_(std::move(gate_up_proj)), down_proj_(std::move(down_proj)) {}

  bool trains() const { return gate_up_proj_.trains() || down_proj_.trains(); }
  LoraLinear<D, T>& gate_up_proj() { return gate_up_proj_; }
  LoraLinear<D, T>& down_proj() { return down_proj_; }

  /// With `accumulate` the output is added to y.
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved* saved,
               bool accumulate = false) const {
    const Arena::Scope scope(dev.arena());
    // Where nothing is kept, gate and up, the widest rows of all, still lie where backward of some layer will want
    // them: on the other end they would need memory of their own.
    const Arena::SavedScope saved_here(dev.arena(), saved == nullptr);
    const View<D, T> gate_up = save<T>(dev, x.rows(), gate_up_proj_.out_features());
    gate_up_proj_.forward(dev, pass, x, gate_up, saved != nullptr ? &saved->in : nullptr);
    if (saved != nullptr) saved->gate_up = gate_up;
    if (y.empty() && !(saved != nullptr && down_proj_.saves(pass, x.rows()))) return;
    const View<D, T> hidden = scratch<T>(dev, x.rows(), down_proj_.in_features());
    kernel::swiglu<D, T>(dev, gate_up, hidden);
    down_proj_.forward(dev, pass, hidden, y, saved != nullptr ? &saved->out : nullptr, accumulate);
  }

  /// dy has been read when x is called, which may write over it.
  void backward(D& dev, const Pass<D, T>& pass, const Input<D, T>& x, Saved&& saved, View<D, const T> dy,
                View<D, T> dx) {
    const Arena::Scope scope(dev.arena());
    const bool further = !dx.empty() || gate_up_proj_.trains();
    const View<D, T> hidden = scratch<T>(dev, dy.rows(), down_proj_.in_features());  // its gradient first
    const View<D, T> d_gate_up = saved.gate_up;
    const auto form_hidden = [&]() -> View<D, const T> {
      if (further) {
        kernel::swiglu_backward<D, T>(dev, saved.gate_up, hidden, d_gate_up, hidden);
      } else {
        kernel::swiglu<D, T>(dev, saved.gate_up, hidden);
      }
      return hidden;
    };
    down_proj_.backward(dev, pass, form_hidden, std::move(saved.out), dy, further ? hidden : View<D, T>());
    if (!further) return;
    gate_up_proj_.backward(dev, pass, x, std::move(saved.in), d_gate_up, dx);
  }

 private:
  LoraLinear<D, T> gate_up_proj_;
  LoraLinear<D, T> down_proj_;
};

}  // namespace lora::nn
