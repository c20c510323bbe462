#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include "lora/kernel/cost.hpp"
#include "lora/tensor/view.hpp"

namespace lora::kernel {

/// Which operand of a product is read transposed.
enum class Form {
  nt,  ///< a (M, K) · b (N, K)ᵀ
  nn,  ///< a (M, K) · b (K, N)
  tn,  ///< a (K, M)ᵀ · b (K, N)
};

/// op(a) op(b), one of the products that a sum consists of.
template <class D, class T>
struct ProductTerm {
  Form form;
  View<D, const T> a, b;

  Index rows() const { return form == Form::tn ? a.cols() : a.rows(); }
  Index cols() const { return form == Form::nt ? b.rows() : b.cols(); }
  Index depth() const { return form == Form::tn ? a.rows() : a.cols(); }
  Index b_depth() const { return form == Form::nt ? b.cols() : b.rows(); }
};

template <class D, class T>
using ProductTerms = std::span<const ProductTerm<D, T>>;

/// Matrix products. A backend specialises it with
///   static void run(D&, Form, View<D,const T> a, View<D,const T> b, View<D,Out> c, double alpha, bool accumulate)
///   static void sum(D&, ProductTerms<D,T>, View<D,const Accum<T>> bias, View<D,T> c, bool accumulate)
template <class D>
struct Gemm;

template <class D, class T>
concept HasGemm = requires(D& dev, View<D, const T> a, View<D, T> c, View<D, Accum<T>> wide) {
  Gemm<D>::run(dev, Form::nt, a, a, c, 1.0, false);
  Gemm<D>::run(dev, Form::nt, a, a, wide, 1.0, false);
  Gemm<D>::sum(dev, ProductTerms<D, T>(), View<D, const Accum<T>>(wide), c, false);
};

namespace detail {

/// The FLOPs of a product whose shapes fit.
template <class D, class T, class Out>
double check_product(const char* kernel, const ProductTerm<D, T>& term, View<D, Out> c) {
  if (term.depth() != term.b_depth())
    fail<ShapeError>("[", kernel, "] a is ", to_string(term.a.shape()), " but b is ", to_string(term.b.shape()),
                     "; inner extents differ");
  expect_shape(kernel, "c", c, term.rows(), term.cols());
  return 2 * count_of(term.rows(), term.cols(), term.depth());
}

}  // namespace detail

/// c = alpha · op(a) op(b)  (+ c if accumulate)
/// Shapes   as Form says; c (M, N)
/// Types    a, b in T; c in T or Accum<T>; sums in Accum<T> (rounded to T first on an NPU that writes no others)
/// Writes   c overwritten, or added to; M, N or K may be 0
/// Throws   ShapeError where inner or outer extents differ
template <class D, class T, class Out>
void gemm(D& dev, Form form, View<D, const T> a, View<D, const T> b, View<D, Out> c, double alpha = 1.0,
          bool accumulate = false) {
  static_assert(HasGemm<D, T>, "include lora/<backend>/kernels.hpp");
  static_assert(std::same_as<Out, T> || std::same_as<Out, Accum<T>>, "c holds T or Accum<T>, and is not const");
  const double flops = detail::check_product("gemm", ProductTerm<D, T>{form, a, b}, c);
  const ProfileScope span(dev, "gemm", "gemm", flops, bytes_of(a, b, c) + (accumulate ? bytes_of(c) : 0));
  Gemm<D>::run(dev, form, a, b, c, alpha, accumulate);
}

/// The same for operands that may be written to, so that callers need not spell const.
template <class D, class A, class B, class Out>
  requires(!std::is_const_v<A> || !std::is_const_v<B>)
void gemm(D& dev, Form form, View<D, A> a, View<D, B> b, View<D, Out> c, double alpha = 1.0, bool accumulate = false) {
  gemm(dev, form, View<D, const A>(a), View<D, const B>(b), c, alpha, accumulate);
}

/// c = Σ op(a) op(b) + bias  (+ c if accumulate), where rounding each product to T would lose what small ones add
/// Shapes   as Form says; bias (N) or empty; c (M, N)
/// Types    a, b, c in T; the CPU sums in Accum<T> and rounds to T once
/// Differs  on an NPU, which rounds to T after each part: the bias, the terms from the last to the first, c. So the
///          largest, the first, comes last
/// Writes   c overwritten, or added to
/// Throws   ShapeError where inner or outer extents differ
template <class D, class T>
void sum_of_products(D& dev, ProductTerms<D, T> terms, ConstView<D, Accum<T>> bias, View<D, T> c,
                     bool accumulate = false) {
  static_assert(HasGemm<D, T>, "include lora/<backend>/kernels.hpp");
  if (terms.size() == 0) fail<ShapeError>("[sum_of_products] no product is given");
  double flops = 0, bytes = bytes_of(c) + (accumulate ? bytes_of(c) : 0);
  for (const ProductTerm<D, T>& term : terms) {
    flops += detail::check_product("sum_of_products", term, c);
    bytes += bytes_of(term.a, term.b);
  }
  if (!bias.empty()) expect_shape("sum_of_products", "bias", bias, 1, c.cols());
  const ProfileScope span(dev, "gemm", "sum_of_products", flops, bytes);
  Gemm<D>::sum(dev, terms, bias, c, accumulate);
}

}  // namespace lora::kernel
