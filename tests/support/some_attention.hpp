#pragma once

#include <vector>

#include "lora/nn/attention.hpp"
#include "support/module_check.hpp"

namespace lora::test {

/// A small attention, as a module and as a formula.
struct SomeAttention {
  static constexpr Index e = 10, c = 4, heads = 4, kv_heads = 2;
  static constexpr double eps = 1e-5, theta = 100;

  kernel::AttentionShape shape{heads, kv_heads, c, 0.5};
  bool qk_norm, rotates;
  reference::Matrix norm = reference::random_matrix(1, e, 11, 0.5, 1.5);
  reference::Matrix q_norm = reference::random_matrix(1, c, 12, 0.5, 1.5);
  reference::Matrix k_norm = reference::random_matrix(1, c, 13, 0.5, 1.5);
  reference::Matrix post_norm{};  ///< empty: none
  SomeLinears qkv, o;

  SomeAttention(const std::vector<Index>& qkv_ranks, Index o_rank, bool norms, bool turns)
      : qk_norm(norms),
        rotates(turns),
        qkv(e, {heads * c, kv_heads * c, kv_heads * c}, qkv_ranks, !norms, 14),
        o(heads * c, {e}, {o_rank}, false, 15) {}

  reference::Matrix of(const reference::Matrix& x) const {
    const SomeRows rows;
    const auto normed = reference::rms_norm(x, norm, eps);
    auto q = qkv.of(normed, 0), k = qkv.of(normed, 1);
    if (qk_norm) {
      q = reference::rms_norm(q, q_norm, eps);
      k = reference::rms_norm(k, k_norm, eps);
    }
    if (rotates) {
      q = reference::rotated(q, c, rows.positions, theta);
      k = reference::rotated(k, c, rows.positions, theta);
    }
    const auto branch = o.of(reference::attention(shape, q, k, qkv.of(normed, 2), rows.segments), 0);
    return x + (post_norm.empty() ? branch : reference::rms_norm(branch, post_norm, eps));
  }

  template <class D, class T>
  nn::Rotary<D, T> rotary(D& dev) const {
    nn::Rotary<D, T> result(nn::RopeConfig{.theta = theta}, c);
    result.reach(dev, 3);
    return result;
  }

  /// Rotates with `rotary`, which must outlive it.
  template <class D, class T>
  nn::Attention<D, T> module(D& dev, nn::ParamStore<D, T>& params, const nn::Rotary<D, T>& rotary) const {
    typename nn::Attention<D, T>::Parts parts;
    parts.norm = norm_of<D, T>(dev, norm, eps);
    parts.qkv_proj = qkv.module(dev, params);
    parts.o_proj = o.module(dev, params);
    if (qk_norm) {
      parts.q_norm = norm_of<D, T>(dev, q_norm, eps);
      parts.k_norm = norm_of<D, T>(dev, k_norm, eps);
    }
    if (!post_norm.empty()) parts.post_norm = nn::PostNorm<D, T>(norm_of<D, T>(dev, post_norm, eps));
    parts.shape = shape;
    parts.rotary = rotates ? &rotary : nullptr;
    return nn::Attention<D, T>(std::move(parts));
  }

  void add_trained(std::vector<reference::Matrix*>& trained) {
    qkv.add_trained(trained);
    o.add_trained(trained);
  }
};

}  // namespace lora::test
