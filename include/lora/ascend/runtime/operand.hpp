#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "lora/ascend/runtime/device.hpp"
#include "lora/core/shape.hpp"

namespace lora::ascend {

/// A tensor argument of an operator: a pointer with element type, shape and strides (in elements).
struct Operand {
  static constexpr std::size_t most = 4;  ///< dimensions

  void* data = nullptr;
  aclDataType type = ACL_FLOAT;
  std::size_t rank = 0;
  std::array<std::int64_t, most> dims{}, strides{};

  Operand() = default;
  Operand(const void* memory, aclDataType element, std::initializer_list<std::int64_t> extents,
          std::initializer_list<std::int64_t> steps)
      : data(const_cast<void*>(memory)), type(element), rank(extents.size()) {  // operators say what they write
    std::copy(extents.begin(), extents.end(), dims.begin());
    std::copy(steps.begin(), steps.end(), strides.begin());
  }
  /// A matrix (rows, cols).
  template <class T>
  Operand(View<Device, T> view)
      : Operand(view.data(), acl_type<std::remove_const_t<T>>, {view.rows(), view.cols()}, {view.stride(), 1}) {}

  /// One beyond the last element that it has, counted from its first.
  std::int64_t extent() const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < rank; ++i) {
      if (dims[i] == 0) return 0;
      last += (dims[i] - 1) * strides[i];
    }
    return last + 1;
  }
  /// "bfloat16 (12, 64)"
  std::string text() const {
    std::string shape;
    for (std::size_t i = 0; i < rank; ++i) shape += concat(i == 0 ? "" : ", ", dims[i]);
    return concat(name_of(type), " (", shape, ")");
  }
};

/// A view of no operand: an optional one that is not given.
struct NoOperand {};
inline constexpr NoOperand no_operand;

/// An empty tensor, where an operator wants one that it does not use.
inline Operand empty_operand(aclDataType type) { return Operand(nullptr, type, {0}, {1}); }

/// The transpose (cols, rows) of a matrix, without a copy.
template <class T>
Operand transposed(View<Device, T> view) {
  return Operand(view.data(), acl_type<std::remove_const_t<T>>, {view.cols(), view.rows()}, {1, view.stride()});
}

/// A view without gaps as a vector (n).
template <class T>
Operand vector(View<Device, T> view) {
  return Operand(view.data(), acl_type<std::remove_const_t<T>>, {view.size()}, {1});
}

/// A matrix (N, K·C) as (N, K, C).
template <class T>
Operand heads(View<Device, T> view, Index count) {
  const Index width = view.cols() / count;
  return Operand(view.data(), acl_type<std::remove_const_t<T>>, {view.rows(), count, width}, {view.stride(), width, 1});
}

/// A number that an operator is given, in float32.
struct Scalar {
  double value = 0;
};
/// The same as a double.
struct WideScalar {
  double value = 0;
};

}  // namespace lora::ascend
