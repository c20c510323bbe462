#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "lora/nn/lora_linear.hpp"
#include "lora/nn/post_norm.hpp"
#include "lora/nn/rms_norm.hpp"
#include "lora/nn/rotary.hpp"

namespace lora::nn {

/// Grouped-query self-attention with its four projections.
///   y = x + post_norm(o_proj(attention(R q_norm(q), R k_norm(k), v))),   (q, k, v) = qkv_proj(norm(x)),   R the
///   rotation of a row's position
/// Shapes   x, y (N, E) · q (N, H·C) · k, v (N, G·C)
/// Saves    q, k, v before their norms, or rotated where there are none; the kernel's output and its own Saved, which
///          alone are kept under gradient checkpointing
/// Source   Ainslie et al. 2023; q and k norms as in Qwen3; layers without rotation as in SmolLM3; norms behind as in
///          Gemma 2
template <AnyDevice D, class T>
class Attention {
 public:
  struct Saved {
    View<D, Accum<T>> rstd;    // (N, 1)
    View<D, T> qkv;            // (N, H·C + 2·G·C)
    View<D, Accum<T>> q_rstd;  // (N, H), with q_norm
    View<D, Accum<T>> k_rstd;  // (N, G), with k_norm
    View<D, T> out;            // (N, H·C), of the kernel
    kernel::AttentionSaved<D, T> kernel{};
    typename LoraLinear<D, T>::Saved qkv_proj;
    typename LoraLinear<D, T>::Saved o_proj;
    typename PostNorm<D, T>::Saved post_norm;
  };

  static Footprint footprint(const PassShape& pass, const SelfAttentionShape& shape, Keep keep) {
    using Linears = LoraLinear<D, T>;
    const bool keeps_output = keep != Keep::nothing, all = keep == Keep::all;
    const Footprint qkv = Linears::footprint(pass, shape.qkv_proj, keep),
                    o = behind(pass, shape, keep, Linears::footprint(pass.wanted_part(), shape.o_proj, keep));
    Footprint result = all ? kept_of_heads(pass, shape) : Footprint();
    result.saved += qkv.saved + o.saved;
    const Index out = pass.rows_of<T>(shape.q_columns());
    if (keeps_output) result.saved += out + pass.rows_of<Accum<T>>(shape.heads * kernel::Attention<D>::saved_per_head);
    result.low = result.saved;
    result.scratch = (keeps_output ? 0 : out) + (all ? 0 : pass.rows_of<T>(shape.qkv_proj.out())) +
                     std::max(pass.rows_of<T>(shape.width) + qkv.scratch, prepared_bytes(pass, shape) + o.scratch);
    return result;
  }
  static Footprint recompute_footprint(const PassShape& pass, const SelfAttentionShape& shape) {
    using Linears = LoraLinear<D, T>;
    const Footprint qkv = Linears::footprint(pass, shape.qkv_proj, Keep::all),
                    o = behind(pass, shape, Keep::all, Linears::footprint(pass.wanted_part(), shape.o_proj, Keep::all));
    Footprint result = kept_of_heads(pass, shape);
    result.low = result.saved += qkv.saved + o.saved;
    result.scratch = std::max(pass.rows_of<T>(shape.width) + qkv.scratch, prepared_bytes(pass, shape) + o.scratch);
    return result;
  }
  /// Scratch, where dx is wanted or not.
  static Index backward_footprint(const PassShape& pass, const SelfAttentionShape& shape, bool with_dx) {
    using Linears = LoraLinear<D, T>;
    const bool further = with_dx || shape.trains_before_heads();
    const Index o = PostNorm<D, T>::backward_footprint(pass.wanted_part(), shape.width, shape.post_norm) +
                    (further ? 2 : 1) * chosen_bytes(pass, shape) +
                    Linears::backward_footprint(pass.wanted_part(), shape.o_proj, further);
    if (!further) return o;
    const Index normed =
        pass.rows_of<T>(shape.width) + Linears::backward_footprint(pass, shape.qkv_proj, with_dx || shape.norm_trains);
    return pass.rows_of<T>(shape.q_columns()) +
           std::max(o, pass.rows_of<T>(shape.qkv_proj.out()) + std::max(prepared_bytes(pass, shape), normed));
  }

