#pragma once

#include <utility>
#include <vector>

#include "lora/tensor/device.hpp"
#include "lora/tensor/view.hpp"

namespace lora {

/// Owns a contiguous matrix on device D. The device outlives it.
template <AnyDevice D, class T>
class Tensor {
 public:
  Tensor() = default;
  Tensor(D& dev, Index rows, Index cols) : device_(&dev), rows_(rows), cols_(cols) {
    if (rows * cols > 0) data_ = static_cast<T*>(dev.allocate(bytes()));
  }
  Tensor(D& dev, Index size) : Tensor(dev, 1, size) {}
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  ~Tensor() {
    if (data_ != nullptr) device_->free(data_, bytes());
  }

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index size() const { return rows_ * cols_; }
  bool empty() const { return data_ == nullptr; }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * sizeof(T); }

  View<D, T> view() { return empty() ? View<D, T>() : View<D, T>(data_, rows_, cols_); }
  View<D, const T> view() const { return empty() ? View<D, const T>() : View<D, const T>(data_, rows_, cols_); }

 private:
  void swap(Tensor& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(rows_, other.rows_);
    std::swap(cols_, other.cols_);
  }

  D* device_ = nullptr;
  T* data_ = nullptr;
  Index rows_ = 0;
  Index cols_ = 0;
};

}  // namespace lora
