#pragma once

#include <span>

#include "lora/cpu/kernels/attention_backward.hpp"
#include "lora/cpu/kernels/attention_forward.hpp"

namespace lora::kernel {

/// Tiles of about 192 query rows (queries times the heads that share a key head) against 64 keys. Each tile's result
/// depends on its own sequence alone, and sums are formed in one order, so that bits depend neither on the number of
/// threads nor on other trees. Memory grows linearly with the largest tree.
///
/// In backward dq may share memory with q, out or dout, dk with k and dv with v, row for row. Rows of no segment stay
/// untouched.
template <>
struct Attention<cpu::Device> {
  /// The log of each row's sum of exponentials.
  template <class T>
  struct Saved {
    View<cpu::Device, Accum<T>> lse;  // (N, H)
  };
  static constexpr Index saved_per_head = 1;

  template <class T = float>
  static constexpr bool takes_trees(const AttentionShape&) {
    return true;
  }
  static bool takes_trees(cpu::Device&, const AttentionShape&) { return true; }

  template <class T>
  static Saved<T> save(cpu::Device& dev, Index rows, Index heads) {
    return {lora::save<Accum<T>>(dev, rows, heads)};
  }

  template <class T>
  static void run(cpu::Device& dev, const AttentionShape& shape, View<cpu::Device, const T> q,
                  View<cpu::Device, const T> k, View<cpu::Device, const T> v, std::span<const Segment> queries,
                  std::span<const Segment> keys, View<cpu::Device, T> out, Saved<T>* saved);

  template <class T>
  static void backward(cpu::Device& dev, const AttentionShape& shape, View<cpu::Device, const T> q,
                       View<cpu::Device, const T> k, View<cpu::Device, const T> v, View<cpu::Device, const T> out,
                       std::span<const Segment> segments, const Saved<T>& saved, View<cpu::Device, const T> dout,
                       View<cpu::Device, T> dq, View<cpu::Device, T> dk, View<cpu::Device, T> dv);
};

template <class T>
void Attention<cpu::Device>::run(cpu::Device& dev, const AttentionShape& shape, View<cpu::Device, const T> q,
                                 View<cpu::Device, const T> k, View<cpu::Device, const T> v,
                                 std::span<const Segment> queries, std::span<const Segment> keys,
                                 View<cpu::Device, T> out, Saved<T>* saved) {
  cpu::detail::with_layout<T>([&]<class L>() {
    const View<cpu::Device, Accum<T>> lse = saved == nullptr ? View<cpu::Device, Accum<T>>() : saved->lse;
    cpu::detail::attention(dev, cpu::detail::AttentionForward<T, L>{shape, q, k, v, queries, keys, out, lse});
  });
}

template <class T>
void Attention<cpu::Device>::backward(cpu::Device& dev, const AttentionShape& shape, View<cpu::Device, const T> q,
                                      View<cpu::Device, const T> k, View<cpu::Device, const T> v,
                                      View<cpu::Device, const T> out, std::span<const Segment> segments,
                                      const Saved<T>& saved, View<cpu::Device, const T> dout, View<cpu::Device, T> dq,
                                      View<cpu::Device, T> dk, View<cpu::Device, T> dv) {
  cpu::detail::with_layout<T>([&]<class L>() {
    cpu::detail::attention_backward(
        dev, cpu::detail::AttentionBackward<T, L>{shape, q, k, v, out, dout, segments, saved.lse}, dq, dk, dv);
  });
}

}  // namespace lora::kernel
