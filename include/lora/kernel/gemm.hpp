#pragma once

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// Which operand of a product is read transposed.
enum class Form {
  nt,  ///< a (M, K) · b (N, K)ᵀ
  nn,  ///< a (M, K) · b (K, N)
  tn,  ///< a (K, M)ᵀ · b (K, N)
};

/// Matrix products. A backend specialises it with
///   static void run(D&, Form, View<D,const T> a, View<D,const T> b, View<D,Out> c, double alpha, bool accumulate)
template <class D>
struct Gemm;

template <class D, class T>
concept HasGemm = requires(D& dev, View<D, const T> a, View<D, T> c, View<D, Accum<T>> wide) {
  Gemm<D>::run(dev, Form::nt, a, a, c, 1.0, false);
  Gemm<D>::run(dev, Form::nt, a, a, wide, 1.0, false);
};

/// c = alpha · op(a) op(b)  (+ c if accumulate)
/// Shapes   as Form says; c (M, N)
/// Types    a, b in T; c in T or Accum<T>; sums in Accum<T>
/// Writes   c overwritten, or added to; M, N or K may be 0
/// Throws   ShapeError where inner or outer extents differ
template <class D, class T, class Out>
void gemm(D& dev, Form form, View<D, const T> a, View<D, const T> b, View<D, Out> c, double alpha = 1.0,
          bool accumulate = false) {
  static_assert(HasGemm<D, T>, "include lora/<backend>/kernels.hpp");
  static_assert(std::same_as<Out, T> || std::same_as<Out, Accum<T>>, "c holds T or Accum<T>, and is not const");
  const Index m = form == Form::tn ? a.cols() : a.rows();
  const Index k = form == Form::tn ? a.rows() : a.cols();
  const Index b_k = form == Form::nt ? b.cols() : b.rows();
  const Index n = form == Form::nt ? b.rows() : b.cols();
  if (k != b_k)
    fail<ShapeError>("[gemm] a is ", to_string(a.shape()), " but b is ", to_string(b.shape()),
                     "; inner extents differ");
  expect_shape("gemm", "c", c, m, n);
  const Span span(profile_of(dev), "gemm", "gemm", 2 * count_of(m, n, k),
                  bytes_of(a, b, c) + (accumulate ? bytes_of(c) : 0));
  Gemm<D>::run(dev, form, a, b, c, alpha, accumulate);
}

/// The same for operands that may be written to, so that callers need not spell const.
template <class D, class A, class B, class Out>
requires(!std::is_const_v<A> || !std::is_const_v<B>) void gemm(D& dev, Form form, View<D, A> a, View<D, B> b,
                                                               View<D, Out> c, double alpha = 1.0,
                                                               bool accumulate = false) {
  gemm(dev, form, View<D, const A>(a), View<D, const B>(b), c, alpha, accumulate);
}

}  // namespace lora::kernel
