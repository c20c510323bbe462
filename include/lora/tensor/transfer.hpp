#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "lora/tensor/tensor.hpp"

namespace lora {

/// Host values into a view of as many elements. They must stay until the device has been waited for.
template <AnyDevice D, class T>
void copy_from_host(D& dev, std::type_identity_t<std::span<const T>> source, View<D, T> target) {
  if (static_cast<Index>(source.size()) != target.size())
    fail<ShapeError>("[copy_from_host] ", source.size(), " values for a view of ", to_string(target.shape()));
  const auto row_bytes = static_cast<std::size_t>(target.cols()) * sizeof(T);
  if (target.contiguous()) {
    if (target.size() > 0) dev.copy_from_host(target.data(), source.data(), source.size_bytes());
    return;
  }
  for (Index i = 0; i < target.rows(); ++i)
    dev.copy_from_host(target.row(i), source.data() + i * target.cols(), row_bytes);
}

/// A view's values on the host, row after row. Waits for the work that writes them.
template <AnyDevice D, class T>
std::vector<std::remove_const_t<T>> to_host(D& dev, View<D, T> source) {
  std::vector<std::remove_const_t<T>> values(static_cast<std::size_t>(source.size()));
  const auto row_bytes = static_cast<std::size_t>(source.cols()) * sizeof(T);
  if (source.contiguous()) {
    if (source.size() > 0) dev.copy_to_host(values.data(), source.data(), values.size() * sizeof(T));
    return values;
  }
  for (Index i = 0; i < source.rows(); ++i)
    dev.copy_to_host(values.data() + i * source.cols(), source.row(i), row_bytes);
  return values;
}

/// f(std::span<const T>) of the same values: where they lie if the device's memory is the host's, else of a copy.
template <AnyDevice D, class T, class F>
void with_host_values(D& dev, View<D, T> source, F&& f) {
  using Value = std::remove_const_t<T>;
  if constexpr (D::reads_host_memory) {
    if (source.contiguous()) {
      dev.synchronize();
      return f(std::span<const Value>(source.data(), static_cast<std::size_t>(source.size())));
    }
  }
  const std::vector<Value> values = to_host(dev, source);
  f(std::span<const Value>(values));
}

/// A new tensor (rows, cols) with these host values, which must stay likewise.
template <class T, AnyDevice D>
Tensor<D, T> tensor_of(D& dev, std::type_identity_t<std::span<const T>> values, Index rows, Index cols) {
  Tensor<D, T> tensor(dev, rows, cols);
  copy_from_host<D, T>(dev, values, tensor.view());
  return tensor;
}

}  // namespace lora
