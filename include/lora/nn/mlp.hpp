#pragma once

#include <algorithm>
#include <utility>

#include "lora/kernel/activation.hpp"
#include "lora/nn/lora_linear.hpp"
#include "lora/nn/post_norm.hpp"
#include "lora/nn/rms_norm.hpp"

namespace lora::nn {

/// y = x + post_norm(down_proj(g(gate) ∘ up)),   (gate, up) = gate_up_proj(norm(x)),   g the function of kernel::Gate
/// Shapes   x, y (N, E) · gate, up (N, F)
/// Saves    gate and up; backward recomputes their product and the norm's output
/// Source   Shazeer 2020; norms behind as in Gemma 2
template <AnyDevice D, class T>
class Mlp {
 public:
  struct Saved {
    View<D, Accum<T>> rstd;  // (N, 1)
    View<D, T> gate_up;      // (N, 2F)
    typename LoraLinear<D, T>::Saved gate_up_proj;
    typename LoraLinear<D, T>::Saved down_proj;
    typename PostNorm<D, T>::Saved post_norm;
  };

  static Footprint footprint(const PassShape& pass, const MlpShape& shape, Keep keep) {
    using Linears = LoraLinear<D, T>;
    const Footprint gate_up = Linears::footprint(pass, shape.gate_up_proj, keep),
                    down = behind(pass, shape, keep, Linears::footprint(pass, shape.down_proj, keep));
    Footprint result;
    result.low = pass.rows_of<T>(shape.gate_up_proj.out()) + gate_up.saved + down.saved;
    if (keep == Keep::all) result.saved = result.low += pass.rows_of<Accum<T>>(1);
    result.scratch =
        std::max(pass.rows_of<T>(shape.width) + gate_up.scratch, pass.rows_of<T>(shape.down_proj.in) + down.scratch);
    return result;
  }
  static Footprint recompute_footprint(const PassShape& pass, const MlpShape& shape) {
    Footprint result = footprint(pass, shape, Keep::all);
    if (shape.post_norm) return result;  // whose input is what down_proj computes
    const Footprint down = LoraLinear<D, T>::recompute_footprint(pass, shape.down_proj);
    result.scratch =
        pass.rows_of<T>(shape.width) + LoraLinear<D, T>::footprint(pass, shape.gate_up_proj, Keep::all).scratch;
    if (down.saved > 0) result.scratch = std::max(result.scratch, pass.rows_of<T>(shape.down_proj.in) + down.scratch);
    return result;
  }
  /// Scratch, where dx is wanted or not.
  static Index backward_footprint(const PassShape& pass, const MlpShape& shape, bool with_dx) {
    using Linears = LoraLinear<D, T>;
    const bool further = with_dx || shape.gate_up_proj.trains() || shape.norm_trains;
    const Index down = PostNorm<D, T>::backward_footprint(pass, shape.width, shape.post_norm) +
                       pass.rows_of<T>(shape.down_proj.in) +
                       Linears::backward_footprint(pass, shape.down_proj, further);
    if (!further) return down;
    const Index apart = kernel::gated_unit_backward_in_place<D> ? 0 : pass.rows_of<T>(shape.gate_up_proj.out());
    const Index gate_up = pass.rows_of<T>(shape.width) +
                          Linears::backward_footprint(pass, shape.gate_up_proj, with_dx || shape.norm_trains);
    return apart + std::max(down, gate_up);
  }

  Mlp(RmsNorm<D, T> norm, LoraLinear<D, T> gate_up_proj, LoraLinear<D, T> down_proj,
      kernel::Gate gate = kernel::Gate::silu, PostNorm<D, T> post_norm = {})
      : norm_(std::move(norm)),
        gate_up_proj_(std::move(gate_up_proj)),
        gate_(gate),
        down_proj_(std::move(down_proj)),
        post_norm_(std::move(post_norm)) {}

  bool trains() const { return norm_.trains() || gate_up_proj_.trains() || down_proj_.trains() || post_norm_.trains(); }
  bool drops() const { return gate_up_proj_.drops() || down_proj_.drops(); }
  RmsNorm<D, T>& norm() { return norm_; }
  PostNorm<D, T>& post_norm() { return post_norm_; }
  LoraLinear<D, T>& gate_up_proj() { return gate_up_proj_; }
  LoraLinear<D, T>& down_proj() { return down_proj_; }

  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep) const {
    const Arena::Scope scope(dev.arena());
    const Arena::SavedScope not_kept(dev.arena(), keep != Keep::all);
    project(dev, pass, x, y, saved, keep);
    add_output(dev, pass, y, saved, keep);
  }

