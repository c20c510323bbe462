#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "lora/kernel/embedding.hpp"
#include "lora/nn/param_store.hpp"
#include "lora/nn/weight.hpp"

namespace lora::nn {

/// A matrix (O, I) of the model: as its file stores it or, once it may train, a parameter of a store.
template <AnyDevice D, class T>
class OwnMatrix {
 public:
  OwnMatrix() = default;
  OwnMatrix(Weight<D> stored) : stored_(std::move(stored)) {}

  const Weight<D>& stored() const { return stored_; }
  const Param<D, T>& param() const { return param_; }
  Index rows() const { return stored_.rows(); }
  Index cols() const { return stored_.cols(); }
  bool trains() const { return param_.trains(); }
  /// Whether it must be decoded before products can read it.
  bool decodes() const { return param_.empty() && !stores<T>(stored_.dtype()); }

  /// Access for as long as the handle lives.
  class Use {
   public:
    explicit Use(typename Weight<D>::Use stored) : stored_(std::move(stored)) {}
    explicit Use(View<D, const T> trained) : trained_(trained) {}

    /// Rows in T: in place where they are stored as T, else decoded into scratch of the enclosing scope.
    View<D, const T> rows(D& dev, Index first, Index count) const {
      if (!stored_) return trained_.row_slice(first, count);
      return decoded<T>(dev, stored_->view().row_slice(first, count));
    }
    /// y_i = row index_i. Shapes   index (n) · y (n, I)
    void gather(D& dev, View<D, const std::int32_t> index, View<D, T> y) const {
      if (!stored_) return kernel::gather_rows(dev, trained_, index, y);
      kernel::embedding(dev, stored_->view(), index, y);
    }
    /// As it lies in memory: as the file has it, or the parameter in T.
    StoredView<D> stored() const {
      if constexpr (HasDType<T>)
        if (!stored_) return StoredView<D>(trained_.data(), dtype_of<T>, trained_.rows(), trained_.cols());
      return stored_->view();
    }

   private:
    std::optional<typename Weight<D>::Use> stored_;
    View<D, const T> trained_;
  };
  Use use(D& dev) const { return param_.empty() ? Use(stored_.use(dev)) : Use(param_.use()); }

  /// Adds it to the parameters; once the store is built, `start` fills it.
  void add_to(ParamStore<D, T>& params, const std::string& name, Index group) {
    param_ = params.add(rows(), cols(), group);
    params.name(param_, name, 0, rows());
  }
  /// The parameter gets the stored numbers.
  void start(D& dev, ParamStore<D, T>& params) {
    params.fill(dev, param_,
                [&](D& to_dev, View<D, Accum<T>> to) { kernel::decode(to_dev, stored_.use(to_dev).view(), to); });
  }
  /// Back to the stored numbers.
  void freeze() { param_ = {}; }

  /// Its numbers in Accum<T>. Shapes   out (O, I)
  void copy_to(D& dev, View<D, Accum<T>> out) const {
    if (!param_.empty()) return kernel::convert(dev, param_.value(), out);
    kernel::decode(dev, stored_.use(dev).view(), out);
  }

 private:
  Weight<D> stored_;
  Param<D, T> param_;
};

/// A bias or the weight of a norm (n), or none. It is small, and kept in Accum<T>.
template <AnyDevice D, class T>
class OwnVector {
 public:
  OwnVector() = default;
  OwnVector(Tensor<D, Accum<T>> stored) : stored_(std::move(stored)) {}

  const Param<D, T>& param() const { return param_; }
  bool empty() const { return stored_.empty(); }
  bool trains() const { return param_.trains(); }
  View<D, const Accum<T>> view() const {
    if (!param_.empty()) return param_.use_in_full();
    return stored_.view();
  }

  void add_to(ParamStore<D, T>& params, const std::string& name, Index group) {
    param_ = params.add(1, stored_.size(), group, true);
    params.name(param_, name, 0, 1);
  }
  void start(D& dev, ParamStore<D, T>& params) {
    params.fill(dev, param_,
                [&](D& to_dev, View<D, Accum<T>> to) { kernel::convert(to_dev, std::as_const(stored_).view(), to); });
  }
  void freeze() { param_ = {}; }
  void copy_to(D& dev, View<D, Accum<T>> out) const { kernel::convert(dev, view(), out); }

 private:
  Tensor<D, Accum<T>> stored_;
  Param<D, T> param_;
};

}  // namespace lora::nn
