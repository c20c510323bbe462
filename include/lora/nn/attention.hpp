#pragma once

#include <utility>

#include "lora/nn/lora_linear.hpp"
#include "lora/nn/rms_norm.hpp"
#include "lora/nn/rotary.hpp"

namespace lora::nn {

/// Grouped-query self-attention with its four projections.
///   y = o_proj(attention(R q_norm(q), R k_norm(k), v)),   (q, k, v) = qkv_proj(x),   R the rotation of a row's
///   position
/// Shapes   x, y (N, E) · q (N, H·C) · k, v (N, G·C)
/// Saves    q, k, v before the norms, or rotated where there are none; the kernel's output and its own Saved
/// Source   Ainslie et al. 2023; q and k norms as in Qwen3; layers without rotation as in SmolLM3
template <AnyDevice D, class T>
class Attention {
 public:
  /// Expensive to recompute, so kept under gradient checkpointing.
  struct Kept {
    View<D, T> out;  // (N, H·C)
    kernel::AttentionSaved<D, T> rows{};
  };
  struct Saved {
    View<D, T> qkv;            // (N, H·C + 2·G·C)
    View<D, Accum<T>> q_rstd;  // (N, H), with q_norm
    View<D, Accum<T>> k_rstd;  // (N, G), with k_norm
    Kept kept;
    typename LoraLinear<D, T>::Saved in;
    typename LoraLinear<D, T>::Saved out;
  };

  struct Parts {
    LoraLinear<D, T> qkv_proj;
    LoraLinear<D, T> o_proj;
    RmsNorm<D, T> q_norm;  // (C), or empty
    RmsNorm<D, T> k_norm;
    kernel::AttentionShape shape;
    const Rotary<D, T>* rotary = nullptr;  ///< nullptr: this layer does not rotate
    Index layer = 0;                       ///< of the key/value cache
  };

  explicit Attention(Parts parts) : p_(std::move(parts)) {}

  bool trains() const { return p_.qkv_proj.trains() || p_.o_proj.trains(); }
  LoraLinear<D, T>& qkv_proj() { return p_.qkv_proj; }
  LoraLinear<D, T>& o_proj() { return p_.o_proj; }

  /// `kept`: filled if empty, used instead of the kernel if filled. With `accumulate` the output is added to y.
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved* saved, Kept* kept = nullptr,
               bool accumulate = false) const {
    const Index n = x.rows();
    const bool keep = saved != nullptr;
    const Arena::Scope scope(dev.arena());
    Kept none;
    Kept& core = kept != nullptr ? *kept : keep ? saved->kept : none;
    const bool known = !core.out.empty();
    if (!known) {
      core.out = save_or_scratch<T>(dev, keep || kept != nullptr, n, q_columns());
      if (keep || kept != nullptr) core.rows = kernel::save_attention<T>(dev, n, p_.shape.heads);
    }
    if (!known || keep) {
      const View<D, T> qkv = save_or_scratch<T>(dev, keep, n, p_.qkv_proj.out_features());
      p_.qkv_proj.forward(dev, pass, x, qkv, keep ? &saved->in : nullptr);
      View<D, Accum<T>> q_rstd, k_rstd;
      if (keep && !p_.q_norm.empty()) {
        q_rstd = save<Accum<T>>(dev, n, p_.shape.heads);
        k_rstd = save<Accum<T>>(dev, n, p_.shape.kv_heads);
      }
      if (keep) {
        saved->qkv = qkv;
        saved->q_rstd = q_rstd;
        saved->k_rstd = k_rstd;
      }
      const auto [q, k] = prepare(dev, pass, qkv, q_rstd, k_rstd);
      if (!known) attend(dev, pass, q, k, v_of(qkv), core.out, keep || kept != nullptr ? &core.rows : nullptr);
    }
    if (keep && kept != nullptr) saved->kept = core;
    p_.o_proj.forward(dev, pass, core.out, y, keep ? &saved->out : nullptr, accumulate);
  }

