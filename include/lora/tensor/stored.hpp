#pragma once

#include <cstddef>
#include <cstdint>

#include "lora/tensor/view.hpp"

namespace lora {

/// A matrix (rows, cols) whose element encoding is a value: a weight as its file stores it. Rows follow each other
/// without gaps; quantized rows are whole blocks.
template <class D>
class StoredView {
 public:
  StoredView() = default;
  StoredView(const void* data, DType dtype, Index rows, Index cols)
      : data_(static_cast<const std::byte*>(data)), dtype_(dtype), rows_(rows), cols_(cols) {
    if (cols % block_elements(dtype) != 0)
      fail<ShapeError>("[stored] rows of ", cols, " elements are no whole blocks of ", name_of(dtype));
  }

  const std::byte* data() const { return data_; }
  DType dtype() const { return dtype_; }
  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  bool empty() const { return data_ == nullptr; }
  Shape shape() const { return {rows_, cols_}; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(bytes_of(dtype_, cols_)); }
  std::size_t bytes() const { return row_bytes() * static_cast<std::size_t>(rows_); }

  StoredView row_slice(Index begin, Index count) const {
    if (begin < 0 || count < 0 || count > rows_ - begin) detail::fail_slice("rows", begin, count, rows_, cols_);
    return StoredView(data_ + static_cast<std::size_t>(begin) * row_bytes(), dtype_, count, cols_);
  }

  /// True where kernels can read it as T in place.
  template <class T>
  bool is() const {
    return stores<T>(dtype_) && reinterpret_cast<std::uintptr_t>(data_) % alignof(T) == 0;
  }
  /// Throws   ShapeError where they can't
  template <HasDType T>
  View<D, const T> as() const {
    if (!is<T>())
      fail<ShapeError>("[stored] a matrix of ", name_of(dtype_), " can't be read in place as ", name_of(dtype_of<T>));
    return View<D, const T>(reinterpret_cast<const T*>(data_), rows_, cols_);
  }

 private:
  const std::byte* data_ = nullptr;
  DType dtype_ = DType::f32;
  Index rows_ = 0;
  Index cols_ = 0;
};

}  // namespace lora
