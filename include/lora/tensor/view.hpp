#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lora/core/assert.hpp"
#include "lora/core/shape.hpp"

namespace lora {

/// On how many bytes views begin that kernels are given, but for those that a device takes as they come: slices begin
/// on so many columns, and results share no such block with anything else.
inline constexpr std::size_t view_alignment = 32;

namespace detail {

// Apart, so that a slice is little code where it is taken.
[[noreturn]] inline void fail_slice(std::string_view what, Index begin, Index count, Index rows, Index cols) {
  fail<ShapeError>("[view] ", count, " ", what, " from ", begin, " on were asked for, of ",
                   to_string(Shape{rows, cols}));
}

}  // namespace detail

/// A non-owning matrix on device D: rows of `cols` adjacent elements, `stride` elements from row to row. A vector (n)
/// is a matrix (1, n). An empty view (no memory) is an operand that is not there, where a function allows it: an output
/// that is not needed, or an input that does not exist.
template <class D, class T>
class View {
 public:
  using Element = T;

  constexpr View() = default;
  constexpr View(T* data, Index rows, Index cols, Index stride)
      : data_(data), rows_(rows), cols_(cols), stride_(stride) {
    // Only the caller knows what is at the address, so the extents are not checked either.
    LORA_ASSERT(rows >= 0 && cols >= 0 && stride >= cols);
  }
  constexpr View(T* data, Index rows, Index cols) : View(data, rows, cols, cols) {}
  constexpr View(T* data, Index size) : View(data, 1, size, size) {}

  /// Converts a writable view to a read-only one.
  template <class U>
    requires(std::same_as<const U, T> && !std::same_as<U, T>)
  constexpr View(const View<D, U>& other)
      : data_(other.data()), rows_(other.rows()), cols_(other.cols()), stride_(other.stride()) {}

  constexpr T* data() const { return data_; }
  constexpr Index rows() const { return rows_; }
  constexpr Index cols() const { return cols_; }
  constexpr Index stride() const { return stride_; }
  constexpr Index size() const { return rows_ * cols_; }
  constexpr bool empty() const { return data_ == nullptr; }
  constexpr bool contiguous() const { return stride_ == cols_ || rows_ <= 1; }
  constexpr Shape shape() const { return {rows_, cols_}; }

  /// The start of row i; device memory, to be read by kernels only, whose front doors have checked all extents.
  constexpr T* row(Index i) const {
    LORA_ASSERT(i >= 0 && i < rows_);
    return data_ + i * stride_;
  }

  /// Throws   ShapeError for rows that there are not; likewise columns
  constexpr View row_slice(Index begin, Index count) const {
    if (begin < 0 || count < 0 || count > rows_ - begin) detail::fail_slice("rows", begin, count, rows_, cols_);
    return View(data_ + begin * stride_, count, cols_, stride_);
  }
  constexpr View col_slice(Index begin, Index count) const {
    if (begin < 0 || count < 0 || count > cols_ - begin) detail::fail_slice("columns", begin, count, rows_, cols_);
    return View(data_ + begin, rows_, count, stride_);
  }
  /// The same memory as one row.
  /// Throws   ShapeError for rows that lie apart
  constexpr View flat() const {
    if (!contiguous())
      fail<ShapeError>("[view] rows of ", cols_, " columns that lie ", stride_, " apart are no one row");
    return View(data_, 1, size(), size());
  }

 private:
  T* data_ = nullptr;
  Index rows_ = 0;
  Index cols_ = 0;
  Index stride_ = 0;
};

/// Read-only view, the type of every kernel's input. In a non-deduced context, so that writable views convert.
template <class D, class T>
using ConstView = std::type_identity_t<View<D, const T>>;

/// Writable view in a non-deduced context.
template <class D, class T>
using OutView = std::type_identity_t<View<D, T>>;

/// Throws unless the view has this shape. `operation` is the kernel, `name` the operand.
template <class D, class T>
void expect_shape(std::string_view operation, std::string_view name, const View<D, T>& view, Index rows, Index cols) {
  if (view.rows() == rows && view.cols() == cols) return;
  fail<ShapeError>("[", operation, "] ", name, " is ", to_string(view.shape()), " but ", to_string(Shape{rows, cols}),
                   " was expected");
}

/// Throws if an index is not in [0, count). Only checked where the host can read the device's memory; elsewhere the
/// caller checks indices before it copies them to the device. `operation` and `name` as above.
template <class D>
void expect_indices(std::string_view operation, std::string_view name, const View<D, const std::int32_t>& index,
                    Index count) {
  if constexpr (D::reads_host_memory)
    for (Index i = 0; i < index.cols(); ++i)
      if (const Index at = index.data()[i]; at < 0 || at >= count)
        fail<ShapeError>("[", operation, "] ", name, " ", i, " is ", at, ", but there are ", count, " rows");
}

}  // namespace lora
