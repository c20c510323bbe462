#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/quantize.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/stored.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::nn {

/// One trainable tensor as optimizer, checkpoints, clipping and tests see it. `value` and `grad` may be parts of a
/// larger storage. Where `transposed`, files hold the transpose (lora_B lies in memory as (R, O)).
template <AnyDevice D, class T>
struct ParamRef {
  std::string name;
  View<D, Accum<T>> value;
  View<D, Accum<T>> grad;
  bool transposed = false;
};

/// A trainable matrix: master and gradient in Accum<T>, and a copy in T for products where T is narrower.
template <AnyDevice D, class T>
class Param {
 public:
  static constexpr bool has_copy = !std::same_as<T, Accum<T>>;

  Param() = default;
  Param(D& dev, Index rows, Index cols) : value_(dev, rows, cols), grad_(dev, rows, cols) {
    kernel::fill(dev, value_.view(), 0.0);
    zero_grad(dev);
    if constexpr (has_copy) copy_ = Tensor<D, T>(dev, rows, cols);
    refresh(dev);
  }

  bool empty() const { return value_.empty(); }
  View<D, Accum<T>> value() { return value_.view(); }
  View<D, Accum<T>> grad() { return grad_.view(); }

  /// What products read; valid since the last refresh.
  View<D, const T> use() const {
    if constexpr (has_copy) {
      return copy_.view();
    } else {
      return value_.view();
    }
  }

  /// Rounds the master into the copy; to be called whenever the master has changed.
  void refresh(D& dev) {
    if constexpr (has_copy) {
      if (!empty()) kernel::convert(dev, value_.view(), copy_.view());
    }
  }
  void zero_grad(D& dev) {
    if (!empty()) kernel::fill(dev, grad_.view(), 0.0);
  }

 private:
  Tensor<D, Accum<T>> value_;
  Tensor<D, Accum<T>> grad_;
  Tensor<D, T> copy_;
};

/// A base weight. Its stored dtype and where it lives are values; `use` is the one door to it.
template <AnyDevice D>
class Weight {
 public:
  Weight() = default;
  /// In place: `owner` keeps the memory (a mapped file, a device copy) alive.
  Weight(StoredView<D> stored, std::shared_ptr<const void> owner) : stored_(stored), owner_(std::move(owner)) {}

  /// Access for as long as the handle lives.
  class Use {
   public:
    Use(StoredView<D> stored, std::shared_ptr<const void> owner) : stored_(stored), owner_(std::move(owner)) {}
    const StoredView<D>& view() const { return stored_; }

   private:
    StoredView<D> stored_;
    std::shared_ptr<const void> owner_;
  };
  Use use(D&) const { return Use(stored_, owner_); }

  bool empty() const { return stored_.empty(); }
  DType dtype() const { return stored_.dtype(); }
  Index rows() const { return stored_.rows(); }
  Index cols() const { return stored_.cols(); }
  std::size_t bytes() const { return stored_.bytes(); }

 private:
  StoredView<D> stored_;
  std::shared_ptr<const void> owner_;
};

/// The weight as T: in place where it is stored so, else decoded into scratch of the enclosing scope.
template <class T, AnyDevice D>
View<D, const T> widened(D& dev, const StoredView<D>& stored) {
  if (stored.template is<T>()) {
    if constexpr (HasDType<T>) return stored.template as<T>();
  }
  const View<D, T> wide = scratch<T>(dev, stored.rows(), stored.cols());
  kernel::widen(dev, stored, wide);
  return wide;
}

}  // namespace lora::nn
