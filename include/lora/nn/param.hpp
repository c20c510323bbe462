#pragma once

#include <concepts>
#include <cstddef>
#include <string>

#include "lora/core/error.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// One trainable tensor as files, optimizer and tests see it: a matrix of a storage or some rows of it. Where
/// `transposed`, files hold the transpose (lora_B lies in memory as (R, O)). `grad` is empty where it is frozen, and
/// zero between passes where gradients leave by layer; `value` where values come by layer.
template <AnyDevice D, class T>
struct ParamRef {
  std::string name;
  View<D, Accum<T>> value;
  View<D, Accum<T>> grad;
  bool transposed = false;
};

template <AnyDevice D, class T>
class ParamStore;

/// A module's handle to a trainable matrix, whose memory a ParamStore owns. It stays valid when the store moves memory,
/// which happens between steps only; views taken from it do not.
template <AnyDevice D, class T>
class Param {
 public:
  static constexpr bool has_copy = !std::same_as<T, Accum<T>>;

  Param() = default;

  bool empty() const { return storage_ == nullptr; }
  /// Whether gradients are formed; else `grad` is empty.
  bool trains() const { return storage_ != nullptr && storage_->trains; }
  View<D, Accum<T>> value() const { return storage_->value; }
  View<D, Accum<T>> grad() const { return storage_->grad; }

  /// What products read; valid since the store's last refresh, and where values come by layer while it is held.
  /// Throws   DeviceError for one that has no memory now
  View<D, const T> use() const {
    if constexpr (has_copy) {
      return there(View<D, const T>(storage_->copy));
    } else {
      return there(View<D, const T>(storage_->value));
    }
  }
  /// The same for what is read in the type of sums.
  View<D, const Accum<T>> use_in_full() const { return there(View<D, const Accum<T>>(storage_->value)); }

 private:
  friend class ParamStore<D, T>;

  struct Storage {
    Index rows = 0, cols = 0;
    Index group = 0;
    bool trains = true;
    Index begin = 0;  // of the group's slab, in elements
    View<D, Accum<T>> value, grad;
    View<D, T> copy;  // where T is narrower
    std::size_t number = 0;
  };

  explicit Param(const Storage* storage) : storage_(storage) {}

  template <class E>
  View<D, const E> there(View<D, const E> numbers) const {
    if (numbers.empty())
      fail<DeviceError>(
          "[param] a matrix (", storage_->rows, ", ", storage_->cols,
          ") is read while it is not on the device; expected its store to be built before, and its layer ",
          "to be held where ranks share it out or it lies on the host");
    return numbers;
  }

  const Storage* storage_ = nullptr;
};

}  // namespace lora::nn