  /// Fills in what forward did not save under Keep::attention.
  void recompute(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved) const {
    const Arena::Scope scope(dev.arena());
    project(dev, pass, x, View<D, T>(), saved, Keep::all);
    if (post_norm_.exists()) return add_output(dev, pass, View<D, T>(), saved, Keep::all);
    if (saved.down_proj.place != UpdatePlace::output) return;
    const View<D, T> hidden = scratch<T>(dev, x.rows(), down_proj_.in_features());
    kernel::gated_unit<D, T>(dev, gate_, saved.gate_up, hidden);
    down_proj_.recompute(dev, pass, hidden, saved.down_proj);
  }

  /// dx may be dy.
  void backward(D& dev, const Pass<D, T>&, View<D, const T> x, Saved& saved, View<D, const T> dy, View<D, T> dx) {
    const Arena::Scope scope(dev.arena());
    const bool further = !dx.empty() || gate_up_proj_.trains() || norm_.trains();
    const View<D, T> d_gate_up = !further || kernel::gated_unit_backward_in_place<D>
                                     ? saved.gate_up
                                     : scratch<T>(dev, x.rows(), gate_up_proj_.out_features());
    {
      const Arena::Scope inner(dev.arena());
      const View<D, const T> d_branch = post_norm_.backward(dev, saved.post_norm, dy);
      const View<D, T> hidden = scratch<T>(dev, x.rows(), down_proj_.in_features());  // its gradient at first
      if (further) {
        down_proj_.backward_input(dev, saved.down_proj, d_branch, hidden);
        kernel::gated_unit_backward<D, T>(dev, gate_, saved.gate_up, hidden, d_gate_up, hidden);
      } else {
        kernel::gated_unit<D, T>(dev, gate_, saved.gate_up, hidden);
      }
      down_proj_.backward_params(dev, hidden, saved.down_proj, d_branch);
    }
    if (!further) return;
    if (!dx.empty() && dx.data() != dy.data()) kernel::convert(dev, dy, dx);
    const View<D, T> normed = scratch<T>(dev, x.rows(), x.cols());  // its gradient at first
    if (!dx.empty() || norm_.trains()) gate_up_proj_.backward_input(dev, saved.gate_up_proj, d_gate_up, normed);
    norm_.backward_residual(dev, x, saved.rstd, normed, dx);
    gate_up_proj_.backward_params(dev, normed, saved.gate_up_proj, d_gate_up);
  }

 private:
  // Of down_proj, which takes `down`, and what follows it.
  static Footprint behind(const PassShape& pass, const MlpShape& shape, Keep keep, const Footprint& down) {
    return PostNorm<D, T>::footprint(pass, shape.width, shape.post_norm, keep, down);
  }

  // y += post_norm(down_proj(g(gate) ∘ up))
  void add_output(D& dev, const Pass<D, T>& pass, View<D, T> y, Saved& saved, Keep keep) const {
    const View<D, T> hidden = scratch<T>(dev, saved.gate_up.rows(), down_proj_.in_features());
    kernel::gated_unit<D, T>(dev, gate_, saved.gate_up, hidden);
    post_norm_.forward(
        dev, hidden.rows(), down_proj_.out_features(), y, saved.post_norm, keep,
        [&](View<D, T> to, bool adds) { down_proj_.forward(dev, pass, hidden, to, saved.down_proj, keep, adds); });
  }

  // Computes gate and up, and y = x for the residual sum. Gate and up are the widest rows of all. Where they are not
  // kept they still go to the arena's low end, in memory that the backward pass of some layer needs anyway; as scratch
  // they would raise the peak.
  void project(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep) const {
    const Arena::Scope scope(dev.arena());
    saved.rstd = save_if<Accum<T>>(dev, keep == Keep::all, x.rows(), 1);
    saved.gate_up = save<T>(dev, x.rows(), gate_up_proj_.out_features());
    const View<D, T> normed = scratch<T>(dev, x.rows(), x.cols());
    norm_.forward(dev, x, normed, saved.rstd, y);
    gate_up_proj_.forward(dev, pass, normed, saved.gate_up, saved.gate_up_proj, keep);
  }

  RmsNorm<D, T> norm_;
  LoraLinear<D, T> gate_up_proj_;
  kernel::Gate gate_;
  LoraLinear<D, T> down_proj_;
  PostNorm<D, T> post_norm_;
};

}  // namespace lora::nn