  struct Parts {
    RmsNorm<D, T> norm;  // (E)
    LoraLinear<D, T> qkv_proj;
    LoraLinear<D, T> o_proj;
    RmsNorm<D, T> q_norm;  // (C), or empty
    RmsNorm<D, T> k_norm;
    PostNorm<D, T> post_norm;
    kernel::AttentionShape shape;
    const Rotary<D, T>* rotary = nullptr;  ///< nullptr: this layer does not rotate
    Index layer = 0;                       ///< of the key/value cache
  };

  explicit Attention(Parts parts) : p_(std::move(parts)) {}

  bool trains() const { return trains_before_heads() || p_.o_proj.trains() || p_.post_norm.trains(); }
  /// Whether dropout acts on the kernel's output.
  bool drops_output() const { return p_.o_proj.drops(); }
  RmsNorm<D, T>& norm() { return p_.norm; }
  RmsNorm<D, T>& q_norm() { return p_.q_norm; }
  RmsNorm<D, T>& k_norm() { return p_.k_norm; }
  PostNorm<D, T>& post_norm() { return p_.post_norm; }
  LoraLinear<D, T>& qkv_proj() { return p_.qkv_proj; }
  LoraLinear<D, T>& o_proj() { return p_.o_proj; }

  /// `rows` (n): those whose output is wanted, of which y then is; empty: all.
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep,
               View<D, const std::int32_t> rows = {}) const {
    const Arena::Scope scope(dev.arena());
    const bool keeps_output = keep != Keep::nothing;
    saved.out = save_or_scratch<T>(dev, keeps_output, x.rows(), q_columns());
    if (keeps_output) saved.kernel = kernel::save_attention<T>(dev, x.rows(), p_.shape.heads);
    const auto [q, k] = project(dev, pass, x, rows.empty() ? y : View<D, T>(), saved, keep);
    attend(dev, pass, q, k, v_of(saved.qkv), saved.out, keeps_output ? &saved.kernel : nullptr);
    add_output(dev, pass, x, y, saved, keep, rows);
  }

  /// Fills in what forward did not save under Keep::attention, and y.
  void recompute(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved,
                 View<D, const std::int32_t> rows = {}) const {
    const Arena::Scope scope(dev.arena());
    project(dev, pass, x, rows.empty() ? y : View<D, T>(), saved, Keep::all);
    add_output(dev, pass, x, y, saved, Keep::all, rows);
  }

  /// dx may be dy. `rows`: forward's, of which dy is.
  void backward(D& dev, const Pass<D, T>& pass, View<D, const T> x, Saved& saved, View<D, const T> dy, View<D, T> dx,
                View<D, const std::int32_t> rows = {}) {
    const Arena::Scope scope(dev.arena());
    const bool further = !dx.empty() || trains_before_heads();
    const View<D, T> dout = further ? scratch<T>(dev, x.rows(), q_columns()) : View<D, T>();
    {
      const Arena::Scope behind_heads(dev.arena());
      const View<D, const T> d_branch = p_.post_norm.backward(dev, saved.post_norm, dy);
      if (rows.empty()) {
        p_.o_proj.backward(dev, pass, saved.out, saved.o_proj, d_branch, dout);
      } else {
        const View<D, T> out = chosen(dev, saved.out, rows);
        const View<D, T> d_chosen = further ? scratch<T>(dev, out.rows(), out.cols()) : View<D, T>();
        p_.o_proj.backward(dev, pass, out, saved.o_proj, d_branch, d_chosen);
        if (further) spread(dev, View<D, const T>(d_chosen), rows, dout);
      }
    }
    if (!further) return;

    const View<D, T> dqkv = scratch<T>(dev, x.rows(), p_.qkv_proj.out_features());
    attend_backward(dev, pass, saved, dout, dqkv);

    if (!rows.empty() && !dx.empty()) {
      spread(dev, dy, rows, dx);
    } else if (!dx.empty() && dx.data() != dy.data()) {
      kernel::convert(dev, dy, dx);
    }
    const View<D, T> normed = scratch<T>(dev, x.rows(), x.cols());  // its gradient at first
    if (!dx.empty() || p_.norm.trains()) p_.qkv_proj.backward_input(dev, saved.qkv_proj, dqkv, normed);
    p_.norm.backward_residual(dev, x, saved.rstd, normed, dx);
    p_.qkv_proj.backward_params(dev, normed, saved.qkv_proj, dqkv);
  }

