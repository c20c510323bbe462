#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "lora/kernel/quantize.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/stored.hpp"

namespace lora::nn {

/// Where the memory of weights begins that are on the device only at times, see LayerAccess: null while they are not.
struct WeightPlace {
  const std::byte* begin = nullptr;
};

/// A base weight. Its stored dtype and where it lives are values; `use` is the only access to it.
template <AnyDevice D>
class Weight {
 public:
  Weight() = default;
  /// In place: `owner` keeps the memory (a mapped file, a device copy) alive.
  Weight(StoredView<D> stored, std::shared_ptr<const void> owner) : stored_(stored), owner_(std::move(owner)) {}
  /// On the device while it is used alone: `bring` has it come to scratch of the enclosing scope each time.
  Weight(std::function<StoredView<D>(D&)> bring, StoredView<D> shape) : stored_(shape), bring_(std::move(bring)) {}
  /// `offset` bytes behind an address that changes; `shape` has no memory.
  Weight(StoredView<D> shape, std::shared_ptr<const WeightPlace> place, std::size_t offset)
      : stored_(shape), place_(std::move(place)), offset_(offset) {}

  /// Access for as long as the handle lives.
  class Use {
   public:
    Use(StoredView<D> stored, std::shared_ptr<const void> owner) : stored_(stored), owner_(std::move(owner)) {}
    const StoredView<D>& view() const { return stored_; }

   private:
    StoredView<D> stored_;
    std::shared_ptr<const void> owner_;
  };
  /// Throws   DeviceError for one that is not on the device now
  Use use(D& dev) const {
    if (bring_) return Use(bring_(dev), nullptr);
    if (place_ == nullptr) return Use(stored_, owner_);
    if (place_->begin == nullptr)
      fail<DeviceError>("[weight] a matrix ", to_string(stored_.shape()),
                        " is read while it is not on the device; expected its layer to be acquired before");
    return Use(StoredView<D>(place_->begin + offset_, stored_.dtype(), stored_.rows(), stored_.cols()), owner_);
  }

  bool empty() const { return stored_.empty() && place_ == nullptr && !bring_; }
  DType dtype() const { return stored_.dtype(); }
  Index rows() const { return stored_.rows(); }
  Index cols() const { return stored_.cols(); }
  std::size_t bytes() const { return stored_.bytes(); }

 private:
  StoredView<D> stored_;  // without memory where the place moves, or it is brought
  std::shared_ptr<const void> owner_;
  std::function<StoredView<D>(D&)> bring_;
  std::shared_ptr<const WeightPlace> place_;
  std::size_t offset_ = 0;
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
