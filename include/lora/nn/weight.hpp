#pragma once

#include <memory>
#include <utility>

#include "lora/kernel/quantize.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::nn {

/// A base weight. Its stored dtype and where it lives are values; `use` is the only access to it.
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

/// The weight as T: in place where it is stored as T, else decoded into scratch of the enclosing scope.
template <class T, AnyDevice D>
View<D, const T> decoded(D& dev, const StoredView<D>& stored) {
  if (stored.template is<T>()) {
    if constexpr (HasDType<T>) return stored.template as<T>();
  }
  const View<D, T> wide = scratch<T>(dev, stored.rows(), stored.cols());
  kernel::decode(dev, stored, wide);
  return wide;
}

}  // namespace lora::nn
