#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <vector>

#include "lora/ascend/kernels/elementwise.hpp"
#include "lora/core/log.hpp"
#include "lora/kernel/gemm.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::ascend {

/// What the products of a device can do, found out once.
class Products {
 public:
  explicit Products(Device& dev) : dev_(dev) {}

  /// Whether a product of T can be written in float32; else it is rounded to T first, which loses digits of gradients
  /// and logits. The vendor's documentation promises it for some of its versions; here it is tried, with a sum of so
  /// many ones that no type of 16 bits has it.
  template <class T>
  bool writes_float() {
    std::optional<bool>& known = std::same_as<T, bf16> ? bf16_ : f16_;
    if (!known) known = try_float<T>();
    return *known;
  }

 private:
  template <class T>
  bool try_float() {
    const Arena::Scope scope(dev_.arena());
    constexpr Index n = 16, depth = 2049;
    const View<Device, T> ones = scratch<T>(dev_, n, depth);
    const View<Device, float> product = scratch<float>(dev_, n, n);
    const auto& mm = dev_.toolkit().operators.mm;
    const auto warn = [&](const auto&... why) {
      log::warn("[ascend] NPU ", dev_.settings().id, ": the operator Mm ", why..., "; products of ",
                name_of(acl_type<T>), " are rounded to it before they are added up in float32");
      return false;
    };
    if (!takes(dev_, mm, ones, transposed(ones), product, KEEP_DTYPE))
      return warn("writes no float32 results of ", name_of(acl_type<T>));
    kernel::Elementwise<Device>::fill(dev_, ones, 1);
    launch(dev_, mm, ones, transposed(ones), product, KEEP_DTYPE);
    const auto given = to_host(dev_, ones);
    // A library that only counts what it is asked has no numbers at all.
    if (std::all_of(given.begin(), given.end(), [](T one) { return static_cast<float>(one) == 0; })) return true;
    const auto sums = to_host(dev_, product);
    const auto wrong = std::find_if(sums.begin(), sums.end(), [](float sum) { return sum != float{depth}; });
    return wrong == sums.end() || warn("gives wrong float32 results, ", *wrong, " as the sum of ", depth, " ones");
  }

  Device& dev_;
  std::optional<bool> bf16_, f16_;
};

namespace detail {

template <class T>
Operand left(const kernel::ProductTerm<Device, T>& term) {
  return term.form == kernel::Form::tn ? transposed(term.a) : Operand(term.a);
}
template <class T>
Operand right(const kernel::ProductTerm<Device, T>& term) {
  return term.form == kernel::Form::nt ? transposed(term.b) : Operand(term.b);
}

/// c = op(a) op(b)
template <class T, class Out>
void multiply(Device& dev, const kernel::ProductTerm<Device, T>& term, View<Device, Out> c) {
  launch(dev, dev.toolkit().operators.mm, left(term), right(term), c, KEEP_DTYPE);
}

/// c += alpha · op(a) op(b), rounded once.
template <class T>
void multiply_add(Device& dev, const kernel::ProductTerm<Device, T>& term, View<Device, T> c, double alpha = 1) {
  launch(dev, dev.toolkit().operators.inplace_addmm, c, left(term), right(term), Scalar{1}, Scalar{alpha}, KEEP_DTYPE);
}

/// The term with operands that begin on 32 bytes.
template <class T>
kernel::ProductTerm<Device, T> aligned(Device& dev, const kernel::ProductTerm<Device, T>& term) {
  return {term.form, ascend::aligned(dev, term.a), ascend::aligned(dev, term.b)};
}

}  // namespace detail
}  // namespace lora::ascend

namespace lora::kernel {

template <>
struct Gemm<ascend::Device> {
  using D = ascend::Device;

  template <class T, class Out>
  static void run(D& dev, Form form, View<D, const T> a, View<D, const T> b, View<D, Out> c, double alpha,
                  bool accumulate) {
    if (c.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    const ProductTerm<D, T> given{form, a, b};
    if (given.depth() == 0) {
      if (!accumulate) Elementwise<D>::fill(dev, c, 0);
      return;
    }
    const ProductTerm<D, T> term = ascend::detail::aligned(dev, given);
    ascend::write_aligned(dev, c, accumulate, false, [&](View<D, Out> place) {
      if constexpr (std::same_as<Out, T>) {
        if (accumulate) return ascend::detail::multiply_add(dev, term, place, alpha);
        ascend::detail::multiply(dev, term, place);
        if (alpha != 1) ascend::scale<T>(dev, place, alpha, place);
      } else {
        run_wide(dev, term, place, alpha, accumulate);
      }
    });
  }

  /// Small terms first, the largest, which is the first, last: what small ones add is then rounded to T by itself, and
  /// isn't lost in the large one's rounding. A rounding for each part, where the processors make one.
  template <class T>
  static void sum(D& dev, ProductTerms<D, T> terms, View<D, const Accum<T>> bias, View<D, T> c, bool accumulate) {
    if (c.size() == 0) return;
    const Arena::Scope scope(dev.arena());
    std::vector<ProductTerm<D, T>> given;
    for (const auto& term : terms)
      if (term.depth() > 0) given.push_back(ascend::detail::aligned(dev, term));
    ascend::write_aligned(dev, c, accumulate, false, [&](View<D, T> place) {
      const Arena::Scope inner(dev.arena());
      const bool apart = accumulate && given.size() + (bias.empty() ? 0 : 1) > 1;
      const View<D, T> sums = apart ? scratch<T>(dev, c.rows(), c.cols()) : place;
      bool begun = accumulate && !apart;
      if (!bias.empty() && !begun) {
        ascend::copy(dev, broadcast(bias, c.rows()), sums);
        begun = true;
      } else if (!bias.empty()) {
        ascend::add<Accum<T>, T>(dev, bias, sums);
      }
      for (std::size_t i = given.size(); i-- > 0;) {
        if (begun) {
          ascend::detail::multiply_add(dev, given[i], sums);
        } else {
          ascend::detail::multiply(dev, given[i], sums);
        }
        begun = true;
      }
      if (!begun) ascend::launch(dev, dev.toolkit().operators.inplace_zero, sums);
      if (apart) ascend::add<T, T>(dev, View<D, const T>(sums), place);
    });
  }

 private:
  /// c in float32, a and b narrower.
  template <class T>
  static void run_wide(D& dev, const ProductTerm<D, T>& term, View<D, float> c, double alpha, bool accumulate) {
    if (dev.state<ascend::Products>().template writes_float<T>()) {
      if (!accumulate && alpha == 1) return ascend::detail::multiply(dev, term, c);
      const View<D, float> product = scratch<float>(dev, c.rows(), c.cols());
      ascend::detail::multiply(dev, term, product);
      return Elementwise<D>::convert(dev, View<D, const float>(product), c, alpha, accumulate);
    }
    const View<D, T> product = scratch<T>(dev, c.rows(), c.cols());
    ascend::detail::multiply(dev, term, product);
    Elementwise<D>::convert(dev, View<D, const T>(product), c, alpha, accumulate);
  }

  /// A row (1, O) as n of them, without a copy.
  static ascend::Operand broadcast(View<D, const float> row, Index n) {
    return ascend::Operand(row.data(), ascend::ACL_FLOAT, {n, row.cols()}, {0, 1});
  }
};

}  // namespace lora::kernel