 private:
  // rstd of the norms, and q, k, v.
  static Footprint kept_of_heads(const PassShape& pass, const SelfAttentionShape& shape) {
    Index saved = pass.rows_of<Accum<T>>(1) + pass.rows_of<T>(shape.qkv_proj.out());
    if (shape.qk_norm) saved += pass.rows_of<Accum<T>>(shape.heads) + pass.rows_of<Accum<T>>(shape.kv_heads);
    return {saved, saved, 0};
  }
  // q and k behind their norms.
  static Index prepared_bytes(const PassShape& pass, const SelfAttentionShape& shape) {
    return shape.qk_norm ? pass.rows_of<T>(shape.qk_columns()) : 0;
  }

  // Of o_proj, which takes `o`, and what it reads and what follows it.
  static Footprint behind(const PassShape& pass, const SelfAttentionShape& shape, Keep keep, Footprint o) {
    o.scratch += chosen_bytes(pass, shape);
    return PostNorm<D, T>::footprint(pass.wanted_part(), shape.width, shape.post_norm, keep, o);
  }

  // Of the chosen rows of the kernel's output.
  static Index chosen_bytes(const PassShape& pass, const SelfAttentionShape& shape) {
    return pass.wanted > 0 ? pass.wanted_part().rows_of<T>(shape.q_columns()) : 0;
  }
  static View<D, T> chosen(D& dev, View<D, const T> x, View<D, const std::int32_t> rows) {
    const View<D, T> part = scratch<T>(dev, rows.size(), x.cols());
    kernel::gather_rows(dev, x, rows, part);
    return part;
  }
  // Rows of `to` are those of `part`, or 0.
  static void spread(D& dev, View<D, const T> part, View<D, const std::int32_t> rows, View<D, T> to) {
    kernel::fill(dev, to, 0.0);
    kernel::scatter_rows(dev, part, rows, to);
  }

  // y = x + post_norm(o_proj(out))
  void add_output(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep,
                  View<D, const std::int32_t> rows) const {
    if (!rows.empty()) kernel::gather_rows(dev, x, rows, y);
    p_.post_norm.forward(dev, y.rows(), y.cols(), y, saved.post_norm, keep, [&](View<D, T> to, bool adds) {
      const Arena::Scope scope(dev.arena());
      const View<D, const T> out = rows.empty() ? View<D, const T>(saved.out) : chosen(dev, saved.out, rows);
      p_.o_proj.forward(dev, pass, out, to, saved.o_proj, keep, adds);
    });
  }

  bool trains_before_heads() const {
    return p_.qkv_proj.trains() || p_.norm.trains() || p_.q_norm.trains() || p_.k_norm.trains();
  }
  Index q_columns() const { return p_.shape.heads * p_.shape.width; }
  Index k_columns() const { return p_.shape.kv_heads * p_.shape.width; }
  View<D, T> q_of(View<D, T> qkv) const { return qkv.col_slice(0, q_columns()); }
  View<D, T> k_of(View<D, T> qkv) const { return qkv.col_slice(q_columns(), k_columns()); }
  View<D, T> v_of(View<D, T> qkv) const { return qkv.col_slice(q_columns() + k_columns(), k_columns()); }
  // q and k, whose heads rotate alike, so that one call turns both.
  View<D, T> qk_of(View<D, T> qkv) const { return qkv.col_slice(0, q_columns() + k_columns()); }