  /// dy has been read when x is called, which may write over it.
  void backward(D& dev, const Pass<D, T>& pass, const Input<D, T>& x, Saved&& saved, View<D, const T> dy,
                View<D, T> dx) {
    const Index n = dy.rows();
    const Arena::Scope scope(dev.arena());
    const bool further = !dx.empty() || p_.qkv_proj.trains();
    const View<D, T> dout = further ? scratch<T>(dev, n, q_columns()) : View<D, T>();
    p_.o_proj.backward(dev, pass, saved.kept.out, std::move(saved.out), dy, dout);
    if (!further) return;

    const View<D, T> dqkv = scratch<T>(dev, n, p_.qkv_proj.out_features());
    const View<D, T> dq = q_of(dqkv), dk = k_of(dqkv);
    {
      const Arena::Scope inner(dev.arena());
      // Without norms the saved q and k are already rotated: preparing them twice would turn them twice.
      View<D, const T> q = q_of(saved.qkv), k = k_of(saved.qkv);
      if (!p_.q_norm.empty()) std::tie(q, k) = prepare(dev, pass, saved.qkv, {}, {});
      kernel::attention_backward<D, T>(dev, p_.shape, q, k, v_of(saved.qkv), saved.kept.out, pass.segments(),
                                       saved.kept.rows, dout, dq, dk, v_of(dqkv));
    }
    if (p_.rotary != nullptr) {
      p_.rotary->backward(dev, dq, pass.positions(), dq);
      p_.rotary->backward(dev, dk, pass.positions(), dk);
    }
    if (!p_.q_norm.empty()) {
      p_.q_norm.backward(dev, q_of(saved.qkv), saved.q_rstd, dq, dq, false);
      p_.k_norm.backward(dev, k_of(saved.qkv), saved.k_rstd, dk, dk, false);
    }
    p_.qkv_proj.backward(dev, pass, x, std::move(saved.in), dqkv, dx);
  }

 private:
  Index q_columns() const { return p_.shape.heads * p_.shape.width; }
  Index k_columns() const { return p_.shape.kv_heads * p_.shape.width; }
  View<D, T> q_of(View<D, T> qkv) const { return qkv.col_slice(0, q_columns()); }
  View<D, T> k_of(View<D, T> qkv) const { return qkv.col_slice(q_columns(), k_columns()); }
  View<D, T> v_of(View<D, T> qkv) const { return qkv.col_slice(q_columns() + k_columns(), k_columns()); }

  // Norms and rotation of q and k: in place where backward needs nothing of what was before, else into scratch.
  std::pair<View<D, const T>, View<D, const T>> prepare(D& dev, const Pass<D, T>& pass, View<D, T> qkv,
                                                        View<D, Accum<T>> q_rstd, View<D, Accum<T>> k_rstd) const {
    View<D, T> q = q_of(qkv), k = k_of(qkv);
    if (!p_.q_norm.empty()) {
      const View<D, T> normed = scratch<T>(dev, qkv.rows(), q_columns() + k_columns());
      p_.q_norm.forward(dev, q, q_of(normed), q_rstd);
      p_.k_norm.forward(dev, k, k_of(normed), k_rstd);
      q = q_of(normed);
      k = k_of(normed);
    }
    if (p_.rotary != nullptr) {
      p_.rotary->forward(dev, q, pass.positions(), q);
      p_.rotary->forward(dev, k, pass.positions(), k);
    }
    return {q, k};
  }

  void attend(D& dev, const Pass<D, T>& pass, View<D, const T> q, View<D, const T> k, View<D, const T> v,
              View<D, T> out, kernel::AttentionSaved<D, T>* rows) const {
    if (auto* cache = pass.cache(); cache != nullptr) {
      kernel::scatter_rows(dev, k, pass.cache_rows(), cache->keys(p_.layer));
      kernel::scatter_rows(dev, v, pass.cache_rows(), cache->values(p_.layer));
      k = cache->keys(p_.layer);
      v = cache->values(p_.layer);
    }
    kernel::attention<D, T>(dev, p_.shape, q, k, v, pass.segments(), pass.keys(), out, rows);
  }

  Parts p_;
};

}  // namespace lora::nn