  // Computes q, k, v, and y = x for the residual sum. Returns q and k as the kernel takes them.
  std::pair<View<D, const T>, View<D, const T>> project(D& dev, const Pass<D, T>& pass, View<D, const T> x,
                                                        View<D, T> y, Saved& saved, Keep keep) const {
    const Index n = x.rows();
    const bool all = keep == Keep::all, norms = !p_.q_norm.empty();
    saved.rstd = save_if<Accum<T>>(dev, all, n, 1);
    saved.qkv = save_or_scratch<T>(dev, all, n, p_.qkv_proj.out_features());
    saved.q_rstd = save_if<Accum<T>>(dev, all && norms, n, p_.shape.heads);
    saved.k_rstd = save_if<Accum<T>>(dev, all && norms, n, p_.shape.kv_heads);
    {
      const Arena::Scope scope(dev.arena());
      const View<D, T> normed = scratch<T>(dev, n, x.cols());
      p_.norm.forward(dev, x, normed, saved.rstd, y);
      p_.qkv_proj.forward(dev, pass, normed, saved.qkv, saved.qkv_proj, keep);
    }
    return prepare(dev, pass, saved.qkv, saved.q_rstd, saved.k_rstd);
  }

  // Norms and rotation of q and k: in scratch where there are norms, whose inputs backward needs, else in place.
  std::pair<View<D, const T>, View<D, const T>> prepare(D& dev, const Pass<D, T>& pass, View<D, T> qkv,
                                                        View<D, Accum<T>> q_rstd, View<D, Accum<T>> k_rstd) const {
    View<D, T> qk = qk_of(qkv);
    if (!p_.q_norm.empty()) {
      const View<D, T> normed = scratch<T>(dev, qkv.rows(), q_columns() + k_columns());
      p_.q_norm.forward(dev, q_of(qkv), q_of(normed), q_rstd);
      p_.k_norm.forward(dev, k_of(qkv), k_of(normed), k_rstd);
      qk = normed;
    }
    if (p_.rotary != nullptr) p_.rotary->forward(dev, qk, pass.positions(), qk);
    return {q_of(qk), k_of(qk)};
  }

  void attend(D& dev, const Pass<D, T>& pass, View<D, const T> q, View<D, const T> k, View<D, const T> v,
              View<D, T> out, kernel::AttentionSaved<D, T>* saved) const {
    if (auto* cache = pass.cache(); cache != nullptr) {
      kernel::scatter_rows(dev, k, pass.cache_rows(), cache->keys(p_.layer));
      kernel::scatter_rows(dev, v, pass.cache_rows(), cache->values(p_.layer));
      k = cache->keys(p_.layer);
      v = cache->values(p_.layer);
    }
    kernel::attention<D, T>(dev, p_.shape, q, k, v, pass.segments(), pass.keys(), out, saved);
  }

  // Computes the gradient of qkv_proj's output from that of the kernel's.
  void attend_backward(D& dev, const Pass<D, T>& pass, const Saved& saved, View<D, const T> dout,
                       View<D, T> dqkv) const {
    const Arena::Scope scope(dev.arena());
    const View<D, T> dq = q_of(dqkv), dk = k_of(dqkv);
    // Without norms the saved q and k are already rotated: preparing them twice would rotate them twice.
    View<D, const T> q = q_of(saved.qkv), k = k_of(saved.qkv);
    if (!p_.q_norm.empty()) std::tie(q, k) = prepare(dev, pass, saved.qkv, {}, {});
    kernel::attention_backward<D, T>(dev, p_.shape, q, k, v_of(saved.qkv), saved.out, pass.segments(), saved.kernel,
                                     dout, dq, dk, v_of(dqkv));
    if (p_.rotary != nullptr) p_.rotary->backward(dev, qk_of(dqkv), pass.positions(), qk_of(dqkv));
    if (!p_.q_norm.empty()) {
      p_.q_norm.backward(dev, q_of(saved.qkv), saved.q_rstd, dq, dq);
      p_.k_norm.backward(dev, k_of(saved.qkv), saved.k_rstd, dk, dk);
    }
  }

  Parts p_;
};

}  // namespace lora::nn
